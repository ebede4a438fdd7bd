"""How long networks, or parts of them, take where they run: what they took at the start, and what
they take by now."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from time import monotonic

SLOW = 3.0
"""An instance or a place is slow when it takes so many times as long as at its start,"""
AND_S = 1e-3
"""and so much longer: what tiny networks take is mostly the handing over."""
_RECENT, _FEWEST = 9, 5
"""Of how many of the newest samples the median is taken, and from how many on."""
_FORGOTTEN_S, _FORGOTTEN_RUNS = 10.0, 20
"""So old samples count no more, or as old as so many runs at the pace of the start, or as those of
which the median is taken: what is too slow to be used would never run again, and so never be seen
to be fast again."""


class RecentRatios:
    """What the newest runs took by what they took at the start, those left out that are old; runs
    of `longest_s` are kept longer."""

    def __init__(self, longest_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._longest_s, self._clock = longest_s, clock
        self._ratios = deque[tuple[float, float]](maxlen=_RECENT)

    def note(self, ratio: float) -> None:
        """A run took so many times as long as at the start."""
        self._ratios.append((self._clock(), ratio))

    @property
    def median(self) -> float:
        """The median of them, 1 while they are few."""
        now_s = self._clock()
        newest = [r for at_s, r in tuple(self._ratios) if now_s <= at_s + self._kept_s(r)]
        return median(newest) if len(newest) >= _FEWEST else 1.0

    def _kept_s(self, ratio: float) -> float:
        runs = max(_FORGOTTEN_RUNS, _RECENT * ratio)
        return max(_FORGOTTEN_S, runs * self._longest_s)


class Pace:
    """Seconds from handing a request to a place to its answer, followed over the newest."""

    def __init__(self, begin_s: float, clock: Callable[[], float] = monotonic) -> None:
        self.begin_s = begin_s
        self._recent = RecentRatios(begin_s, clock)

    def note(self, took_s: float) -> None:
        """A request took so long."""
        self._recent.note(took_s / self.begin_s)

    @property
    def expected_s(self) -> float:
        """What it takes by now; at first, and where it has not run of late, what it took at the
        start."""
        return self.begin_s * self._recent.median

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
