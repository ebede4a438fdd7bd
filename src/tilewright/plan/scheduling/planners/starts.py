"""What planners that need no search find, for those that do to begin with."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf

from tilewright.plan.scheduling.planners.heft import Heft
from tilewright.plan.scheduling.planners.ios import Ios
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.threads import Threads
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound, Scheduler

QUICK: tuple[Scheduler, ...] = (Sequential(), Heft(), Threads(), Ios())
_SHARE = 0.1
"""Of the time that a search has."""
GAMES = 0.4
"""Of it for the games of `nash`, which end by themselves in small problems; in large ones they find
more than CP-SAT does in the time that is left."""


def quick_schedules(
    problem: SchedulingProblem, limit_s: float, games: float = GAMES
) -> list[Schedule]:
    """Their schedules, the best first; none of a planner that found none. `games` is the share of
    the time that `nash` may take."""
    found: list[Schedule] = []
    attempts = [partial(planner.schedule, problem, _SHARE * limit_s) for planner in QUICK]
    for attempt in (*attempts, partial(Nash(most_s=inf).schedule, problem, games * limit_s)):
        with suppress(NothingFound):
            found.append(attempt())
    return sorted(found, key=lambda schedule: schedule.objective)
