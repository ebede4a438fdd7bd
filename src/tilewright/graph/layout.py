"""Layouts by their texts, as candidates and networks name them, and arrays in them.

`plain` is row-major over the logical shape. `blockedN` splits axis 1 (channels) of a tensor of at
least two axes into chunks of N and moves the lanes last: logical (n, c, h, w) is stored as
(n, c/N, h, w, c%N). N divides the channels. All others: `core.layouts`.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.layouts import ROW_MAJOR, blocked_layout, parse_layout
from tilewright.graph.network import Array

PLAIN = str(ROW_MAJOR)


def blocked(block: int) -> str:
    """The layout with channel blocks of `block` lanes."""
    return str(blocked_layout(block))


def channel_block(layout: str) -> int:
    """Lanes per channel block; 0 for `plain`. Raises InternalError for any other layout."""
    found = parse_layout(layout)
    if not found.channel_block and not found.is_row_major:
        raise InternalError(f"layout {layout!r} is neither plain nor in blocks of channels")
    return found.channel_block


def physical_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Shape in memory of a tensor of logical `shape`."""
    return parse_layout(layout).physical_shape(shape)


def to_physical(array: Array, layout: str) -> Array:
    """Repack a row-major array into `layout`; contiguous."""
    found = parse_layout(layout)
    parts = found.parts(array.shape)
    cut = array.reshape([*chain.from_iterable(parts)])
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in found.places(array.ndim)]
    return np.asarray(cut.transpose(order), order="C")


def to_logical(array: Array, layout: str, shape: tuple[int, ...]) -> Array:
    """The inverse of `to_physical`, for an array of logical `shape`; contiguous."""
    found = parse_layout(layout)
    parts = found.parts(shape)
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in found.places(len(shape))]
    back = array.reshape(found.physical_shape(shape)).transpose(np.argsort(order))
    return np.asarray(back, order="C").reshape(shape)


def _firsts(parts: tuple[tuple[int, ...], ...]) -> list[int]:
    """The number of the first part of each axis, counted over all."""
    return [sum(map(len, parts[:axis])) for axis in range(len(parts))]
