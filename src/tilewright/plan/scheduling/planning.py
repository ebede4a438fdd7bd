"""The planners of scheduling problems by name, and asking one of them."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tilewright.core.errors import InternalError
from tilewright.core.plugins import Offers, PluginError
from tilewright.plan.scheduling.bounds import bound, require_feasible
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.planners.auto import Auto
from tilewright.plan.scheduling.planners.chain_dp import ChainDp
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.planners.heft import Heft
from tilewright.plan.scheduling.planners.ios import InStages, Ios
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.threads import Threads
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import Scheduler

_BUILT_IN: tuple[Scheduler, ...] = (
    Auto(),
    Sequential(),
    Heft(),
    Threads(),
    Ios(),
    InStages(),
    Nash(),
    ChainDp(),
    CpSat(),
)

DEFAULT = "auto"
LIMIT_S = 10.0

SCHEDULERS = Offers[Scheduler](
    "tilewright.schedulers",
    kind="planner of schedules",
    built_in={scheduler.name: scheduler for scheduler in _BUILT_IN},
    needs=("name", "schedule"),
)
"""All of them by name, those of other packages too."""


def schedule_with(name: str, problem: SchedulingProblem, limit_s: float = LIMIT_S) -> Schedule:
    """What the planner called `name` answers, with its objective, the best bound that is known, and
    how long it took.

    Raises UsageError for an unknown name, PluginError where a package offers it that is broken or
    whose schedule breaks a limit, Infeasible where no schedule can keep all limits, NothingFound
    where the planner found none.
    """
    scheduler = SCHEDULERS.named(name)
    require_feasible(problem)
    start = perf_counter()
    found = scheduler.schedule(problem, limit_s)
    elapsed = perf_counter() - start
    broken = next(faults(problem, found), None)
    if broken is not None:
        said = f"the planner {name!r} gave a schedule of {problem.title} that breaks it: {broken}"
        if name in SCHEDULERS.others():
            raise PluginError(said, hint="Choose another with --planner.")
        raise InternalError(said)
    found = judged(problem, found)
    least = min(max(found.bound, bound(problem)), found.objective)
    return replace(found, bound=least, solve_s=elapsed)
