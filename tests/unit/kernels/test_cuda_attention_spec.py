"""The spec of attention on GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.attention_tasks import attention
from helpers.kernels.gpu_kernels import a_gpu, space_of
from tilewright.core.records import Candidate
from tilewright.cost.blocks import held
from tilewright.graph.network import TensorType
from tilewright.kernels.cuda.attention import SPEC
from tilewright.kernels.estimates import facts
from tilewright.testing.implementations import check_spec, plain

GPUS = tuple(a_gpu(f"-model={model}") for model in ("T4", "A100", "H100", "4090"))
TASKS = {
    "bert": attention((8, 128, 768), (8, 128, 768), (8, 128, 768), (8, 1, 1, 128), heads=12),
    "vit": attention((1, 197, 768), (1, 197, 768), (1, 197, 768), heads=12),
    "a prompt": attention(
        (1, 512, 2048), (1, 512, 512), (1, 512, 512), heads=16, key_heads=4, causal=True
    ),
    "a token": attention(
        (1, 1, 2048), (1, 1024, 512), (1, 1024, 512), heads=16, key_heads=4, causal=True
    ),
    "long": attention((1, 65_536, 64), (1, 65_536, 64), (1, 65_536, 64), heads=1),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_spec_keeps_its_contract(name: str) -> None:
    check_spec(SPEC, TASKS[name], placements=GPUS)


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_keeps_the_limits_of_a_launch(name: str) -> None:
    task = TASKS[name]
    for on in GPUS:
        limits, space = on.target.limits, space_of(SPEC.name, task, on)
        columns = space.columns(space.listed())
        main = SPEC.demand(task, on.target, on.resources, plain(task), columns).blocks[0]
        threads = np.asarray(main.threads)
        assert (held(main, limits) >= 1).all()
        assert (threads <= limits.block_threads).all()
        assert (threads % limits.warp == 0).all()
        assert (np.asarray(main.shared_bytes) <= limits.block_shared_bytes).all()
        assert (np.asarray(main.count) <= limits.grid[0]).all()


def test_facts_of_one_setting_by_hand() -> None:
    """100 queries and keys of depth 16, in blocks of 32 queries and steps of 32 keys."""
    on = a_gpu()
    setting = dict(queries=32, thread_queries=4, lanes=8, thread_keys=4, split=1)
    told = dict[bool, dict[str, float]]()
    for causal in (False, True):
        task = attention((1, 100, 32), (1, 100, 32), (1, 100, 32), heads=2, causal=causal)
        found = facts(SPEC, task, on.target, on.resources, plain(task), [setting])
        told[causal] = {name: float(values[0]) for name, values in found.items()}
    whole = told[False]
    assert whole["parallel_extent"] == 2 * 4
    assert whole["threads"] == 64
    assert whole["shared_bytes"] == 4 * (16 * 36 + 32 * 36 + 32 * 16)
    assert whole["steps"] == 4
    assert whole["waste"] == pytest.approx((128 / 100) ** 2)
    assert told[True]["steps"] == (1 + 2 + 3 + 4) / 4
    assert told[True]["estimate_s"] < whole["estimate_s"]
    assert told[True]["predicates"] == whole["predicates"] + 1


def test_few_queries_share_their_keys() -> None:
    """The default of a token has several blocks for each head; its parts are a workspace."""
    task, on = TASKS["a token"], a_gpu()
    columns = space_of(SPEC.name, task, on).columns(space_of(SPEC.name, task, on).listed())
    known = facts(SPEC, task, on.target, on.resources, plain(task), columns)
    best = columns[int(np.argmin(known["estimate_s"]))]
    assert int(best["split"]) > 1
    candidate = Candidate(implementation=SPEC.name, settings=tuple(best.items()), forms=plain(task))
    taken = SPEC.workspaces(task, candidate, on.target, on.resources).shared
    assert taken == tuple(4 * int(best["split"]) * 16 * wide for wide in (128, 1, 1))


def test_what_it_does_not_take() -> None:
    on = a_gpu("-model=T4")
    deep = attention((1, 8, 4096), (1, 8, 4096), (1, 8, 4096), heads=1)
    double = [TensorType((1, 8, 8), "float64")] * 3
    for task in (deep, attention(*double, heads=1)):
        assert not SPEC.applies(task, on.target, on.resources)
