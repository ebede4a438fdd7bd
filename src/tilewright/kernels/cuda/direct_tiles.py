"""How direct convolutions on GPUs are cut: rectangles of blocks, tiles of threads, and what of the
image and of the filters lies where in shared memory.

A staged row has its columns by phases of the stride, those that one tap reads side by side:
0 2 4 6 … 1 3 5 7 … with a stride of 2, so that neighbouring lanes meet in no bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import Bools, whole
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.cuda.images import channels_last, packed_forms

VECTOR, WARP = 4, 32
"""Singles of the widest access; lanes of a warp."""
APART, BESIDE, EXCHANGED = 0, 1, 2
"""Where a thread's columns lie: apart; beside each other; beside each other, but exchanged with
those of other lanes before they are written."""
_MOST_PARTS = 8
"""How many numbers of parts of a line are tried, from the fewest that threads suffice for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """A convolution with the places of its channels: whether those of the image are `read_last`,
    those of the result `written_last`, and whether its filters are `packed`, output channels
    innermost."""

    conv: Convolution
    read_last: bool
    written_last: bool
    packed: bool

    def span(self, axis: int, results: Any) -> Any:
        """Places of the image along an axis from the first to the last that so many neighbouring
        results read."""
        conv = self.conv
        taps = (conv.kernel[axis] - 1) * conv.dilation[axis]
        return (results - 1) * conv.strides[axis] + taps + 1

    @property
    def shift(self) -> int:
        """How many columns of a phase the last tap across lies behind the first one."""
        return (self.conv.kernel[1] - 1) * self.conv.dilation[1] // self.conv.strides[1]

    @property
    def tap_places(self) -> tuple[tuple[int, int], ...]:
        """Phase and shift of each tap across."""
        step, stride = self.conv.dilation[1], self.conv.strides[1]
        taps = (tap * step for tap in range(self.conv.kernel[1]))
        return tuple((place % stride, place // stride) for place in taps)

    @property
    def phases(self) -> tuple[tuple[int, int, int], ...]:
        """Each phase that taps read, with its first and its last shift."""
        found: dict[int, list[int]] = {}
        for phase, shift in self.tap_places:
            found.setdefault(phase, []).append(shift)
        return tuple((phase, min(some), max(some)) for phase, some in found.items())

    @property
    def weights(self) -> int:
        """Of an output channel."""
        return self.conv.summed


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTiles:
    """A thread has `rows` by `columns` results of `channels`; a block `down` by `across` by `deep`
    threads. Columns of a thread lie `across` apart, or `beside` each other, and may be exchanged
    (`APART`, `BESIDE`, `EXCHANGED`). Numbers of one setting, or columns of many."""

    of: Direct
    rows: Any
    columns: Any
    channels: Any
    down: Any
    across: Any
    deep: Any
    beside: Any

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.down * self.across * self.deep

    @property
    def sums(self) -> Any:
        """Results of a thread."""
        return self.rows * self.columns * self.channels

    @property
    def tile(self) -> tuple[Any, Any, Any]:
        """Output channels, rows and columns of a block."""
        return self.deep * self.channels, self.down * self.rows, self.across * self.columns

    @property
    def counts(self) -> tuple[Any, ...]:
        """Blocks along images, groups, output channels of a group, rows and columns."""
        conv = self.of.conv
        extents = (conv.group_out, conv.out_height, conv.out_width)
        tiles = [-(-extent // size) for extent, size in zip(extents, self.tile, strict=True)]
        return (conv.batch, conv.groups, *tiles)

    @property
    def blocks(self) -> Any:
        """Blocks of the launch."""
        return prod(self.counts)

    @property
    def neighbours(self) -> Any:
        """Whether columns of a thread lie beside each other (1), or apart (0)."""
        return np.minimum(self.beside, 1)

    @property
    def vector(self) -> Any:
        """Columns of the image that a thread reads at once."""
        return 1 + self.neighbours * (np.gcd(self.columns, VECTOR) - 1)

    @property
    def turned(self) -> Any:
        """Lanes that exchange as many neighbouring columns before they are written; one does not.
        They lie `across` apart in a warp."""
        return np.where(self.beside == EXCHANGED, self.vector, 1)

    @property
    def staged(self) -> tuple[Any, Any]:
        """Rows and columns of the image that a block copies: all that a thread reads at once."""
        return self.of.span(0, self.tile[1]), self.line

    @property
    def pitch(self) -> Any:
        """From one phase of a staged row to the next, in elements: whole vectors."""
        return -(-(self.tile[2] + self.of.shift) // self.vector) * self.vector

    @property
    def line(self) -> Any:
        """From one staged row to the next."""
        return self.pitch * self.of.conv.strides[1]

    @property
    def filter_pitch(self) -> Any:
        """From one weight of a staged filter to the next. Filters that are not packed are written
        across, and get some more so that fewer meet in one bank."""
        return self.tile[0] + (0 if self.of.packed else VECTOR)

    @property
    def image_elements(self) -> Any:
        """Of shared memory, for the image."""
        return self.of.conv.group_in * prod(self.staged)

    @property
    def filter_elements(self) -> Any:
        """Of shared memory, for the filters."""
        return self.of.weights * self.filter_pitch

    @property
    def image_lines(self) -> tuple[Any, Any, int]:
        """What a block copies of the image: elements of a line in memory, lines, and how many such
        planes there are."""
        rows, columns = self.staged
        channels = self.of.conv.group_in
        return (columns * channels, rows, 1) if self.of.read_last else (columns, rows, channels)

    @property
    def filter_lines(self) -> tuple[Any, Any]:
        """What a block copies of the filters: elements of a line in memory, and lines."""
        weights, channels = self.of.weights, self.tile[0]
        return (channels, weights) if self.of.packed else (weights, channels)

    @property
    def vectors(self) -> Any:
        """Loads of a row of the image by a thread whose columns lie beside each other."""
        return sum(
            -(-(last + self.columns - first // self.vector * self.vector) // self.vector)
            for _, first, last in self.of.phases
        )

    @property
    def loads(self) -> Any:
        """Loads of the image by a thread, for one channel and one row of taps."""
        apart = self.columns * self.of.conv.kernel[1]
        return self.rows * (self.neighbours * self.vectors + (1 - self.neighbours) * apart)

    @property
    def held(self) -> Any:
        """Elements of the image that a thread has in registers at a time."""
        beside = self.vectors * self.vector
        return self.rows * (self.neighbours * beside + (1 - self.neighbours) * self.columns)

    @property
    def together(self) -> Any:
        """Results that a thread writes at once."""
        conv = self.of.conv
        if self.of.written_last:
            return int(np.gcd(conv.group_out, VECTOR))
        return np.gcd(self.vector // self.turned, conv.out_width)

    def where(self, chosen: Bools) -> DirectTiles:
        """The chosen ones of columns."""
        names = (each.name for each in fields(self) if each.name != "of")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def place(self, thread: Any) -> tuple[Any, Any, Any]:
        """Where a thread is in its block: channels, rows and columns; neighbours have neighbouring
        columns, or channels where those lie innermost in the result."""
        if self.of.written_last:
            rest, deep = thread // self.deep, thread % self.deep
            return deep, rest // self.across, rest % self.across
        rest, across = thread // self.across, thread % self.across
        return rest // self.down, rest % self.down, across


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """How lines are dealt out to the threads of a block that copy them: `width` threads have one
    line, each `parts` of its elements, `width` apart; `lines` are copied at a time, in `turns`."""

    parts: int
    width: int
    lines: int
    turns: int

    @property
    def copied(self) -> int:
        """Elements of a thread."""
        return self.parts * self.turns


@lru_cache(maxsize=65536)
def dealt(length: int, lines: int, threads: int) -> Dealt:
    """The way with the fewest elements of a thread: its place in a line is found once, and then it
    goes from line to line."""
    found = list[Dealt]()
    for parts in range(-(-length // threads), _MOST_PARTS + -(-length // threads)):
        width = -(-length // parts)
        together = threads // width
        found.append(Dealt(parts=parts, width=width, lines=together, turns=-(-lines // together)))
    return min(found, key=lambda way: way.copied)


@lru_cache(maxsize=4096)
def direct(workload: Workload, forms: tuple[Form, ...] = ()) -> Direct:
    """Read a workload whose anchor is a convolution; without `forms` all is plain."""
    conv = convolution(workload)
    read_last, written_last = channels_last(workload, forms)
    packed = conv.weight in packed_forms(workload, forms)
    return Direct(conv=conv, read_last=read_last, written_last=written_last, packed=packed)


def tiles_of(
    workload: Workload, forms: tuple[Form, ...], settings: Settings | Sequence[Settings]
) -> DirectTiles:
    """The tiles of a setting, or of many."""
    names = ("rows", "columns", "channels", "down", "across", "deep", "beside")
    return DirectTiles(
        of=direct(workload, forms), **{name: whole(settings, name) for name in names}
    )
