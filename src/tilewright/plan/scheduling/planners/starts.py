"""What planners that need no search find, for those that do to begin with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf

from tilewright.plan.scheduling.planners.heft import Heft
from tilewright.plan.scheduling.planners.ios import Ios
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.threads import Threads
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound, Scheduler

QUICK: tuple[Scheduler, ...] = (Sequential(), Heft(), Threads(), Ios(), Nash(most_s=inf))
_SHARE = 0.1
"""Of the time that a search has."""
_STEPS_PER_S = 10_000
"""Of `ios`, which knows no time: 100,000 took 4.3 s for 208 calls and 6 to 12 s for 57 of which
twelve can run beside each other."""
_ENDINGS, _LEAST_ENDINGS = 30_000, 100
"""Of one set of calls of each size, at most, which it looks at however few steps it has, and of one
such set: with 500 endings of each that took 2.2 s of 478 calls."""


def quick_schedules(problem: SchedulingProblem, limit_s: float) -> list[Schedule]:
    """Their schedules, the best first; none of a planner that found none."""
    found: list[Schedule] = []
    for planner in QUICK:
        if isinstance(planner, Ios):
            steps = int(_STEPS_PER_S * _SHARE * limit_s)
            endings = max(_LEAST_ENDINGS, _ENDINGS // len(problem.calls))
            planner = replace(
                planner,
                most_steps=min(planner.most_steps, max(1, steps)),
                most_endings=min(planner.most_endings, endings),
            )
        with suppress(NothingFound):
            found.append(planner.schedule(problem, _SHARE * limit_s))
    return sorted(found, key=lambda schedule: schedule.objective)
