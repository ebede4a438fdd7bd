"""The kinds of features by name, each a row of fixed width.

    itervar   loop variables, after AutoTVM's
    curve     how often elements are used again, against how many there are; after AutoTVM's
    store     TVM's features per stored buffer, brought to a fixed width

A scheduled kernel is described as loop nests, which `loops` finds. In `curve` nothing names a loop
or a buffer, so that rows of different operators can be compared. The layouts of the rows are in
docs/reference/features.md. Importing this needs no TVM; making features does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

READS = 3
"""Reads of a statement that have features, beside the element it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop: `number` is its place in the kernel, `kind` one of `LOOP_KINDS`."""

    number: int
    extent: int
    kind: str


LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "bound")


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """How a statement reaches one buffer; the tuples have an entry per loop of its nest.

    An element is what one execution reaches, a whole vector where the index is a vector's.
    `strides` are elements from one iteration to the next (the first step that is not 0), `runs`
    the iterations until the step changes, `distinct` the different elements one loop alone
    reaches.
    """

    element_bytes: float
    written: bool
    strides: tuple[int, ...]
    runs: tuple[int, ...]
    distinct: tuple[float, ...]

    @property
    def footprint_bytes(self) -> float:
        """Bytes reached by the whole nest; elements that two loops both reach count twice."""
        return self.element_bytes * prod(self.distinct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """A statement within its loops, outermost first.

    `arithmetic` counts additions, multiplications, divisions and other operations of one execution.
    """

    loops: tuple[Loop, ...]
    touches: tuple[Touch, ...]
    arithmetic: tuple[int, int, int, int]

    @property
    def executions(self) -> int:
        """How often the statement is executed."""
        return prod(loop.extent for loop in self.loops)

    @property
    def work(self) -> int:
        """What nests are ranked by: operations, and one per execution."""
        return self.executions * (1 + sum(self.arithmetic))

    def executions_inside(self) -> list[int]:
        """Executions inside of each loop, its own iterations included; last 1 for none."""
        inside = [1]
        for loop in reversed(self.loops):
            inside.append(inside[-1] * loop.extent)
        return inside[::-1]


def heaviest(nests: Sequence[Nest], count: int) -> list[Nest]:
    """Nests by work, most first; equal ones in the order they are run in."""
    return sorted(nests, key=lambda nest: -nest.work)[:count]


def main_touches(nest: Nest) -> list[Touch]:
    """The one written, then the reads with the largest footprints in order of appearance."""
    written = [touch for touch in nest.touches if touch.written][:1]
    reads = [touch for touch in nest.touches if not touch.written]
    largest = sorted(range(len(reads)), key=lambda at: -reads[at].footprint_bytes)[:READS]
    return [*written, *(reads[at] for at in sorted(largest))]


def log2_signed(values: Floats) -> Floats:
    """AutoTVM's scale: sign(x) · log2(1 + |x|)."""
    return np.sign(values) * np.log2(1.0 + np.abs(values))


SLOTS = (12, 6, 6)
"""Loops that have features: of the nest with most work, of the next, of the one after."""
_OF_NEST = 5
_OF_TOUCH = 4
_OF_LOOP = 4 + len(LOOP_KINDS) + (1 + READS) * _OF_TOUCH
ITERVAR_WIDTH = sum(_OF_NEST + slots * _OF_LOOP for slots in SLOTS)


def itervar_features(nests: Sequence[Nest]) -> Floats:
    """One row; loops that a kernel does not have are zeros."""
    seen: set[int] = set()
    parts = [np.zeros(_OF_NEST + slots * _OF_LOOP) for slots in SLOTS]
    for part, nest, slots in zip(parts, heaviest(nests, len(SLOTS)), SLOTS, strict=False):
        _fill(part, nest, slots, seen)
    return np.concatenate(parts)


def _fill(part: Floats, nest: Nest, slots: int, seen: set[int]) -> None:
    """The nest's own columns, then its loops from the innermost out, those not `seen` before."""
    part[:_OF_NEST] = log2_signed(np.array([nest.executions, *nest.arithmetic], dtype=np.float64))
    loops = part[_OF_NEST:].reshape(slots, _OF_LOOP)
    rows = _loop_rows(nest)
    fresh = [at for at, loop in enumerate(nest.loops) if loop.number not in seen]
    for slot, at in zip(range(slots), reversed(fresh), strict=False):
        loops[slot] = rows[at]
    seen.update(loop.number for loop in nest.loops)


