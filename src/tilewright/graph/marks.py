"""When each call of a network begins and ends, as the network notes it itself: where its marks are,
and what they say.

    row 0        how many marks calls on all cores have made
    then         two for each of these calls, begin and end
    then         two for each thread of its lane for each call of a region

A mark is a time of a clock that never goes back, in seconds and nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.graph.regions import Region, steps_of


@dataclass(frozen=True, slots=True)
class RegionMarks:
    """Where the calls of a region note the time: in the rows of a tensor of so many, from a first
    one on."""

    rows: int
    first: int


@dataclass(frozen=True, slots=True)
class Noted:
    """A call by its name, the threads of the pool that computed it, and seconds of a clock from
    the first of them that began to the last that ended."""

    call: str
    threads: range
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Marks:
    """Where the calls of a plan note the time."""

    plan: NetworkPlan

    @cached_property
    def _steps(self) -> tuple[PlannedCall | Region, ...]:
        return steps_of(self.plan)

    @cached_property
    def alone(self) -> int:
        """How many calls are on all cores."""
        return sum(not isinstance(step, Region) for step in self._steps)

    @cached_property
    def _first(self) -> dict[str, int]:
        """The first row of each call of a region, by the call's name; as "" how many there are."""
        found, row = dict[str, int](), mark_rows(self.alone)
        for call in (c for step in self._steps if isinstance(step, Region) for c in step.calls):
            found[call.name] = row
            row += 2 * self._threads(call)
        return {**found, "": row}

    @property
    def rows(self) -> int:
        """The number of all of them."""
        return self._first[""]

    def _threads(self, call: PlannedCall) -> int:
        return self.plan.lanes[call.lane].resources.threads

    def of_region(self, region: Region) -> RegionMarks:
        """The rows of a region."""
        return RegionMarks(self.rows, self._first[region.calls[0].name])

    def read(self, marks: NDArray[Any]) -> Iterator[Noted]:
        """What the marks of a run say of each call."""
        times_s = marks.astype(np.float64) @ np.array((1.0, 1e-9))
        alone = iter(range(1, mark_rows(self.alone), 2))
        for step in self._steps:
            first = 0
            for lane in step.lanes if isinstance(step, Region) else ((step,),):
                threads = range(first, first + self._threads(lane[0]))
                for call in lane:
                    row = self._first[call.name] if isinstance(step, Region) else next(alone)
                    count = len(threads) if isinstance(step, Region) else 1
                    own = times_s[row : row + 2 * count]
                    yield Noted(call.name, threads, min(own[0::2]), max(own[1::2]))
                first = threads.stop


def mark_rows(alone: int) -> int:
    """Rows of marks for a network of so many calls, all of them on all cores: how many were made,
    then two for each."""
    return 2 * alone + 1
