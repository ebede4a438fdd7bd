"""Direct convolutions against numpy."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.kernels.convolutions import Pair, conv, forms_for
from helpers.kernels.one_kernel import PLACEMENT, all_settings
from helpers.kernels.packed_kernel import check_kernel, choose, kernel_error
from tilewright.compiler.build import rendered
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.kernels.conv2d_direct import SPEC


def block_or_plain(block: int, channels: int) -> Form:
    return blocked(block) if block and channels % block == 0 else PLAIN


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize("epilogue", ["", "bru"])
def test_whole_registers_of_channels_that_nothing_divides(kernel: Pair, epilogue: str) -> None:
    filters = 4 * PLACEMENT.target.lanes("float32") + 5
    task = conv((1, 16, 12, 11), filters, kernel, epilogue, padding=(kernel[0] // 2,) * 4)
    for data in (PLAIN, blocked(8)):
        forms = forms_for(task, data, PLAIN)
        assert choose(task, SPEC, forms, None)["lanes"] == PLACEMENT.target.lanes("float32")
        check_kernel(task, SPEC, forms)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([3, 4, 8, 12]),
    filters=st.sampled_from([4, 6, 8, 10, 16]),
    extents=st.tuples(st.integers(5, 17), st.integers(5, 17)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    dilation=st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 1)]),
    blocks=st.tuples(st.sampled_from([0, 3, 4, 8]), st.sampled_from([0, 2, 4, 5, 8, 16])),
    epilogue=st.sampled_from(["", "b", "bu", "bru", "ru"]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_geometries(
    channels, filters, extents, kernel, strides, padding, dilation, blocks, epilogue, choice
):
    task = conv(
        (1, channels, *extents), filters, kernel, epilogue,
        strides=strides, padding=padding, dilation=dilation,
    )  # fmt: skip
    data, result = block_or_plain(blocks[0], channels), block_or_plain(blocks[1], filters)
    check_kernel(task, SPEC, forms_for(task, data, result), choice)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    groups=st.sampled_from([1, 1, 4]),
    length=st.integers(40, 130),
    kernel=st.integers(1, 33),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    blocks=st.tuples(st.sampled_from([0, 8]), st.sampled_from([0, 8])),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_signals(groups, length, kernel, stride, dilation, padding, blocks, choice):
    """Convolutions of one axis come with a plane of one row."""
    kernel = min(kernel, length // dilation)
    task = conv(
        (1, 8 * groups, 1, length), 8 * groups, (1, kernel), "bu", groups=groups,
        strides=(1, stride), dilation=(1, dilation), padding=(0, padding[0], 0, padding[1]),
    )  # fmt: skip
    data, result = (block_or_plain(block, 8) for block in blocks)
    check_kernel(task, SPEC, forms_for(task, data, result), choice)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    groups=st.sampled_from([2, 3, 4]),
    inside=st.sampled_from([1, 2, 4]),
    outside=st.sampled_from([2, 4, 6]),
    batch=st.integers(1, 2),
    blocked_data=st.booleans(),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_groups(groups, inside, outside, batch, blocked_data, choice):
    task = conv(
        (batch, groups * inside, 7, 9), groups * outside, (3, 3), "bu",
        padding=(1, 1, 1, 1), groups=groups,
    )  # fmt: skip
    data = blocked(inside) if blocked_data else PLAIN
    check_kernel(task, SPEC, forms_for(task, data, blocked(outside)), choice)


@pytest.mark.parametrize("choice", [None, 7, 101, 1003, 5021])
@pytest.mark.parametrize(("outside", "kernel"), [(9, 1), (21, 1), (17, 3)])
def test_groups_of_channels_that_nothing_divides(outside: int, kernel: int, choice) -> None:
    """Whole registers within each group, and nothing of what lies beyond its last channel."""
    task = conv(
        (2, 3 * 4, 7, 9), 3 * outside, (kernel, kernel), "bru",
        padding=(kernel // 2,) * 4, groups=3,
    )  # fmt: skip
    assert outside % PLACEMENT.target.lanes("float32")
    for data in (PLAIN, blocked(4)):
        forms = forms_for(task, data, PLAIN)
        lanes = {s["lanes"] for s in all_settings(task, SPEC.name, forms)}
        assert PLACEMENT.target.lanes("float32") in lanes
        check_kernel(task, SPEC, forms, choice)


@pytest.mark.parametrize("extent", [149, 73, 35, 17, 7])
def test_extents_without_good_divisors(extent: int):
    task = conv((1, 4, 7, extent), 8, (3, 3), "bu", padding=(1, 1, 1, 1))
    check_kernel(task, SPEC, forms_for(task, blocked(4), blocked(8)))


@pytest.mark.parametrize("extent", [149, 73, 17])
def test_collapsed_rows_of_pointwise_convolutions(extent: int):
    task = conv((1, 8, 1, extent), 16, (1, 1), "bru")
    check_kernel(task, SPEC, forms_for(task, blocked(8), blocked(16)))


def test_every_tile_that_does_not_divide_the_plane():
    task = conv((1, 4, 7, 11), 8, padding=(1, 1, 1, 1))
    forms = (blocked(4), PLAIN, blocked(8))
    odd = [
        s for s in all_settings(task, SPEC.name, forms)
        if 11 % int(s["tile_width"]) or 7 % int(s["tile_height"])
    ]  # fmt: skip
    assert odd
    for chosen in odd[:: max(1, len(odd) // 6)]:
        assert kernel_error(task, SPEC, forms, chosen) <= SPEC.error_bound(task)


@pytest.mark.parametrize("result", [PLAIN, blocked(8)])
@pytest.mark.parametrize("kernel", [(7, 7), (3, 3)])
def test_first_layers(kernel: Pair, result: Form):
    pad = kernel[0] // 2
    task = conv((1, 3, 19, 21), 8, kernel, "bu", strides=(2, 2), padding=(pad,) * 4)
    check_kernel(task, SPEC, forms_for(task, PLAIN, result))


LAYERS = {
    "padded": (conv((1, 16, 9, 11), 16, (3, 3), "bru", padding=(1, 1, 1, 1)), 8, 8),
    "strided": (conv((1, 16, 13, 11), 8, (3, 3), "bu", padding=(1, 1, 1, 1), strides=(2, 2)), 8, 8),
    "grouped": (
        conv((1, 16, 9, 9), 16, (3, 3), "b", padding=(2,) * 4, dilation=(2, 2), groups=2), 8, 4,
    ),
    "plain": (conv((1, 16, 8, 9), 16, (3, 3), "bu", padding=(1, 1, 1, 1)), 0, 8),
    "cached": (conv((1, 128, 6, 7), 8, (3, 3), "ru", padding=(1, 1, 1, 1)), 8, 8),
    "pointwise": (conv((1, 1152, 1, 24), 8, (1, 1), "bru"), 16, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_every_value_of_every_knob(name: str):
    """A few settings that together hold every value of the knobs beside the tile."""
    task, data, result = LAYERS[name]
    forms = forms_for(task, block_or_plain(data, 1024), block_or_plain(result, 1024))
    found = all_settings(task, SPEC.name, forms)
    knobs = ("order", "in_block", "reduce_order", "unroll", "padding", "cache_chunks")
    missing = {(knob, s[knob]) for s in found for knob in knobs}
    assert ("cache_chunks", 0) in missing
    assert name not in ("cached", "pointwise") or len({s["cache_chunks"] for s in found}) > 1
    rng = random.Random(0)
    drawn = rng.sample(found, min(len(found), 200))
    while missing:
        drawn = drawn or rng.sample(found, min(len(found), 200))
        chosen = max(drawn, key=lambda s: len({(k, s[k]) for k in knobs} & missing))
        drawn.remove(chosen)
        missing -= {(knob, chosen[knob]) for knob in knobs}
        error = kernel_error(task, SPEC, forms, chosen)
        assert error <= SPEC.error_bound(task), chosen


def test_sums_stay_in_registers():
    """No setting that the spec prefers may keep its accumulators in memory."""
    task = conv((1, 32, 14, 14), 32, (3, 3), "bu", padding=(1, 1, 1, 1))
    forms = forms_for(task, blocked(8), blocked(8))
    wide = {"kind": "llvm", "mcpu": "haswell"}
    placement = altered(PLACEMENT, tvm=json.dumps(wide))
    chosen = choose(task, SPEC, forms, None)
    settings_ = tuple(chosen.items())
    candidate = Candidate(implementation=SPEC.name, settings=settings_, forms=forms)
    blocks = re.split(
        r"\n(?=\.L\w+:)", rendered(task, candidate, placement.target, placement.resources, "asm")
    )
    inner = max(blocks, key=lambda block: block.count("vfmadd"))
    stores = len(re.findall(r"vmov\w+\s+%ymm\d+, \d*\(%rsp\)", inner))
    assert inner.count("vfmadd") > 8
    assert stores * 8 <= inner.count("vfmadd"), "stores to the stack between multiply-adds"


@pytest.mark.parametrize(("width", "out"), [(14, 2), (9, 3), (6, 4)])
def test_large_tiles_stay_in_the_registers_of_avx512(width: int, out: int) -> None:
    target = json.dumps({"kind": "llvm", "mcpu": "skylake-avx512"})
    placement = altered(PLACEMENT, tvm=target, vector_bytes=64, vector_registers=32)
    extent = 2 * width
    task = conv((1, 64, extent, extent), 16 * 2 * out, (3, 3), "bu", padding=(1, 1, 1, 1))
    forms = forms_for(task, blocked(16), blocked(16))
    chosen = {
        "lanes": 16, "tile_width": width, "tile_height": 1, "tile_out": out, "order": "channels",
        "in_block": 16, "reduce_order": "chunk,ky,kx,lane", "unroll": "none", "padding": "stage",
        "cache_chunks": 0,
    }  # fmt: skip
    assert SPEC.valid(task, placement.target, placement.resources, forms, chosen)
    settings_ = tuple(chosen.items())
    candidate = Candidate(implementation=SPEC.name, settings=settings_, forms=forms)
    blocks = re.split(
        r"\n(?=\.L\w+:)", rendered(task, candidate, placement.target, placement.resources, "asm")
    )
    inner = max(blocks, key=lambda block: block.count("vfmadd"))
    assert inner.count("vfmadd") == width * out
    assert not re.findall(r"%zmm\d+, \d*\(%rsp\)", inner), "a store to the stack"


def test_padding_wider_than_the_kernel():
    task = conv((1, 4, 3, 3), 4, (2, 2), padding=(3, 2, 0, 4))
    check_kernel(task, SPEC, forms_for(task, blocked(4), blocked(4)))


def test_a_residual_in_another_layout_and_a_plain_one():
    task = conv((1, 8, 6, 6), 8, (3, 3), "rru", padding=(1, 1, 1, 1))
    check_kernel(task, SPEC, (blocked(8), PLAIN, blocked(4), PLAIN, blocked(8)))


def test_data_in_blocks_that_do_not_divide_a_group():
    task = conv((1, 12, 6, 6), 8, (3, 3), groups=2)
    check_kernel(task, SPEC, (blocked(4), PLAIN, blocked(4)))


def test_a_plane_of_one_pixel():
    task = conv((1, 16, 1, 1), 10, (1, 1), "bu")
    check_kernel(task, SPEC, forms_for(task, blocked(16), PLAIN))
