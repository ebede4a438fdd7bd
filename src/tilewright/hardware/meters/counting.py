"""Meters that read a counter of energy before and after a window."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tilewright.hardware.meters.base import MeterLost, Reading

MOST_W = 20_000.0
"""No single machine draws more: a reading above it is a broken counter."""


class Counter(Protocol):
    """Joules used since some moment, going up, from 0 again after `range_j` (infinite: never)."""

    @property
    def range_j(self) -> float:
        """The counter's largest value plus one step."""
        ...

    def read_j(self) -> float:
        """The counter now; raises MeterLost when it cannot be read."""
        ...


def difference_j(before_j: float, after_j: float, range_j: float) -> float:
    """Joules between two values of a counter that wrapped once at most."""
    return after_j - before_j if after_j >= before_j else after_j - before_j + range_j


@dataclass(slots=True, kw_only=True)
class CountingMeter:
    """The sum of some counters that are read together.

    A window must end before a counter wraps twice: tens of minutes for those known.
    """

    method: str
    update_s: float
    counters: Sequence[Counter]
    clock: Callable[[], float] = time.monotonic
    _before_j: list[float] = field(default_factory=list[float])
    _began_s: float = 0.0

    def unavailable(self) -> MeterLost | None:
        """None where all counters answer."""
        try:
            for counter in self.counters:
                counter.read_j()
        except MeterLost as error:
            return error
        return None

    def start(self) -> None:
        """Read all counters; raises MeterLost."""
        self._before_j = [counter.read_j() for counter in self.counters]
        self._began_s = self.clock()

    def stop(self) -> Reading:
        """The counters' differences, or why there are none."""
        window_s = self.clock() - self._began_s
        try:
            after_j = [counter.read_j() for counter in self.counters]
        except MeterLost as error:
            return Reading(energy_j=None, window_s=window_s, reason=error.reason)
        energy_j = sum(
            difference_j(before, after, counter.range_j)
            for counter, before, after in zip(self.counters, self._before_j, after_j, strict=True)
        )
        reason = ""
        if energy_j <= 0:
            reason = f"{self.method} stood still for {window_s:.3g} s."
        elif not energy_j <= MOST_W * window_s:
            reason = f"{self.method} says {energy_j:.4g} J in {window_s:.3g} s, which cannot be."
        return Reading(energy_j=None if reason else energy_j, window_s=window_s, reason=reason)