def _loop_rows(nest: Nest) -> Floats:
    """A row per loop, outermost first."""
    rows = np.zeros((len(nest.loops), _OF_LOOP))
    inside = nest.executions_inside()
    touches = main_touches(nest)
    for at, loop in enumerate(nest.loops):
        topdown = nest.executions // inside[at + 1] if inside[at + 1] else 0
        rows[at, :4] = loop.extent, 0, topdown, inside[at]
        for number, touch in enumerate(touches):
            first = 4 + len(LOOP_KINDS) + number * _OF_TOUCH
            count = float(np.prod(touch.distinct[at:]))
            reuse = inside[at] / count
            rows[at, first : first + _OF_TOUCH] = touch.strides[at], touch.runs[at], count, reuse
    rows = log2_signed(rows)
    for at, loop in enumerate(nest.loops):
        rows[at, 1] = at + 1
        rows[at, 4 + LOOP_KINDS.index(loop.kind)] = 1.0
    return rows


SAMPLES = 20
STEP = 1.5
"""Samples lie at 0, 1.5, 3 … in log2, up to 2**28.5."""
_RELATIONS = 4
_OF_CURVE = _RELATIONS * SAMPLES
CURVE_WIDTH = (1 + READS) * _OF_CURVE


def curve_features(nests: Sequence[Nest]) -> Floats:
    """One row, from the nest with most work; buffers that it does not have are zeros."""
    row = np.zeros(CURVE_WIDTH)
    for nest in heaviest(nests, 1):
        touches = sorted(main_touches(nest), key=lambda t: (not t.written, -t.footprint_bytes))
        for at, touch in enumerate(touches):
            row[at * _OF_CURVE : (at + 1) * _OF_CURVE] = _curves(nest, touch)
    return row


def _curves(nest: Nest, touch: Touch) -> Floats:
    """reuse(count), count(reuse), topdown(count), count(topdown), sampled."""
    inside = np.array(nest.executions_inside(), dtype=np.float64)
    distinct = np.array([*touch.distinct, 1.0])
    count = np.log2(np.maximum(1.0, np.cumprod(distinct[::-1])[::-1]))
    executions = np.log2(np.maximum(1.0, inside))
    reuse, topdown = executions - count, executions[0] - executions
    pairs = ((count, reuse), (reuse, count), (count, topdown), (topdown, count))
    return np.concatenate([_sampled(x, y) for x, y in pairs])


def _sampled(x: Floats, y: Floats) -> Floats:
    """The line through the points at all samples, level beyond its ends; where points lie above
    each other, the highest."""
    places, group = np.unique(x.round(9), return_inverse=True)
    heights = np.zeros(len(places))
    np.maximum.at(heights, group, y)
    return np.interp(np.arange(SAMPLES) * STEP, places, heights)


PER_STORE = 164
STORE_WIDTH = 1 + 2 * PER_STORE
_EXECUTIONS = 161
_ARITHMETIC = slice(0, 16)
_AS_THEY_ARE = np.array(
    [
        *(16 + 11 * loops + place for loops in range(3) for place in range(3, 11)),
        49,
        *(57 + 18 * buffer + place for buffer in range(5) for place in (0, 1, 2, 7, 8, 9)),
    ]
)
"""Columns with 0 and 1; all others are log2(1 + x)."""


def reduced(rows: Floats) -> Floats:
    """Rows of stored buffers as one row; sums are taken before the logarithm."""
    if not len(rows):
        return np.zeros(STORE_WIDTH)
    linear = np.exp2(rows) - 1.0
    linear[:, _AS_THEY_ARE] = rows[:, _AS_THEY_ARE]
    sums = linear.sum(axis=0)
    scaled = np.log2(1.0 + sums)
    scaled[_AS_THEY_ARE] = sums[_AS_THEY_ARE]
    work = linear[:, _ARITHMETIC].sum(axis=1) + linear[:, _EXECUTIONS]
    return np.concatenate([[float(len(rows))], scaled, rows[int(np.argmax(work))]])


WIDTHS = {"itervar": ITERVAR_WIDTH, "curve": CURVE_WIDTH, "store": STORE_WIDTH}
"""Columns of a row by kind."""
