"""How long a network takes on an instance: what it took at the start, and what it takes by now."""

from __future__ import annotations

from collections import deque
from statistics import median

SLOW = 3.0
"""An instance is slow when it takes so many times as long as at its start,"""
_AND_S = 1e-3
"""and so much longer: what tiny networks take is mostly the handing over."""
_RECENT = 9
_FEWEST = 5


class Pace:
    """Seconds from handing a request to an instance to its answer, followed over the newest."""

    def __init__(self, begin_s: float) -> None:
        self.begin_s = begin_s
        self._recent_s: deque[float] = deque(maxlen=_RECENT)

    def note(self, took_s: float) -> None:
        """A request took so long."""
        self._recent_s.append(took_s)

    @property
    def expected_s(self) -> float:
        """The median of the newest; at first what it took at the start."""
        return median(self._recent_s) if len(self._recent_s) >= _FEWEST else self.begin_s

    @property
    def is_slow(self) -> bool:
        """Whether it takes several times as long as at the start."""
        return self.expected_s > max(SLOW * self.begin_s, self.begin_s + _AND_S)
