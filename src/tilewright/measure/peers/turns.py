"""Comparing engines fairly: in turn, so that drifting clocks hit all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median


def time_in_turn(
    runners: Mapping[str, Callable[[], Sequence[float]]], rounds: int
) -> dict[str, list[float]]:
    """All samples of each runner, in seconds, taken A B A B for `rounds` rounds.

    A runner times itself once more with each call and must leave nothing spinning behind.
    """
    samples_s: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            samples_s[name] += runner()
    return samples_s


def medians(samples_s: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each runner's samples, in seconds."""
    return {name: median(samples) for name, samples in samples_s.items()}
