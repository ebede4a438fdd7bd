"""How long a network takes on an instance in each size of a batch, by now.

measured at the start: 1 in 10 ms, 4 in 20 ms;  4 now takes 60 ms  →  1 takes 30 ms
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from tilewright.serving.pace import AND_S, SLOW, RecentRatios


class BatchPace:
    """Seconds of each size: as measured at the start, times what the newest runs, of whichever
    sizes, took by what they took at the start. A size that does not run is known by those that do.
    """

    def __init__(
        self, begin_s: Mapping[int, float], clock: Callable[[], float] = monotonic
    ) -> None:
        self.begin_s = dict(begin_s)
        self._recent = RecentRatios(max(self.begin_s.values()), clock)
        self._was_slow = False

    def note(self, size: int, took_s: float) -> bool | None:
        """A run took so long: whether it is slow from now on, None where that is as before."""
        self._recent.note(took_s / self.begin_s[size])
        before, self._was_slow = self._was_slow, self.is_slow
        return None if self._was_slow == before else self._was_slow

    def expected_s(self, size: int) -> float:
        """What a batch of this size takes."""
        return self.begin_s[size] * self._recent.median

    @property
    def is_slow(self) -> bool:
        """Whether one request alone takes several times as long as at the start."""
        begin_s = self.begin_s[1]
        return self.expected_s(1) > max(SLOW * begin_s, begin_s + AND_S)
