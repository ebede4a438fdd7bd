"""Kernels in tile registers: on a processor that has them, and by a software tile unit anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.in_halves import HALF, check, halved
from helpers.kernels.products_of_codes import products
from helpers.kernels.software_tiles import TILES, in_software
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Placement
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware import probe
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.amx import CODE_UNIT, HALF_UNIT
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments

INTEL = replace(parse_target("llvm -mcpu=sapphirerapids", 2), precision=HALF)
HERE = replace(local_placement(2), precision=HALF)
PLACES = [in_software(), *([HERE] if {*TILES} <= {*HERE.target.features} else [])]
on_each = st.sampled_from(PLACES)
CODES = st.sampled_from(["int8", "uint8"])


def with_constants(data: TensorType, constants: Sequence[TensorType], steps: Sequence[Step]):
    arguments = [Argument(type=data), *(Argument(type=t, role="constant") for t in constants)]
    return Workload(arguments=tuple(arguments), steps=tuple(steps))


def dense(rows: tuple[int, ...], depth: int, columns: int) -> Workload:
    steps = (
        Step(operator="dense", inputs=(0, 1)),
        Step(operator="add", inputs=(3, 2)),
        Step(operator="relu", inputs=(4,)),
    )
    constants = (TensorType((depth, columns)), TensorType((columns,)))
    return with_constants(TensorType((*rows, depth)), constants, steps)


def batched(left: tuple[int, ...], right: tuple[int, ...], transposed: bool) -> Workload:
    """With another tensor of the right's columns added behind."""
    columns = right[-2] if transposed else right[-1]
    shapes = (left, right, (columns,))
    named = attributes(transpose_b=transposed)
    return Workload(
        arguments=tuple(Argument(type=TensorType(shape)) for shape in shapes),
        steps=(
            Step(operator="batch_matmul", inputs=(0, 1), attributes=named),
            Step(operator="add", inputs=(3, 2)),
        ),
    )


def convolution(
    channels: int, filters: int, extents: tuple[int, int], kernel: tuple[int, int], **named: object
) -> Workload:
    given_ = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1, **named}
    groups = int(str(given_["groups"]))
    steps = (
        Step(operator="conv2d", inputs=(0, 1), attributes=attributes(**given_)),
        Step(operator="add", inputs=(3, 2)),
        Step(operator="relu", inputs=(4,)),
    )
    constants = (
        TensorType((filters, channels // groups, *kernel)),
        TensorType((filters, 1, 1)),
    )
    return with_constants(TensorType((1, channels, *extents)), constants, steps)


def in_codes(task: Workload, dtype: str) -> Workload:
    """The bare anchor on codes, and its sums as unsigned ones."""
    weight = replace(task.arguments[1].type, dtype="int8")
    steps = (
        task.steps[0],
        Step(operator="cast", inputs=(2,), attributes=attributes(dtype="float32")),
        Step(operator="clip", inputs=(3,), attributes=attributes(minimum=0.0, maximum=255.0)),
        Step(operator="cast", inputs=(4,), attributes=attributes(dtype="uint8")),
    )
    return with_constants(replace(task.arguments[0].type, dtype=dtype), (weight,), steps)


def check_codes(task: Workload, place: Placement, name: str, forms: tuple[Form, ...], choice: int):
    space = knob_space(implementation(name), task, place.target, place.resources, forms)
    numbers = [*space]
    found = space.settings(numbers[choice % len(numbers)])
    candidate = Candidate(implementation=name, settings=tuple(sorted(found.items())), forms=forms)
    arrays = sample_arguments(task, choice)
    arrays[0].flat[:3] = np.iinfo(arrays[0].dtype).max
    arrays[1].flat[:3] = np.iinfo(arrays[1].dtype).min
    if arrays[1].dtype == np.uint8:
        arrays[-1] = np.int32(128)
    result = build_kernel(task, candidate, place.target, place.resources).run(arrays)
    np.testing.assert_array_equal(result, run_workload(task, arrays), err_msg=str(candidate))


@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(2, 70),
    depth=st.integers(1, 100),
    columns=st.integers(1, 70),
    choice=st.integers(0, 7),
    halves=st.tuples(st.booleans(), st.booleans()),
    leading=st.booleans(),
    place=on_each,
)
def test_dense_layers(
    rows: int,
    depth: int,
    columns: int,
    choice: int,
    halves: tuple[bool, bool],
    leading: bool,
    place: Placement,
) -> None:
    forms = (halved(PLAIN, halves[0]), PLAIN, PLAIN, halved(PLAIN, halves[1]))
    shape = (1, rows) if leading else (rows,)
    check(dense(shape, depth, columns), place, "dense_amx", forms, choice)


@settings(max_examples=8, deadline=None)
@given(
    leading=st.sampled_from([((2, 3), (2, 3)), ((4,), (1,)), ((1, 3), (2, 1))]),
    rows=st.integers(2, 70),
    depth=st.sampled_from([1, 33, 64, 70]),
    columns=st.sampled_from([3, 16, 32, 40, 70]),
    transposed=st.booleans(),
    halves=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    choice=st.integers(0, 3),
    place=on_each,
)
def test_batched_products(
    leading: tuple[tuple[int, ...], tuple[int, ...]],
    rows: int,
    depth: int,
    columns: int,
    transposed: bool,
    halves: tuple[bool, bool, bool],
    choice: int,
    place: Placement,
) -> None:
    matrix = (columns, depth) if transposed else (depth, columns)
    task = batched((*leading[0], rows, depth), (*leading[1], *matrix), transposed)
    left, right, result = (halved(PLAIN, yes) for yes in halves)
    check(task, place, "batch_matmul_amx", (left, right, PLAIN, result), choice)


@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(2, 70),
    depth=st.sampled_from([1, 5, 64, 100, 128]),
    columns=st.integers(1, 70),
    choice=st.integers(0, 1000),
    dtype=CODES,
    place=on_each,
)
def test_dense_layers_of_codes(
    rows: int, depth: int, columns: int, choice: int, dtype: str, place: Placement
) -> None:
    task = in_codes(dense((rows,), depth, columns), dtype)
    check_codes(task, place, "dense_amx_int8", (PLAIN,) * 3, choice)


