"""The spec of row kernels for GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.cuda_settings import facts_on, gpu, listed
from helpers.kernels.one_kernel import step, workload
from helpers.kernels.streaming_cases import ADD, MEAN, SOFTMAX
from tilewright.kernels.cuda.accesses import turns_of_banks
from tilewright.kernels.cuda.rows import NO_CONFLICTS, SPEC, shares_of
from tilewright.testing.implementations import candidate_of, check_spec, plain

NAME = "cuda_rows"
LARGE_MEAN = workload([(1, 3, 512, 512)], step("reduce_mean", 0, axes=(2, 3), keepdims=True))
COLUMNS = workload([(4096, 1024)], step("reduce_sum", 0, axes=(0,), keepdims=False))
NORM = workload([(1024, 768), (768,), (768,)], step("layer_norm", 0, 1, 2, axis=1, epsilon=1e-5))


@pytest.mark.parametrize("task", [MEAN, SOFTMAX, COLUMNS, NORM])
def test_keeps_what_every_implementation_must(task) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_applies_to_rows_with_elementwise_steps_after_them() -> None:
    on = gpu()
    turned = step("transpose", 1, permutation=(1, 0))
    softmax = step("softmax", 0, axis=1)
    assert not SPEC.applies(ADD, on.target, on.resources)
    assert not SPEC.applies(workload([(4, 4)], softmax, turned), on.target, on.resources)
    before = step("softmax", 1, axis=1)
    moved = workload([(4, 4)], step("transpose", 0, permutation=(1, 0)), before)
    assert SPEC.applies(moved, on.target, on.resources)
    costly = [step(name, i) for i, name in enumerate(("tanh", "exp", "gelu"))]
    deep = workload([(4, 4)], *costly, step("softmax", 3, axis=1))
    assert not SPEC.applies(deep, on.target, on.resources)
    after = [step("softmax", 0, axis=1), *(step(it.operator, i + 1) for i, it in enumerate(costly))]
    assert SPEC.applies(workload([(4, 4)], *after), on.target, on.resources)


@pytest.mark.parametrize("task", [MEAN, SOFTMAX, COLUMNS, NORM, LARGE_MEAN])
def test_every_element_has_a_thread(task) -> None:
    for setting in listed(task, NAME):
        shares = shares_of(task, plain(task), setting)
        assert shares.row_blocks * shares.block_rows >= shares.of.count
        assert shares.part * shares.split >= shares.of.length
        assert shares.turns * shares.step >= shares.part
        assert shares.threads % 32 == 0 and shares.threads <= gpu().target.limits.block_threads


def test_few_long_rows_are_split() -> None:
    best = listed(LARGE_MEAN, NAME)[0]
    told = facts_on(LARGE_MEAN, NAME, [best, {**best, "split": 1}])
    assert best["split"] > 32 and told["estimate_s"][0] < told["estimate_s"][1] / 3
    assert told["parallel_extent"][0] > gpu().target.cores > told["parallel_extent"][1]


def test_short_rows_stay_in_registers() -> None:
    assert all(listed(task, NAME)[0]["kept"] for task in (SOFTMAX, NORM))
    long = workload([(2, 100_000)], step("softmax", 0, axis=1))
    assert not any(one["kept"] for one in listed(long, NAME))


def test_partial_results_are_counted() -> None:
    on, best = gpu(), listed(LARGE_MEAN, NAME)[0]
    for split, sizes in ((best["split"], (3 * 4 * int(best["split"]),)), (1, ())):
        candidate = candidate_of(SPEC, {**best, "split": split}, plain(LARGE_MEAN))
        assert SPEC.workspaces(LARGE_MEAN, candidate, on.target, on.resources).shared == sizes


@pytest.mark.parametrize(
    ("shape", "axis"), [((2**30, 1), 1), ((2**30,), 0), ((65_536, 16_384), 0), ((2**28, 4), 1)]
)
def test_limits_are_kept(shape: tuple[int, ...], axis: int) -> None:
    task = workload([shape], step("reduce_sum", 0, axes=(axis,), keepdims=False))
    limits = gpu().target.limits
    told = facts_on(task, NAME, listed(task, NAME))
    assert (told["parallel_extent"] <= limits.grid[0]).all()
    assert (told["shared_bytes"] <= limits.static_shared_bytes).all()
    assert (told["blocks_per_multiprocessor"] >= 1).all()
    assert np.isfinite(told["estimate_s"]).all()


@pytest.mark.parametrize("task", [SOFTMAX, COLUMNS])
def test_threads_tell_each_other_without_conflicts(task) -> None:
    """Where rows lie side by side, a thread puts the sums of its rows at `thread × vector` and gets
    those of the row's other threads, a group of threads further each. Where a row lies across a
    warp, all lanes get the same word. A vector is moved by as many lanes at once as fill the banks.
    """
    settings = listed(task, NAME)
    assert set(facts_on(task, NAME, settings)["conflicts"]) == {NO_CONFLICTS}
    lanes = np.arange(32)
    for setting in settings if not shares_of(task, plain(task), settings[0]).of.across else ():
        vector = int(setting["vector"])
        groups = int(setting["threads"]) // int(setting["row_threads"])
        within, lane = lanes // vector, lanes % vector
        for first in range(0, 32, 32 // vector):
            thread = first + within
            put, got = thread * vector + lane, thread % groups * vector + lane
            assert turns_of_banks(np.stack([put, got])).tolist() == [1, 1], setting


def test_comparisons_by_hand() -> None:
    """Blocks of eight rows of 100 elements in vectors of four: 32 threads read 128 at once, so that
    some have none; 36 rows leave half of a block empty, 32 do not."""
    setting = dict(threads=256, row_threads=32, vector=4, split=1, kept=0)
    for rows, empty in ((36, 1), (32, 0)):
        task = workload([(rows, 100)], step("softmax", 0, axis=1))
        told = facts_on(task, SPEC.name, [setting])
        assert (told["predicates"][0], told["edge_predicates"][0]) == (1 + empty, 1 + empty)
        summed = workload([(rows, 100)], step("reduce_sum", 0, axes=(1,), keepdims=False))
        told = facts_on(summed, SPEC.name, [setting])
        assert (told["predicates"][0], told["edge_predicates"][0]) == (1 + empty, empty)
