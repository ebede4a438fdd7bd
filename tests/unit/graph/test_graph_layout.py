"""Physical layouts."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, blocked, channel_block, parse_form
from tilewright.core.layouts import ROW_MAJOR, Layout, blocked_layout, parse_layout
from tilewright.graph.arrays import to_logical, to_physical


@given(
    batch=st.integers(1, 3),
    chunks=st.integers(1, 4),
    block=st.integers(1, 5),
    rest=st.lists(st.integers(1, 4), max_size=3),
)
def test_round_trip(batch: int, chunks: int, block: int, rest: list[int]) -> None:
    shape = (batch, chunks * block, *rest)
    array = np.arange(np.prod(shape)).reshape(shape)
    packed = to_physical(array, blocked(block))
    assert packed.shape == blocked(block).physical_shape(shape)
    assert packed.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(to_logical(packed, blocked(block), shape), array)
    if rest:
        last = tuple(extent - 1 for extent in rest)
        channel = chunks * block - 1
        assert packed[0, channel // block, *last, channel % block] == array[0, channel, *last]


@st.composite
def shaped_layouts(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...]]:
    """Any layout, and a shape that it fits."""
    rank = draw(st.integers(1, 4))
    axes = st.integers(0, rank - 1)
    blocks = draw(st.lists(st.tuples(axes, st.integers(1, 3)), max_size=4))
    outer = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    shape = [n * prod(size for cut, size in blocks if cut == axis) for axis, n in enumerate(outer)]
    order = tuple(draw(st.permutations(range(rank))))
    return Layout(order=order, blocks=tuple(blocks)), tuple(shape)


@given(shaped_layouts())
def test_any_layout(case: tuple[Layout, tuple[int, ...]]) -> None:
    layout, shape = case
    assert parse_layout(str(layout)) == layout
    array = np.arange(prod(shape)).reshape(shape)
    packed = to_physical(array, Form(layout))
    assert packed.shape == layout.physical_shape(shape) and packed.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(to_logical(packed, Form(layout), shape), array)
    parts, strides, flat = layout.parts(shape), layout.strides(shape), packed.reshape(-1)
    for index in np.ndindex(*shape):
        place = sum(
            part * stride
            for axis, cut in enumerate(parts)
            for part, stride in zip(np.unravel_index(index[axis], cut), strides[axis], strict=True)
        )
        assert flat[place] == array[index]


def test_layouts_of_the_field() -> None:
    """NHWC, weights in pairs of rows, tiles of 16 by 16 pairs: oneDNN's tags."""
    assert str(Layout(order=(0, 2, 3, 1))) == "acdb"
    assert Layout(order=(0, 2, 3, 1)).physical_shape((1, 8, 5, 6)) == (1, 5, 6, 8)
    assert str(Layout(order=(1, 0), blocks=((0, 2),))) == "bA2a"
    tiles = Layout(order=(1, 0), blocks=((0, 16), (1, 16), (0, 2)))
    assert str(tiles) == "BA16a16b2a" and tiles.physical_shape((64, 48)) == (3, 2, 16, 16, 2)
    assert blocked_layout(16).strides((1, 32, 4, 4)) == ((512,), (256, 1), (64,), (16,))
    assert (str(ROW_MAJOR), str(blocked_layout(16))) == ("plain", "blocked16")
    assert Layout(order=(0, 1)).is_row_major and not blocked_layout(4).is_row_major
    with pytest.raises(InternalError, match="neither plain nor in blocks"):
        channel_block(parse_form("acdb"))


@pytest.mark.parametrize(
    ("order", "blocks"),
    [((0, 0), ()), ((1, 2), ()), ((), ((0, 4),)), ((0, 1), ((2, 4),)), ((0,), ((0, 0),))],
)
def test_what_is_no_layout(order: tuple[int, ...], blocks: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InternalError):
        Layout(order=order, blocks=blocks)


def test_plain_is_row_major() -> None:
    turned = np.arange(6).reshape(2, 3).T
    assert to_physical(turned, PLAIN).flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(to_logical(to_physical(turned, PLAIN), PLAIN, (3, 2)), turned)
    assert PLAIN.physical_shape(()) == ()
    assert to_physical(np.array(2.0), PLAIN).shape == ()
    assert channel_block(PLAIN) == 0
    assert channel_block(blocked(12)) == 12


@pytest.mark.parametrize(
    "name", ["", "nhwc", "blocked", "blockedx", "blocked-4", "Plain", "aB", "ab16c", "ab0a"]
)
def test_unknown_layouts(name: str) -> None:
    with pytest.raises(InternalError, match="unknown layout"):
        parse_form(name)


@pytest.mark.parametrize("shape", [(8,), (), (1, 6, 2, 2)])
def test_blocks_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="does not fit"):
        blocked(4).physical_shape(shape)
