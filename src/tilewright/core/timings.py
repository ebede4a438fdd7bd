"""Samples of a network that was timed in turn with others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from statistics import median

from tilewright.core.speedups import Speedup, speedup


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
    def variation(self) -> float:
        """By how much the rounds differ: (slowest - fastest) / median of their medians."""
        medians = [median(samples) for samples in self.rounds_s]
        return (max(medians) - min(medians)) / median(medians)

    def speedup_over(self, other: Timing) -> Speedup:
        """How many times as fast as another one of the same rounds this one is."""
        return speedup(ours=self.rounds_s, theirs=other.rounds_s)
