"""Layouts of tensors in memory, as values.

    NCHW, row by row                ROW_MAJOR                       written `plain`
    NCHW with channels in sixteens  blocked_layout(16)              written `blocked16`
    NHWC                            Layout(order=(0, 2, 3, 1))      written `acdb`
    pairs of rows for dot products  Layout(order=(1, 0), blocks=((0, 2),))   written `bA2a`

An axis is outer or cut: of an axis of C elements, blocks of sixteen leave C / 16 outer places and
sixteen inner ones. In memory come the outer parts of all axes, in `order`, then the blocks, the
first of them slowest. Texts beside the first two are oneDNN's format tags: a letter per axis,
capital where it is cut, then each block's size and axis (oneDNN documentation, "Understanding
Memory Formats").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilewright.core.errors import InternalError

_PLAIN, _BLOCKED = "plain", "blocked"
_FIRST = ord("a")
_TAG = re.compile(r"(?P<order>[a-zA-Z]+)(?P<blocks>(?:[1-9][0-9]*[a-z])*)")
_BLOCK = re.compile(r"([1-9][0-9]*)([a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the elements of a tensor lie.

    `order` has the axes from the slowest to the fastest, and is empty where they come as they are,
    however many. `blocks` are pairs of axis and size, from the slowest to the fastest; an axis may
    be cut more than once, its later blocks out of its earlier ones. A size divides what is cut.
    Raises InternalError for what is no layout.
    """

    order: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        axes = {axis for axis, _ in self.blocks}
        if sorted(self.order) != list(range(len(self.order))):
            raise InternalError(f"{self.order} is no order of axes")
        if min((size for _, size in self.blocks), default=1) < 1 or min(axes, default=0) < 0:
            raise InternalError(f"{self.blocks} are no blocks")
        if self.order and axes - set(self.order):
            raise InternalError(f"{self.blocks} cut an axis that {self.order} lacks")
        if not self.order and self.blocks and (len(self.blocks) > 1 or axes != {1}):
            raise InternalError(f"blocks {self.blocks} need an order of the axes")

    @property
    def is_row_major(self) -> bool:
        """Whether elements lie in the order of their logical indices."""
        return not self.blocks and self.order == tuple(range(len(self.order)))

    @property
    def channel_block(self) -> int:
        """The size of the only block, where that is of axis 1 and the axes are in order; else 0."""
        in_order = self.order == tuple(range(len(self.order)))
        return self.blocks[0][1] if in_order and len(self.blocks) == 1 == self.blocks[0][0] else 0

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes from the slowest to the fastest; raises InternalError for another rank."""
        order = self.order or tuple(range(rank))
        if len(order) != rank or any(axis >= rank for axis, _ in self.blocks):
            raise InternalError(f"layout {self} does not fit {rank} axes")
        return order

    def parts(self, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """How each axis is cut: (C,) → (C / 16, 16). Raises InternalError where it does not fit."""
        ranks = range(len(self.axes(len(shape))))
        cuts = [[size for axis, size in self.blocks if axis == own] for own in ranks]
        if any(extent % prod(cut) for extent, cut in zip(shape, cuts, strict=True)):
            raise InternalError(f"layout {self} does not fit shape {tuple(shape)}")
        return tuple((extent // prod(cut), *cut) for extent, cut in zip(shape, cuts, strict=True))

    def places(self, rank: int) -> tuple[tuple[int, int], ...]:
        """What the physical axes are, slowest first: the logical axis, and which part of it."""
        physical = [*self.axes(rank), *(axis for axis, _ in self.blocks)]
        return tuple((axis, physical[:place].count(axis)) for place, axis in enumerate(physical))

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape in memory of a tensor of a logical shape."""
        parts = self.parts(shape)
        return tuple(parts[axis][part] for axis, part in self.places(len(shape)))

    def strides(self, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """How many elements a step along each part of each logical axis goes, as `parts` has them.

        (1, 32, 4, 4) in blocks of sixteen: ((512,), (256, 1), (64,), (16,)).
        """
        parts = self.parts(shape)
        strides = [[0] * len(cut) for cut in parts]
        step = 1
        for axis, part in reversed(self.places(len(shape))):
            strides[axis][part] = step
            step *= parts[axis][part]
        return tuple(map(tuple, strides))

    def __str__(self) -> str:
        if not self.blocks and not self.order:
            return _PLAIN
        if not self.order:
            return f"{_BLOCKED}{self.blocks[0][1]}"
        cut = {axis for axis, _ in self.blocks}
        letters = (chr(_FIRST + a).upper() if a in cut else chr(_FIRST + a) for a in self.order)
        return "".join([*letters, *(f"{size}{chr(_FIRST + axis)}" for axis, size in self.blocks)])


ROW_MAJOR = Layout()
"""The last axis is the fastest, whatever the shape."""


def blocked_layout(size: int) -> Layout:
    """Channels, axis 1, in blocks that lie innermost; all axes in order, however many."""
    return Layout(blocks=((1, size),))


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> Layout:
    """The layout that is written so; raises InternalError where there is none."""
    if text == _PLAIN:
        return ROW_MAJOR
    size = text.removeprefix(_BLOCKED)
    if size != text and size.isdigit() and int(size) > 0:
        return blocked_layout(int(size))
    found = _TAG.fullmatch(text)
    if found is not None:
        order = tuple(ord(letter) - _FIRST for letter in found["order"].lower())
        cut = tuple((ord(axis) - _FIRST, int(n)) for n, axis in _BLOCK.findall(found["blocks"]))
        if sorted(order) == list(range(len(order))) and {axis for axis, _ in cut} <= {*order}:
            layout = Layout(order=order, blocks=cut)
            if str(layout) == text:
                return layout
    raise InternalError(f"unknown layout {text!r}")
