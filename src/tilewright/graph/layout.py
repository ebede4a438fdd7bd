"""Physical layouts of tensors.

`plain` is row-major over the logical shape. `blockedN` splits axis 1 (channels) of a tensor of at
least two axes into chunks of N and moves the lanes last: logical (n, c, h, w) is stored as
(n, c/N, h, w, c%N). N divides the channels.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.graph.network import Array

PLAIN = "plain"
_PREFIX = "blocked"


def blocked(block: int) -> str:
    """The layout with channel blocks of `block` lanes."""
    return f"{_PREFIX}{block}"


def channel_block(layout: str) -> int:
    """Lanes per channel block; 0 for `plain`."""
    if layout == PLAIN:
        return 0
    if layout.startswith(_PREFIX) and layout[len(_PREFIX) :].isdigit():
        return int(layout[len(_PREFIX) :])
    raise InternalError(f"unknown layout {layout!r}")


def physical_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Shape in memory of a tensor of logical `shape`."""
    block = channel_block(layout)
    if block == 0:
        return shape
    if len(shape) < 2 or shape[1] % block:
        raise InternalError(f"layout {layout} does not fit shape {shape}")
    return (shape[0], shape[1] // block, *shape[2:], block)


def to_physical(array: Array, layout: str) -> Array:
    """Repack a row-major array into `layout`; contiguous."""
    block = channel_block(layout)
    if block == 0:
        return np.asarray(array, order="C")
    n, c, *rest = array.shape
    split = array.reshape(n, c // block, block, *rest)
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))


def to_logical(array: Array, layout: str) -> Array:
    """The inverse of `to_physical`."""
    block = channel_block(layout)
    if block == 0:
        return array
    moved = np.moveaxis(array, -1, 2)
    n, chunks, lanes, *rest = moved.shape
    return np.ascontiguousarray(moved.reshape(n, chunks * lanes, *rest))