@settings(max_examples=8, deadline=None)
@given(
    leading=st.sampled_from([((2, 3), (2, 3)), ((4,), (1,)), ((1, 3), (2, 1))]),
    rows=st.integers(2, 40),
    depth=st.sampled_from([1, 33, 64, 70]),
    columns=st.sampled_from([3, 16, 40]),
    transposed=st.booleans(),
    bare=st.booleans(),
    dtypes=st.tuples(CODES, CODES),
    choice=st.integers(0, 3),
    place=on_each,
)
def test_batched_products_of_codes(
    leading: tuple[tuple[int, ...], tuple[int, ...]],
    rows: int,
    depth: int,
    columns: int,
    transposed: bool,
    bare: bool,
    dtypes: tuple[str, str],
    choice: int,
    place: Placement,
) -> None:
    """With a zero point of the right of 128, and what one of the left adds to each row."""
    matrix = (columns, depth) if transposed else (depth, columns)
    shapes = (*leading[0], rows, depth), (*leading[1], *matrix)
    task = products(*shapes, dtypes, transposed=transposed, bare=bare)
    forms = (PLAIN,) * (len(task.arguments) + 1)
    check_codes(task, place, "batch_matmul_amx_int8", forms, choice)


CHANNELS = [1, 3, 6, 8, 16, 24, 32, 48, 64, 70, 128]
geometry: dict[str, st.SearchStrategy[Any]] = {
    "channels": st.sampled_from(CHANNELS),
    "filters": st.sampled_from([5, 16, 24, 27, 32, 48, 64]),
    "extents": st.tuples(st.integers(5, 18), st.integers(5, 19)),
    "kernel": st.tuples(st.integers(1, 3), st.sampled_from([1, 1, 2, 3, 5])),
    "strides": st.tuples(st.integers(1, 2), st.integers(1, 2)),
    "padding": st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    "dilation": st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]),
    "blocks": st.tuples(st.sampled_from([0, 8, 16, 32, 64]), st.sampled_from([0, 16, 32, 64])),
    "choice": st.integers(0, 10_000),
    "place": on_each,
}


def fitting(block: int, channels: int) -> Form:
    return blocked(block) if block and channels % block == 0 else PLAIN


