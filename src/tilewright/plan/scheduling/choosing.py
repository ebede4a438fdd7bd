"""The best of several schedules, none of which may break a limit: the one that takes least of the
objective where calls slow each other down as far as that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.quieter import with_quieter_kernels
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.plan.scheduling.scheduler import NothingFound


def best(
    problem: SchedulingProblem, planner: str, attempts: Iterable[Callable[[], Schedule]]
) -> Schedule:
    """The first of the attempts with the least objective (see `least`), of those that raise no
    NothingFound and break no limit, each with the versions of its kernels that are best beside each
    other, too; it goes by the name of `planner`, and all are `considered`.

    Raises NothingFound where there is none, with what was wrong with the first.
    """
    found: list[Schedule] = []
    wrong: list[str] = []
    for attempt in attempts:
        try:
            schedule = attempt()
        except NothingFound as error:
            wrong.append(error.message)
            continue
        broken = next(faults(problem, schedule), None)
        if broken is None:
            quieter = with_quieter_kernels(problem, schedule)
            found += [schedule] if quieter is None else [schedule, quieter]
        else:
            wrong.append(broken)
    if not found:
        reason = wrong[0] if wrong else "it knows no way to try"
        raise NothingFound(
            f"{planner} found no schedule of {problem.title} that keeps all limits; there may be "
            f"one. Its first one: {reason}",
            hint="Try another planner (cpsat searches for longest), or raise the limit.",
        )
    return replace(least(problem, found), planner=planner, considered=gathered(found))


def gathered(schedules: Iterable[Schedule]) -> tuple[Schedule, ...]:
    """The schedules and those that were considered for them, each once."""
    found: dict[tuple[Slot, ...], Schedule] = {}
    for schedule in schedules:
        for each in (replace(schedule, considered=()), *schedule.considered):
            found.setdefault(each.slots, each)
    return tuple(found.values())


def least(problem: SchedulingProblem, schedules: Sequence[Schedule]) -> Schedule:
    """The first schedule with the least objective, calls beside each other being slower."""
    if len(schedules) == 1:
        return schedules[0]
    return min(schedules, key=lambda each: beside_each_other(problem, each).objective)
