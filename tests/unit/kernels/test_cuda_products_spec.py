"""The spec of products of matrices on GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.gpu_kernels import a_gpu, space_of
from helpers.kernels.one_kernel import step, workload
from tilewright.core.records import Candidate
from tilewright.cost.blocks import held
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.product_tiles import product, tiles_of
from tilewright.kernels.cuda.products import SPEC
from tilewright.kernels.estimates import facts
from tilewright.testing.implementations import check_spec, plain, single, some_settings

CONV = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
TASKS = {
    "large dense": single("dense", (4096, 4096), (4096, 4096)),
    "one row": single("dense", (1, 2048), (2048, 1000)),
    "tiny": single("dense", (7, 5), (5, 3)),
    "batched": single("batch_matmul", (12, 128, 64), (12, 128, 64), transpose_b=True),
    "late convolution": single("conv2d", (1, 512, 7, 7), (512, 512, 3, 3), **CONV),
    "huge": single("conv2d", (32, 64, 300, 300), (64, 64, 3, 3), **CONV),
    "depthwise": single("conv2d", (1, 64, 56, 56), (64, 1, 3, 3), **{**CONV, "groups": 64}),
    "transposed": single(
        "conv2d_transpose", (1, 64, 28, 28), (64, 128, 4, 4),
        **{**CONV, "strides": (2, 2), "output_padding": (0, 0)},
    ),
}  # fmt: skip
GPUS = tuple(a_gpu(f"-model={model}") for model in ("T4", "A100", "H100", "4090"))


@pytest.mark.parametrize("name", TASKS)
def test_the_spec_keeps_its_contract(name: str) -> None:
    check_spec(SPEC, TASKS[name], placements=GPUS)


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_keeps_the_limits_of_a_launch(name: str) -> None:
    task = TASKS[name]
    for on in GPUS:
        limits, shape = on.target.limits, product(task)
        space = space_of(SPEC.name, task, on)
        columns = space.columns(space.listed())
        demand = SPEC.demand(task, on.target, on.resources, plain(task), columns)
        main = demand.blocks[0]
        assert (held(main, limits) >= 1).all()
        assert (np.asarray(main.threads) <= limits.block_threads).all()
        assert (np.asarray(main.shared_bytes) <= limits.block_shared_bytes).all()
        assert (np.asarray(main.count) <= limits.grid[0]).all()
        for setting in (columns[0], columns[len(columns) // 2], columns[len(columns) - 1]):
            tiles = tiles_of(shape, lambda name, s=setting: int(s[name]))
            assert tiles.lanes_fast * tiles.lanes_slow == min(32, tiles.threads)
            assert tiles.split * tiles.steps(shape) * tiles.depth >= shape.depth


def test_facts_of_one_setting_by_hand() -> None:
    """A product of 100×60 by 60×70 in tiles of 32×32×16: 4 by 3 blocks of 64 threads; the left
    tile is written across, at a distance of 36 elements, by runs of 8 so that no two lanes meet."""
    task, on = single("dense", (100, 60), (60, 70)), a_gpu()
    setting = dict(
        tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=16, stages=1,
        split=1, by_taps=False,
    )  # fmt: skip
    found = facts(SPEC, task, on.target, on.resources, plain(task), [setting])
    told = {name: float(values[0]) for name, values in found.items()}
    assert told["parallel_extent"] == 12
    assert told["threads"] == 64
    assert told["shared_bytes"] == 4 * 16 * (32 + 36)
    assert told["steps"] == 4
    assert told["waste"] == pytest.approx(12 * 32 * 32 * 64 / (100 * 70 * 60))
    assert told["conflicts"] == 1
    assert told["predicates"] == 4
    # runs of 8 elements of the left matrix, of 32 of the right one, in vectors of 4 and of 2
    assert told["coalesced"] == pytest.approx((2 * 16 + 4 * 8) / 6)


def test_the_order_of_a_depth() -> None:
    """100 channels of nine taps in steps of 16: 57 of whole filters, or 7 times 9 of one tap, which
    find the place in the image once in a step."""
    task, on = single("conv2d", (1, 100, 9, 9), (32, 100, 3, 3), **CONV), a_gpu()
    setting = dict(
        tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=16, stages=1,
        split=1,
    )  # fmt: skip
    known = facts(
        SPEC, task, on.target, on.resources, plain(task),
        [{**setting, "by_taps": by_taps} for by_taps in (False, True)],
    )  # fmt: skip
    assert known["steps"].tolist() == [57, 63]
    assert known["waste"].tolist() == pytest.approx([96 / 81 * 912 / 900, 96 / 81 * 1008 / 900])
    assert known["predicates"][0] == known["predicates"][1] + 4


def test_facts_follow_the_setting() -> None:
    task, on = TASKS["late convolution"], a_gpu()
    space = space_of(SPEC.name, task, on)
    columns = space.columns(space.listed())
    known = facts(SPEC, task, on.target, on.resources, plain(task), columns)
    rows = [dict(one) for one in columns]
    places = {tuple(sorted(row.items())): number for number, row in enumerate(rows)}
    seen = 0
    for number, row in enumerate(rows):
        more = places.get(tuple(sorted({**row, "stages": 2}.items())))
        if row["stages"] == 1 and more is not None:
            seen += 1
            assert known["shared_bytes"][more] == 2 * known["shared_bytes"][number]
            assert known["registers"][more] >= known["registers"][number]
        parts = places.get(tuple(sorted({**row, "split": 2}.items())))
        if row["split"] == 1 and parts is not None:
            assert known["parallel_extent"][parts] == 2 * known["parallel_extent"][number]
            assert known["steps"][parts] <= known["steps"][number]
    assert seen > 100


def test_few_tiles_share_a_depth() -> None:
    """Where the default's tiles would leave most multiprocessors idle, it splits the depth."""
    for name, several in (("late convolution", True), ("large dense", False)):
        task, on = TASKS[name], a_gpu()
        space = space_of(SPEC.name, task, on)
        columns = space.columns(space.listed())
        known = facts(SPEC, task, on.target, on.resources, plain(task), columns)
        best = columns[int(np.argmin(known["estimate_s"]))]
        assert (int(best["split"]) > 1) == several, best


def test_the_sums_of_parts_are_a_workspace() -> None:
    task, on = TASKS["one row"], a_gpu()
    for setting in some_settings(space_of(SPEC.name, task, on), 20):
        candidate = Candidate(
            implementation=SPEC.name, settings=tuple(setting.items()), forms=plain(task)
        )
        taken = SPEC.workspaces(task, candidate, on.target, on.resources).shared
        split = int(setting["split"])
        assert taken == ((4 * split * 1000,) if split > 1 else ())


@pytest.mark.parametrize(
    "task",
    [
        single("dense", TensorType((4, 4), "float64"), TensorType((4, 4), "float64")),
        single("dense", TensorType((2**16, 2**15), "float32"), (2**15, 8)),
        workload([(4, 6), (6, 5)], step("dense", 0, 1), step("transpose", 2, permutation=(1, 0))),
    ],
    ids=["double precision", "positions beyond 32 bits", "a movement behind it"],
)
def test_what_it_does_not_take(task: Workload) -> None:
    on = a_gpu()
    assert not SPEC.applies(task, on.target, on.resources)
