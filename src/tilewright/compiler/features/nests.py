"""A scheduled kernel as loop nests: what `loops` finds, and `itervar` and `curve` are made from."""

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
