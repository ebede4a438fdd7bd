"""How long networks, or parts of them, take where they run: what they took at the start, and what
they take by now."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

SLOW = 3.0
"""An instance or a place is slow when it takes so many times as long as at its start,"""
AND_S = 1e-3
"""and so much longer: what tiny networks take is mostly the handing over."""
RECENT, FEWEST = 9, 5
"""Of how many of the newest samples the median is taken, and from how many on."""


class Pace:
    """Seconds from handing a request to an instance to its answer, followed over the newest."""

    def __init__(self, begin_s: float) -> None:
        self.begin_s = begin_s
        self._recent_s: deque[float] = deque(maxlen=RECENT)

    def note(self, took_s: float) -> None:
        """A request took so long."""
        self._recent_s.append(took_s)

    @property
    def expected_s(self) -> float:
        """The median of the newest; at first what it took at the start."""
        return median(self._recent_s) if len(self._recent_s) >= FEWEST else self.begin_s

    @property
    def is_slow(self) -> bool:
        """Whether it takes several times as long as at the start."""
        return slowdown([self]) is not None


def slowdown(paces: Iterable[Pace]) -> float | None:
    """How many times as long all of it takes together as at the start, None where that is not
    slow: what a short part loses says nothing of a place that also computes long ones."""
    both = [(pace.begin_s, pace.expected_s) for pace in paces]
    begin_s, expected_s = (sum(each) for each in zip((0.0, 0.0), *both, strict=True))
    slow = expected_s > max(SLOW * begin_s, begin_s + AND_S)
    return expected_s / begin_s if slow else None
