"""Physical layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.errors import InternalError
from tilewright.graph.layout import (
    PLAIN,
    blocked,
    channel_block,
    physical_shape,
    to_logical,
    to_physical,
)


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
    assert packed.shape == physical_shape(shape, blocked(block))
    assert packed.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(to_logical(packed, blocked(block)), array)
    if rest:
        last = tuple(extent - 1 for extent in rest)
        channel = chunks * block - 1
        assert packed[0, channel // block, *last, channel % block] == array[0, channel, *last]


def test_plain_is_row_major() -> None:
    turned = np.arange(6).reshape(2, 3).T
    assert to_physical(turned, PLAIN).flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(to_logical(to_physical(turned, PLAIN), PLAIN), turned)
    assert physical_shape((), PLAIN) == ()
    assert to_physical(np.array(2.0), PLAIN).shape == ()
    assert channel_block(PLAIN) == 0
    assert channel_block(blocked(12)) == 12


@pytest.mark.parametrize("name", ["", "nhwc", "blocked", "blockedx", "blocked-4", "Plain"])
def test_unknown_layouts(name: str) -> None:
    with pytest.raises(InternalError, match="unknown layout"):
        channel_block(name)


@pytest.mark.parametrize("shape", [(8,), (), (1, 6, 2, 2)])
def test_blocks_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="does not fit"):
        physical_shape(shape, blocked(4))