def task_of(drawn: dict[str, Any]) -> Workload | None:
    names = ("channels", "filters", "extents", "kernel")
    more = ("strides", "padding", "dilation")
    high, wide = drawn["extents"]
    (kh, kw), (dh, dw) = drawn["kernel"], drawn["dilation"]
    if (kh - 1) * dh + 1 > high or (kw - 1) * dw + 1 > wide:
        return None
    return convolution(*(drawn[n] for n in names), **{n: drawn[n] for n in more})


@settings(max_examples=18, deadline=None)
@given(drawn=st.fixed_dictionaries(geometry), halves=st.tuples(st.booleans(), st.booleans()))
def test_convolutions(drawn: dict[str, Any], halves: tuple[bool, bool]) -> None:
    task, blocks = task_of(drawn), drawn["blocks"]
    if task is None:
        return
    data, result = fitting(blocks[0], drawn["channels"]), fitting(blocks[1], drawn["filters"])
    forms = (halved(data, halves[0]), PLAIN, PLAIN, halved(result, halves[1]))
    check(task, drawn["place"], "conv2d_amx", forms, drawn["choice"])


@settings(max_examples=18, deadline=None)
@given(drawn=st.fixed_dictionaries(geometry), dtype=CODES)
def test_convolutions_of_codes(drawn: dict[str, Any], dtype: str) -> None:
    task, blocks = task_of(drawn), drawn["blocks"]
    if task is None:
        return
    data, result = fitting(blocks[0], drawn["channels"]), fitting(blocks[1], drawn["filters"])
    forms = (data, PLAIN, result)
    check_codes(in_codes(task, dtype), drawn["place"], "conv2d_amx_int8", forms, drawn["choice"])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("width", "channels"),
    [
        (17, 32),
        (49, 96),
        pytest.param(17, 96, marks=pytest.mark.on_request),
        pytest.param(49, 32, marks=pytest.mark.on_request),
    ],
)
def test_rows_that_tiles_do_not_divide(place: Placement, width: int, channels: int) -> None:
    task = convolution(channels, 64, (1, width), (1, 1))
    line = halved(blocked(32), True)
    for choice in (0, 3, 5):
        check(task, place, "conv2d_amx", (line, PLAIN, PLAIN, line), choice)
        forms = (blocked(32), PLAIN, blocked(64))
        check_codes(in_codes(task, "uint8"), place, "conv2d_amx_int8", forms, choice)


@pytest.mark.parametrize("place", PLACES)
def test_taps_beside_each_other_of_few_channels(place: Placement) -> None:
    """Also of data that lies in the blocks that are multiplied, and has no border."""
    task, block = convolution(8, 16, (5, 6), (1, 2)), blocked(8)
    check(task, place, "conv2d_amx", (halved(block, True), PLAIN, PLAIN, PLAIN), 0)
    check_codes(in_codes(task, "int8"), place, "conv2d_amx_int8", (block, PLAIN, PLAIN), 0)


@pytest.mark.parametrize("place", PLACES)
def test_groups(place: Placement) -> None:
    task = convolution(64, 96, (7, 9), (3, 3), padding=(1,) * 4, groups=2)
    for form in (PLAIN, blocked(16)):
        for choice in range(3):
            check(task, place, "conv2d_amx", (form, PLAIN, PLAIN, form), choice)
            check_codes(
                in_codes(task, "int8"), place, "conv2d_amx_int8", (form, PLAIN, form), choice
            )


@pytest.mark.parametrize(
    ("tile_rows", "block", "products"), [(32, 32, 4), (16, 32, 2), (16, 16, 1)]
)
def test_it_compiles_to_instructions_of_amx(tile_rows: int, block: int, products: int) -> None:
    task, forms = dense((128,), 768, 64), (PLAIN,) * 4
    chosen = {"block": block, "order": "rows", "tile_rows": tile_rows}
    candidate = Candidate(
        implementation="dense_amx", settings=tuple(sorted(chosen.items())), forms=forms
    )
    text = rendered(task, candidate, INTEL.target, INTEL.resources, "asm")
    sums = text.count("\ttilestored")
    assert text.count("\ttdpbf16ps") == sums, "sums stay in registers over an inner loop"
    assert sums % products == 0 and text.count("\ttilezero") == sums
    assert text.count("\tldtilecfg") == text.count("\ttilerelease") == 1


