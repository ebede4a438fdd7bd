"""Which cores calls have, where it was only counted how many.

conv1   2 cores    0 to 50      0, 1
conv2   1 core    50 to 90      0       a hand-off after conv1
conv3   1 core    90 to 120     0       none after conv2, as it has the same core
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.plan.scheduling.capacities import ROUNDING
from tilewright.plan.scheduling.problem import SchedulingProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A call's mode, when it begins and ends, in seconds."""

    mode: int
    begin_s: float
    end_s: float


def core_numbers(
    problem: SchedulingProblem, timed: Sequence[Timed]
) -> list[tuple[int, ...]] | None:
    """The cores of each call, in their order; calls at a time have different ones, and a call that
    begins before a hand-off would be over has those of the call it waits for.

    None where that was not found. Without hand-offs it always is, if no more cores are wanted at a
    time than there are.
    """
    margin = ROUNDING * max((each.end_s for each in timed), default=0.0)
    tied = [_tied(problem, timed, number, margin) for number in range(len(timed))]
    leaving = {before for others in tied for before in others}
    free_s = {device.name: [0.0] * device.cores for device in problem.devices}
    claimed: dict[str, set[int]] = {device.name: set() for device in problem.devices}
    given: list[tuple[int, ...]] = [()] * len(timed)
    for number in sorted(range(len(timed)), key=lambda each: (timed[each].begin_s, each)):
        each, mode = timed[number], problem.calls[number].modes[timed[number].mode]
        ends, claims, lasting = free_s[mode.device], claimed[mode.device], each.end_s > each.begin_s
        idle = {c for c, end in enumerate(ends) if not lasting or end <= each.begin_s + margin}
        wanted = {given[before] for before in tied[number]}
        if not wanted and len(idle) >= mode.cores:
            last = {core for before, _ in problem.before[number] for core in given[before]}
            order = sorted(idle, key=lambda c: (c in claims, c not in last, -ends[c], c))
            wanted = {tuple(sorted(order[: mode.cores]))}
        cores = wanted.pop() if len(wanted) == 1 else ()
        if len(cores) != mode.cores or not idle.issuperset(cores):
            return None
        given[number] = cores
        claims.difference_update(cores)
        if number in leaving:
            claims.update(cores)
        for core in cores if lasting else ():
            ends[core] = each.end_s
    return given


def _tied(
    problem: SchedulingProblem, timed: Sequence[Timed], number: int, margin: float
) -> list[int]:
    """The calls on the same device that a call waits for and begins right after."""
    device = problem.calls[number].modes[timed[number].mode].device
    return [
        before
        for before, _ in problem.before[number]
        if problem.calls[before].modes[timed[before].mode].device == device
        and timed[number].begin_s < timed[before].end_s + problem.handoff_s - margin
    ]
