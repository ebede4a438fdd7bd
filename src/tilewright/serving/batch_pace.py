"""How long a network takes on an instance in each size of a batch, by now.

measured at the start: 1 in 10 ms, 4 in 20 ms;  4 now takes 60 ms  →  1 takes 30 ms
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from time import monotonic

from tilewright.serving.pace import AND_S, FEWEST, RECENT, SLOW

_FORGOTTEN_S = 10.0
"""So old samples count no more: what is too slow for every deadline would never run again, and so
never be seen to be fast again."""
_FORGOTTEN_RUNS = 20
"""The same in runs of the size that takes longest, where these are slow."""


class BatchPace:
    """Seconds of each size: as measured at the start, times what the newest runs, of whichever
    sizes, took by what they took at the start. A size that does not run is known by those that do.
    """

    def __init__(
        self, begin_s: Mapping[int, float], clock: Callable[[], float] = monotonic
    ) -> None:
        self.begin_s = dict(begin_s)
        self._clock = clock
        self._ratios = deque[tuple[float, float]](maxlen=RECENT)
        self._was_slow = False

    def note(self, size: int, took_s: float) -> bool | None:
        """A run took so long: whether it is slow from now on, None where that is as before."""
        self._ratios.append((self._clock(), took_s / self.begin_s[size]))
        before, self._was_slow = self._was_slow, self.is_slow
        return None if self._was_slow == before else self._was_slow

    def expected_s(self, size: int) -> float:
        """What a batch of this size takes."""
        return self.begin_s[size] * self._ratio

    @property
    def is_slow(self) -> bool:
        """Whether one request alone takes several times as long as at the start."""
        begin_s = self.begin_s[1]
        return self.expected_s(1) > max(SLOW * begin_s, begin_s + AND_S)

    @property
    def _ratio(self) -> float:
        kept_s = max(_FORGOTTEN_S, _FORGOTTEN_RUNS * max(self.begin_s.values()))
        since_s = self._clock() - kept_s
        newest = [ratio for at_s, ratio in tuple(self._ratios) if at_s >= since_s]
        return median(newest) if len(newest) >= FEWEST else 1.0