def test_a_convolution_of_codes_compiles_to_one_loop_of_products() -> None:
    task = in_codes(convolution(64, 64, (14, 14), (3, 3), padding=(1,) * 4), "uint8")
    line = blocked(64)
    candidate, _ = default_candidate(task, (line, PLAIN, line), INTEL)
    assert candidate.implementation == "conv2d_amx_int8"
    text = rendered(task, candidate, INTEL.target, INTEL.resources, "asm")
    assert 0 < text.count("\ttdpbusd") == text.count("\ttilestored")
    assert "vpdpbusd" not in text


def test_weights_from_memory_are_fetched_ahead() -> None:
    forms, target = (PLAIN,) * 4, replace(INTEL.target, memory=HERE.target.memory)
    for columns, ahead in ((3072, True), (64, False)):
        task = dense((128,), 768, columns)
        chosen = {"block": 32, "order": "columns", "tile_rows": 32}
        candidate = Candidate(
            implementation="dense_amx", settings=tuple(sorted(chosen.items())), forms=forms
        )
        text = rendered(task, candidate, target, INTEL.resources, "asm")
        assert ("prefetcht1" in text) == ahead


def test_tiles_are_what_computes_by_default_where_they_may() -> None:
    task = convolution(64, 64, (14, 14), (3, 3), padding=(1,) * 4)
    form = halved(blocked(32), True)
    forms = (form, PLAIN, PLAIN, form)
    assert default_candidate(task, forms, INTEL)[0].implementation == "conv2d_amx"
    layer = dense((128,), 768, 768)
    assert default_candidate(layer, (PLAIN,) * 4, INTEL)[0].implementation == "dense_amx"
    product = batched((12, 128, 64), (12, 128, 64), True)
    assert default_candidate(product, (PLAIN,) * 4, INTEL)[0].implementation == "batch_matmul_amx"
    product = products((12, 128, 64), (12, 128, 64), ("uint8", "uint8"), transposed=True)
    found = default_candidate(product, (PLAIN,) * 4, INTEL)[0]
    assert found.implementation == "batch_matmul_amx_int8"
    assert "tdpbusd" in rendered(product, found, INTEL.target, INTEL.resources, "asm")
    codes = in_codes(layer, "uint8")
    assert default_candidate(codes, (PLAIN,) * 3, INTEL)[0].implementation == "dense_amx_int8"
    single = replace(INTEL, precision="float32")
    assert default_candidate(task, (PLAIN,) * 4, single)[0].implementation != "conv2d_amx"


@pytest.mark.parametrize(
    ("task", "order"),
    [
        (convolution(256, 512, (128, 128), (1, 1), strides=(2, 2)), "rows"),
        (convolution(512, 2048, (16, 16), (1, 1)), "channels"),
    ],
)
def test_what_the_second_cache_does_not_keep_is_swept_over_once(task: Workload, order: str) -> None:
    """The first has an image of eight megabytes and weights of a quarter of one."""
    forms = halved(blocked(32), True), PLAIN, PLAIN, halved(blocked(32), True)
    chosen, _ = default_candidate(task, forms, INTEL)
    assert chosen.implementation == "conv2d_amx" and dict(chosen.settings)["order"] == order


def test_dot_products_beside_tiles_are_slow() -> None:
    def rate(cpu: str) -> int:
        return parse_target(f"llvm -mcpu={cpu}", 2).target.operations_per_cycle(HALF, tiles=False)

    assert 4 * rate("sapphirerapids") == rate("znver4")


def test_registers_that_a_process_may_not_use_are_no_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = {
        "processor": "0",
        "flags": "avx512f amx_tile amx_bf16 amx_int8",
        "model name": "an Intel CPU",
    }

    def blocks(_root: object) -> list[dict[str, str]]:
        return [block]

    monkeypatch.setattr(probe, "cpuinfo_blocks", blocks)
    for permitted in (True, False):
        monkeypatch.setattr(probe, "tiles_permitted", lambda permitted=permitted: permitted)
        found = probe.probe_cpu()
        assert ("amx-tile" in found.features) == permitted
        for unit in (HALF_UNIT, CODE_UNIT):
            assert any(each.name == unit for each in found.units) == permitted
    elsewhere = probe.probe_cpu(Path("/nowhere"))
    assert "amx-tile" in elsewhere.features, "of a copy of another machine's files nothing is known"
