"""The spec of products of matrices on the matrix units of GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.gpu_kernels import a_gpu, space_of
from tilewright.cost.blocks import held
from tilewright.cost.floors import datasheet_peaks, floor_s, least_work
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.product_tiles import product
from tilewright.kernels.cuda.tf32_products import COLUMNS, DEPTH, LANES_FAST, SPEC
from tilewright.kernels.estimates import facts, task_floor_s, work_of
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.measure.checking import relative_error, sample_arguments
from tilewright.testing.implementations import check_spec, plain, single, some_settings

CONV = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
TASKS = {
    "large dense": single("dense", (4096, 4096), (4096, 4096)),
    "one row": single("dense", (1, 2048), (2048, 1000)),
    "tiny": single("dense", (7, 5), (5, 3)),
    "batched": single("batch_matmul", (12, 128, 64), (12, 128, 64), transpose_b=True),
    "late convolution": single("conv2d", (1, 512, 7, 7), (512, 512, 3, 3), **CONV),
    "huge": single("conv2d", (32, 64, 300, 300), (64, 64, 3, 3), **CONV),
    "grouped": single("conv2d", (1, 64, 56, 56), (64, 8, 3, 3), **{**CONV, "groups": 8}),
    "transposed": single(
        "conv2d_transpose", (1, 64, 28, 28), (64, 128, 4, 4),
        **{**CONV, "strides": (2, 2), "output_padding": (0, 0)},
    ),
}  # fmt: skip
GPUS = tuple(a_gpu(f"-model={model}") for model in ("A100", "H100", "4090"))
ONE = dict(
    tile_rows=32, tile_columns=32, warp_rows=16, warp_columns=32, tile_depth=16, stages=1, split=1,
    by_taps=False,
)  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_the_spec_keeps_its_contract(name: str) -> None:
    check_spec(SPEC, TASKS[name], placements=GPUS)


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_keeps_the_limits_of_a_launch(name: str) -> None:
    task = TASKS[name]
    for on in GPUS:
        limits = on.target.limits
        space = space_of(SPEC.name, task, on)
        columns = space.columns(space.listed())
        main = SPEC.demand(task, on.target, on.resources, plain(task), columns).blocks[0]
        assert (held(main, limits) >= 1).all()
        assert (np.asarray(main.threads) % limits.warp == 0).all()
        assert (np.asarray(main.threads) <= limits.block_threads).all()
        assert (np.asarray(main.shared_bytes) <= limits.block_shared_bytes).all()
        assert (np.asarray(main.count) <= limits.grid[0]).all()


def test_facts_of_one_setting_by_hand() -> None:
    """A product of 100×60 by 60×70 in tiles of 32×32×16: 4 by 3 blocks of two warps, each of which
    multiplies 16 rows by 32 columns by four instructions for each of two depths."""
    task, on = single("dense", (100, 60), (60, 70)), a_gpu()
    told = {
        name: float(values[0])
        for name, values in facts(
            SPEC, task, on.target, on.resources, plain(task), [ONE]
        ).items()
    }  # fmt: skip
    assert told["parallel_extent"] == 12
    assert told["threads"] == 64
    assert told["shared_bytes"] == 4 * 16 * (36 + 36)
    assert told["steps"] == 4
    assert told["waste"] == pytest.approx(12 * 32 * 32 * 64 / (100 * 70 * 60))
    blocks = SPEC.demand(task, on.target, on.resources, plain(task), [ONE]).blocks[0]
    assert np.asarray(blocks.operations).item() == 2 * 32 * 32 * 64
    assert blocks.element == "tf32"
    tiles = SPEC.tiles(product(task), lambda name: np.array([int(ONE[name])]))
    assert SPEC.arithmetic.issued(tiles).item() == 2 * (4 + 4 * 2 + 2)
    # four fragments of columns in two registers, one of rows in four, which are read in pairs
    assert SPEC.arithmetic.lines(tiles).item() == 2 * (4 * 2 + 4)


@pytest.mark.parametrize("extent", [8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("own", [1, 2])
def test_fragments_are_read_without_conflicts(extent: int, own: int) -> None:
    """At either half of a depth of eight, lanes that read at the same time, all of them or, in
    pairs, half of them, read from 32 banks."""
    task = TASKS["large dense"]
    tiles = SPEC.tiles(
        product(task), lambda name: extent if name.startswith("tile") else int(ONE[name])
    )
    (pitch, _), lane = tiles.pitches(product(task)), np.arange(32 // own)
    for half in (0, 1):
        words = (lane % LANES_FAST * 2 + half) * pitch + lane // LANES_FAST * own
        banks = {int(word + each) % 32 for word in words for each in range(own)}
        assert len(banks) == 32


@pytest.mark.parametrize(("max_error", "taken"), [(1e-4, False), (5e-4, False), (2e-3, True)])
def test_it_competes_where_its_error_is_allowed(max_error: float, taken: bool) -> None:
    for name in ("large dense", "batched"):
        task, on = TASKS[name], a_gpu()
        chosen = default_candidate(task, plain(task), on, max_error)[0].implementation
        assert (chosen == SPEC.name) == taken
        unasked = {space.spec.name for space in spaces(task, plain(task), on)}
        assert SPEC.name not in unasked
        assert default_candidate(task, plain(task), on)[0].implementation != SPEC.name


@pytest.mark.parametrize("name", ["large dense", "late convolution", "huge"])
def test_the_matrix_units_are_expected_to_be_faster(name: str) -> None:
    task = TASKS[name]
    for on in GPUS[:2]:
        times = [
            default_candidate(task, plain(task), on, limit)[1] for limit in (1e-4, 2e-3)
        ]  # fmt: skip
        assert times[1] < times[0]


def test_its_floor_is_that_of_the_matrix_units() -> None:
    """As a floor of the task it counts where its error is allowed."""
    task, on = TASKS["large dense"], a_gpu("-model=A100")
    peaks, place = datasheet_peaks(on.target), (on.target, on.resources)
    plain_s = float(floor_s(least_work(task, on.target), peaks))
    own_s = float(floor_s(work_of(task, SPEC.name, on.target), peaks))
    assert plain_s == pytest.approx(own_s * 1024 / 128)
    assert task_floor_s(task, *place, peaks, 1e-4) == plain_s
    assert task_floor_s(task, *place, peaks, 2e-3) == own_s
    assert default_candidate(task, plain(task), on, 2e-3)[1] > own_s
    turing = a_gpu("-model=T4").target
    assert work_of(task, SPEC.name, turing) == least_work(task, turing)


def test_facts_follow_the_setting() -> None:
    task, on = TASKS["late convolution"], a_gpu()
    found = some_settings(space_of(SPEC.name, task, on), 200)
    known = facts(SPEC, task, on.target, on.resources, plain(task), found)
    for number, row in enumerate(found):
        warps = row["tile_rows"] * row["tile_columns"] // (row["warp_rows"] * row["warp_columns"])
        assert known["threads"][number] == 32 * warps
        assert known["shared_bytes"][number] == 4 * row["stages"] * row["tile_depth"] * (
            row["tile_rows"] + row["tile_columns"] + 8
        )


def rounded(values: np.ndarray) -> np.ndarray:
    """To ten bits behind the point, halves away from zero."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def cut_off(values: np.ndarray) -> np.ndarray:
    """Double precision to single, towards zero."""
    near = values.astype(np.float32)
    return np.where(np.abs(near) > np.abs(values), np.nextafter(near, np.float32(0)), near)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 700), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_the_bound_holds_for_simulated_rounding(
    rows: int, depth: int, columns: int, seed: int, positive: bool
) -> None:
    """Factors rounded as the GPU does, sums cut off to single precision every eight terms, against
    double precision; with positive factors nothing cancels."""
    task = single("dense", (rows, depth), (depth, columns))
    x, w = (np.abs(it) if positive else it for it in sample_arguments(task, seed))
    sums = np.zeros((rows, columns), np.float32)
    for k in range(0, depth, DEPTH):
        parts = rounded(x[:, k : k + DEPTH]).astype(np.float64) @ rounded(w[k : k + DEPTH])
        sums = cut_off(sums + parts)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    scale = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64)
    assert relative_error(sums, exact, scale) <= SPEC.error_bound(task)


