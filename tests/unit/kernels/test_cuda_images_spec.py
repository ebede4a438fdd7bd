"""Specs of kernels for GPUs where the channels of images lie innermost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_images import (
    image_convolution,
    image_transposed,
    network_task,
    offered,
)
from helpers.kernels.gpu_kernels import a_gpu, space_of
from helpers.kernels.one_kernel import step
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.cost.blocks import held
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda import rows, stream, windows
from tilewright.kernels.cuda.images import image_ports, in_memory, moving_ports
from tilewright.kernels.cuda.product_tiles import product
from tilewright.kernels.cuda.products import SPEC
from tilewright.kernels.estimates import facts
from tilewright.kernels.ports import Ports
from tilewright.measure.checking import numpy_reference
from tilewright.testing.implementations import (
    check_demand,
    check_packing,
    check_promises,
    check_space,
    plain,
    single,
)

LAST = CHANNELS_LAST
GPUS = tuple(a_gpu(f"-model={model}") for model in ("T4", "H100"))
TASKS = {
    "first": image_convolution((1, 3, 225, 225), 32, (7, 7)),
    "middle": image_convolution((1, 64, 56, 56), 64, padding=(1,) * 4),
    "groups": image_convolution((8, 64, 14, 14), 64, padding=(1,) * 4, groups=4),
    "huge": image_convolution((32, 64, 300, 300), 64, padding=(1,) * 4),
    "filters that are computed": image_convolution((1, 24, 9, 9), 16, packed=False),
    "transposed": image_transposed((1, 64, 28, 28), 128, (4, 4), strides=(2, 2)),
    "transposed, computed": image_transposed((2, 12, 9, 7), 6, groups=2, packed=False),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_spec_keeps_its_contract_in_every_form(name: str) -> None:
    task = TASKS[name]
    check_promises(SPEC, task, GPUS[1])
    for forms in offered(SPEC.name, task):
        check_space(SPEC, task, GPUS[1], forms)
        check_demand(SPEC, task, GPUS[1], forms)
        check_packing(SPEC, task, GPUS[1], forms)


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_keeps_the_limits_of_a_launch(name: str) -> None:
    task = TASKS[name]
    for on in GPUS:
        limits = on.target.limits
        for forms in offered(SPEC.name, task):
            space = space_of(SPEC.name, task, on, forms)
            columns = space.columns(space.listed())
            demand = SPEC.demand(task, on.target, on.resources, forms, columns)
            main = demand.blocks[0]
            assert (held(main, limits) >= 1).all()
            assert (np.asarray(main.threads) <= limits.block_threads).all()
            assert (np.asarray(main.shared_bytes) <= limits.block_shared_bytes).all()
            assert (np.asarray(main.count) <= limits.grid[0]).all()


def test_ports_of_a_convolution_with_a_residual() -> None:
    """Image, filters, bias, residual, result: alike first, then read in one form and written in the
    other."""
    task = TASKS["middle"]
    assert image_ports(task) == (
        (PLAIN, PLAIN, PLAIN, PLAIN, PLAIN),
        (LAST, PLAIN, PLAIN, LAST, LAST),
        (PLAIN, PLAIN, PLAIN, LAST, LAST),
        (LAST, PLAIN, PLAIN, PLAIN, PLAIN),
    )


CONV = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)


@pytest.mark.parametrize(
    ("task", "read", "written"),
    [
        (single("conv2d", (1, 1, 9, 9), (4, 1, 3, 3), **CONV), {PLAIN}, {PLAIN, LAST}),
        (single("conv2d", (1, 8, 1, 1), (4, 8, 1, 1), **CONV), {PLAIN}, {PLAIN}),
        (
            network_task(
                [(1, 9, 9, 4), (8, 4, 3, 3)],
                (1,),
                step("transpose", 0, permutation=(0, 3, 1, 2)),
                step("conv2d", 2, 1, **CONV),
            ),
            {PLAIN},
            {PLAIN, LAST},
        ),
        (
            network_task(
                [(1, 4, 9, 9), (1, 4, 1, 1), (8, 4, 3, 3)],
                (2,),
                step("multiply", 0, 1),
                step("conv2d", 3, 2, **CONV),
            ),
            {PLAIN, LAST},
            {PLAIN, LAST},
        ),
    ],
    ids=["one channel", "one pixel", "an image that is turned before", "a gate before"],
)
def test_forms_that_make_a_difference(
    task: Workload, read: set[object], written: set[object]
) -> None:
    ports = image_ports(task)
    assert {forms[0] for forms in ports} == read
    assert {forms[-1] for forms in ports} == written
    assert all(form == PLAIN for forms in ports for form in forms[1:-1])


def told(task: Workload, forms: Ports, **setting: object) -> dict[str, float]:
    tiles = dict(
        tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=16, stages=1,
        split=1, by_taps=False,
    )  # fmt: skip
    on = a_gpu()
    found = facts(SPEC, task, on.target, on.resources, forms, [{**tiles, **setting}])
    return {name: float(values[0]) for name, values in found.items()}


def test_facts_with_channels_last_by_hand() -> None:
    """3×3 over 64 channels at 10×10, padded. Channels last, a thread reads four channels at once, a
    warp sixteen whole sectors of either operand; plain, single pixels of rows of ten, and filters
    in vectors along their taps. Four comparisons with the borders stand before a pixel."""
    task = image_convolution((1, 64, 10, 10), 32, padding=(1,) * 4)
    last, rows = image_ports(task)[1], plain(task)
    shape = product(task, last)
    assert (shape.rows, shape.columns, shape.depth) == (100, 32, 576)
    assert (shape.left.vector, shape.right.vector, shape.along_rows) == (4, 4, False)
    known, before = told(task, last), told(task, rows)
    assert known["coalesced"] == 16
    assert before["coalesced"] > 3.2
    assert known["predicates"] == before["predicates"] == 1 + 4
    assert known["conflicts"] == 1
    assert known["instructions"] < 0.9 * before["instructions"]
    assert told(task, last, by_taps=True)["predicates"] == known["predicates"] - 4


def test_facts_of_a_transposed_convolution_by_hand() -> None:
    """4×4 over 64 channels at stride 2: four phases of 2×2 taps. Channels last, a warp reads four
    channels of sixteen sectors of either operand, and writes four of them; plain, single pixels of
    rows of ten, and filters one by one."""
    task = image_transposed((1, 64, 9, 9), 32, (4, 4), strides=(2, 2))
    last, rows = image_ports(task)[1], plain(task)
    shape, before = product(task, last), product(task, rows)
    assert (shape.batch, shape.rows, shape.columns, shape.depth) == (4, 100, 32, 256)
    assert (shape.left.vector, shape.right.vector, shape.vector) == (4, 4, 4)
    assert (before.left.vector, before.right.vector, before.vector) == (1, 1, 1)
    assert (shape.left.line, shape.along_rows, shape.taps_outside) == (64, False, True)
    assert told(task, last)["coalesced"] == 16
    assert told(task, last)["instructions"] < 0.7 * told(task, rows)["instructions"]
    assert told(task, last, by_taps=True)["predicates"] == told(task, last)["predicates"] - 4


def test_lines_of_few_channels_go_on_with_the_next_tap() -> None:
    """Three channels of seven taps across are 21 elements side by side; where taps are apart, or
    channels in groups, three are."""
    sizes: dict[str, int] = {}
    for name, named in {
        "beside": {},
        "apart": {"dilation": (1, 2)},
        "in groups": {"groups": 2},
    }.items():
        channels = 6 if name == "in groups" else 3
        task = image_convolution((1, channels, 40, 40), 32, (7, 7), **named)
        sizes[name] = product(task, image_ports(task)[1]).left.line
    assert sizes == {"beside": 21, "apart": 3, "in groups": 3}


def test_filters_are_packed_where_they_are_known_and_read_once() -> None:
    task = TASKS["middle"]
    forms = image_ports(task)[1]
    assert product(task, forms).right.along_depth is False
    free = image_convolution((1, 64, 56, 56), 64, padding=(1,) * 4, packed=False)
    assert product(free, image_ports(free)[1]).right.along_depth is True
    assert product(task).right.along_depth is True


def test_the_default_reads_fewer_instructions_where_channels_are_last() -> None:
    """The best estimates of the four ports of a usual layer: the model tells them apart."""
    task, on = TASKS["middle"], a_gpu()
    best: dict[Ports, float] = {}
    for forms in image_ports(task):
        space = space_of(SPEC.name, task, on, forms)
        columns = space.columns(space.listed())
        known = facts(SPEC, task, on.target, on.resources, forms, columns)
        best[forms] = float(known["estimate_s"].min())
    plainest, last, *mixed = (best[forms] for forms in image_ports(task))
    assert last < plainest
    assert min(mixed) <= plainest


IMAGE = (2, 6, 5, 7)


def test_a_workload_as_its_tensors_lie() -> None:
    """relu(x) of NHWC is a transposition, the function, and the transposition back."""
    task = single("relu", IMAGE)
    there = in_memory(task, (LAST, LAST))
    assert there.arguments[0].type.shape == there.result.shape == (2, 5, 7, 6)
    assert [each.operator for each in there.steps] == ["transpose", "relu", "transpose"]
    assert in_memory(task, plain(task)) is task


@given(st.integers(0, 3), st.integers(0, 2))
@settings(max_examples=12, deadline=None)
def test_it_computes_the_same(number: int, draw: int) -> None:
    task = network_task(
        [IMAGE, (2, 6, 1, 1), (6, 1, 1)], (2,), step("multiply", 0, 1), step("add", 3, 2)
    )
    forms = moving_ports(task)[number]
    rng = np.random.default_rng(draw)
    arrays = [rng.standard_normal(each.type.shape).astype(np.float32) for each in task.arguments]
    turned = [to_physical(array, form) for array, form in zip(arrays, forms, strict=False)]
    expected, _ = numpy_reference(task, arrays)
    found, _ = numpy_reference(in_memory(task, forms), turned)
    np.testing.assert_array_equal(to_logical(found, forms[-1], task.result.shape), expected)


@pytest.mark.parametrize("name", ["concat", "relu", "identity"])
def test_streams_keep_their_contract_in_every_form(name: str) -> None:
    steps = {"concat": step("concat", 0, 1, axis=1)}
    task = network_task([IMAGE, IMAGE], (), steps.get(name, step("add", 0, 1)))
    if name == "identity":
        task = single("identity", (1, 64, 28, 28))
    check_promises(stream.SPEC, task, GPUS[1])
    for forms in offered("cuda_stream", task):
        check_space(stream.SPEC, task, GPUS[1], forms)
        check_demand(stream.SPEC, task, GPUS[1], forms)


def streamed(task: Workload, forms: Ports, **setting: int) -> dict[str, float]:
    on = a_gpu()
    chosen = {"threads": 256, "vector": 1, "vectors": 1, "tiled": 0, **setting}
    found = facts(stream.SPEC, task, on.target, on.resources, forms, [chosen])
    return {name: float(values[0]) for name, values in found.items()}


def test_a_conversion_is_a_transposition() -> None:
    """Alike, a warp reads four sectors; from one order to the other 32, unless a block turns a tile
    in shared memory."""
    task = single("identity", (1, 64, 56, 56))
    assert streamed(task, (LAST, LAST))["sectors_per_request"] == 4
    assert streamed(task, (PLAIN, LAST))["sectors_per_request"] == 32
    assert streamed(task, (LAST, PLAIN))["sectors_per_request"] == 32
    tiled = streamed(task, (PLAIN, LAST), tiled=1, vectors=4)
    assert tiled["sectors_per_request"] < 8 and tiled["shared_bytes"] > 0


POOL = dict(kernel=(3, 3), strides=(2, 2), padding=(1,) * 4, dilation=(1, 1))
WINDOWS = {
    "pooling": single("max_pool2d", (1, 64, 56, 56), **POOL),
    "an image": single(
        "avg_pool2d", (8, 512, 7, 7), count_include_pad=False,
        **{**POOL, "kernel": (7, 7), "padding": (0,) * 4},
    ),
    "depthwise": single(
        "conv2d", (1, 64, 16, 16), (64, 1, 3, 3), constants=(1,),
        **{**CONV, "groups": 64, "padding": (1,) * 4},
    ),
    "two filters a channel": single(
        "conv2d", (1, 5, 16, 16), (10, 1, 3, 3), **{**CONV, "groups": 5}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_keep_their_contract_in_every_form(name: str) -> None:
    task = WINDOWS[name]
    check_promises(windows.SPEC, task, GPUS[1])
    assert len(offered("cuda_window", task)) == 2
    for forms in offered("cuda_window", task):
        check_space(windows.SPEC, task, GPUS[1], forms)
        check_demand(windows.SPEC, task, GPUS[1], forms)
        check_packing(windows.SPEC, task, GPUS[1], forms)


def test_windows_are_read_and_written_in_one_form() -> None:
    """Of an image whose result is one pixel, that has no other order, channels may be last."""
    assert (LAST, PLAIN) in offered("cuda_window", WINDOWS["an image"])
    pool, on = WINDOWS["pooling"], a_gpu()
    assert offered("cuda_window", pool) == ((PLAIN, PLAIN), (LAST, LAST))
    assert not len(space_of("cuda_window", pool, on, (PLAIN, LAST)).listed())


def test_facts_of_windows_of_channels_by_hand() -> None:
    """Rectangles of 2×2 results and four of 64 channels: 8 × 8 × 16 threads; a warp's load is that
    of two pixels, 256 bytes each, of which a result reads 4 × 4 for its four."""
    task, on = WINDOWS["depthwise"], a_gpu()
    forms = offered("cuda_window", task)[-1]
    setting = dict(threads=64, rows=2, columns=2, channels=4)
    told = facts(windows.SPEC, task, on.target, on.resources, forms, [setting])
    assert told["parallel_extent"][0] == 8 * 8 * 16 / 64
    assert told["lines_per_load"][0] == 4
    assert told["loads_per_result"][0] == 1
    assert told["elements_per_thread"][0] == 16


ROWS = {
    "a mean": single("reduce_mean", (8, 512, 7, 7), axes=(2, 3), keepdims=False),
    "a softmax": single("softmax", (1, 21, 33, 33), axis=1),
    "instances": single("instance_norm", (1, 32, 28, 28), (32,), (32,), epsilon=1e-5),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_images_keep_their_contract_in_every_form(name: str) -> None:
    task = ROWS[name]
    check_promises(rows.SPEC, task, GPUS[1])
    assert offered("cuda_rows", task)[-1][0] == LAST
    for forms in offered("cuda_rows", task):
        check_space(rows.SPEC, task, GPUS[1], forms)
        check_demand(rows.SPEC, task, GPUS[1], forms)


def test_rows_lie_side_by_side_where_channels_are_last() -> None:
    """The mean of each channel: neighbouring threads have neighbouring channels, whole sectors of
    them; row by row they read neighbours of a plane. Of a softmax over channels it is the other way
    round."""
    known = {
        name: [rows.rows_of(ROWS[name], forms).across for forms in offered("cuda_rows", ROWS[name])]
        for name in ("a mean", "a softmax")
    }
    assert known == {"a mean": [True, False], "a softmax": [False, True]}
    setting = dict(threads=64, row_threads=2, vector=4, split=1, kept=0)
    on, task = a_gpu(), ROWS["a mean"]
    last = offered("cuda_rows", task)[-1]
    told = facts(rows.SPEC, task, on.target, on.resources, last, [setting])
    assert told["sectors_per_request"][0] < 17
