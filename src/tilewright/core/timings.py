"""Samples of networks that were timed in turn, and speed-ups with an interval from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import comb
from statistics import median
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Raw samples in seconds, round by round in the order they were taken."""

    rounds_s: tuple[tuple[float, ...], ...]

    @property
    def samples_s(self) -> tuple[float, ...]:
        """The samples of all rounds."""
        return tuple(chain.from_iterable(self.rounds_s))

    @property
    def latency_s(self) -> float:
        """Median."""
        return median(self.samples_s)

    @property
    def spread(self) -> float:
        """Interquartile range / median."""
        ordered = sorted(self.samples_s)
        quarter = len(ordered) // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / self.latency_s

    @property
    def medians_s(self) -> tuple[float, ...]:
        """The median of each round."""
        return tuple(median(samples) for samples in self.rounds_s)

    @property
    def variation(self) -> float:
        """By how much the rounds differ: (slowest - fastest) / median of their medians."""
        medians = self.medians_s
        return (max(medians) - min(medians)) / median(medians)

    def speedup_over(self, other: Timing) -> Speedup:
        """How many times as fast as another one of the same rounds this one is."""
        return speedup(ours=self.rounds_s, theirs=other.rounds_s)


class Burst(NamedTuple):
    """Calls one after the other, from `begin_s` to `end_s` by the clock of `perf_counter`, which
    all processes of a machine share. `busy_s` are the seconds of the calls themselves, without what
    is done between them."""

    begin_s: float
    end_s: float
    calls: int
    busy_s: float


CONFIDENCE = 0.9
NOISY_ROUNDS = 0.15
"""Rounds whose medians differ by more than this part of the median tell of a disturbed machine."""
_FEWEST_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """The other's time divided by ours: `value` by the medians of all samples, and an interval.

    `low` and `high` are None where the two were not timed in turn, or in one round only.
    """

    value: float
    low: float | None = None
    high: float | None = None


Rounds = Sequence[Sequence[float]]
"""The samples of each round in seconds."""


def speedup(*, ours: Rounds, theirs: Rounds) -> Speedup:
    """How many times as fast as theirs ours is, from rounds in which both had their turn.

    The interval is that of the median of the rounds' ratios of medians, each round's of one turn
    by the turn beside it, so that a machine that changes its speed between rounds hits both.
    Where that misses `value`, a ratio of other medians, it is widened to hold it.
    """
    value = median(chain.from_iterable(theirs)) / median(chain.from_iterable(ours))
    ratios = [median(other) / median(own) for other, own in zip(theirs, ours, strict=True)]
    if len(ratios) < _FEWEST_ROUNDS:
        return Speedup(value=value)
    low, high = interval_of_median(ratios)
    return Speedup(value=value, low=min(low, value), high=max(high, value))


def speedup_apart(*, ours: Sequence[float], theirs: Sequence[float]) -> Speedup:
    """The same from samples in seconds of two occasions, another machine load included or not.

    The interval is that of the two medians, each at its other end; what happened to the machine
    between the two it cannot know. None with fewer than two samples of one.
    """
    value = median(theirs) / median(ours)
    if min(len(ours), len(theirs)) < _FEWEST_ROUNDS:
        return Speedup(value=value)
    (best, worst), (least, most) = interval_of_median(ours), interval_of_median(theirs)
    return Speedup(value=value, low=least / worst, high=most / best)


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """Between which two of the values the median of what they were drawn from lies.

    The closest pair of order statistics, equally many from either end, that holds it with a
    probability of at least CONFIDENCE, whatever the distribution; the least and the greatest,
    where even those do so less surely (with fewer than five values). Of five values these have
    94 %, of ten the second and the second last 98 %. W. R. Thompson, On Confidence Ranges for the
    Median, Annals of Mathematical Statistics 7 (1936) 122.
    """
    ordered, left_out = sorted(values), 0
    while _outside(left_out + 1, len(values)) <= 1 - CONFIDENCE:
        left_out += 1
    return ordered[left_out], ordered[-1 - left_out]


def _outside(left_out: int, count: int) -> float:
    """How probably the median lies outside `count` values, so many of which are left out on either
    side: as probably as a fair coin falls on one side so many times at most."""
    return 2 * sum(comb(count, below) for below in range(left_out + 1)) / 2**count