def test_the_bound_is_near_what_can_happen() -> None:
    """Factors half-way between two neighbours of ten bits are rounded by as much as there is."""
    task = single("dense", (1, 8), (8, 1))
    x = np.full(8, 1 + 2.0**-11, np.float32)
    exact, scale = np.float64(x) @ np.float64(x), np.float64(x) @ np.float64(x)
    error = abs(np.float64(rounded(x)) @ rounded(x) - exact) / scale
    assert 0.9 * SPEC.error_bound(task) < error <= SPEC.error_bound(task)


@pytest.mark.parametrize(
    ("task", "described"),
    [
        (single("dense", TensorType((16, 16), "float16"), TensorType((16, 16), "float16")), "H100"),
        (TASKS["large dense"], "T4"),
        (TASKS["large dense"], "V100"),
    ],
    ids=["halves", "Turing", "Volta"],
)
def test_what_it_does_not_take(task: Workload, described: str) -> None:
    on = a_gpu(f"-model={described}")
    assert not SPEC.applies(task, on.target, on.resources)


def test_rates_are_those_of_datasheets() -> None:
    """An A100's: 1,024 multiplications and additions in a cycle, 156 TFLOP/s."""
    target = a_gpu("-model=A100").target
    assert target.operations_per_cycle("tf32") == 1024
    assert target.limits.warp == COLUMNS * LANES_FAST
    assert target.operations_per_cycle("tf32") * target.cores * target.clock_hz == pytest.approx(
        156e12, rel=0.01
    )
    assert a_gpu("-arch=sm_120").target.unit("tf32") is not None
    assert a_gpu("-model=T4").target.unit("tf32") is None
