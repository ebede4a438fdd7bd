"""Comparing engines fairly: in turn, so that drifting clocks hit all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def time_in_turn(
    runners: Mapping[str, Callable[[], Sequence[float]]], rounds: int
) -> dict[str, list[tuple[float, ...]]]:
    """The samples of each runner, in seconds, round by round, taken A B A B for `rounds` rounds.

    A runner times itself once more with each call and must leave nothing spinning behind.
    """
    rounds_s: dict[str, list[tuple[float, ...]]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            rounds_s[name].append(tuple(runner()))
    return rounds_s
