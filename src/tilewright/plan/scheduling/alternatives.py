"""The schedules that planners considered anyway, as compromises between what they take.

heft        10 ms   0.50 J   12 MB     chosen
sequential  13 ms   0.31 J    9 MB
sequential  14 ms   0.40 J   11 MB     left out: more of everything
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tilewright.core.schedules import MEASURE, MEASURES, Alternative, Second
from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.choosing import gathered
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import measures
from tilewright.plan.scheduling.pareto import undominated
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound

AsRun = Callable[[SchedulingProblem, Schedule], Schedule]
"""What becomes of a schedule when it is run."""


def alternatives(
    problem: SchedulingProblem,
    chosen: Schedule,
    considered: Sequence[Schedule] = (),
    second: Second | None = None,
    as_run: AsRun | None = None,
) -> tuple[list[Alternative], int]:
    """Of the chosen schedule, those that were considered beside it and one call after the other on
    each device those that no other beats in everything that is known of all of them, or in latency
    and `second` alone, and the chosen one in any case; by rising latency. Then how many there were,
    each keeping all limits. With `as_run` one call after the other is told as it is run; the given
    schedules are as they are told.

    Times are those where calls at a time slow each other down; a period counts only where the
    problem asks for throughput.
    """
    found = [chosen, *considered]
    with suppress(NothingFound):
        alone = gathered([Sequential().schedule(problem, 0.0)])
        found += alone if as_run is None else (as_run(problem, each) for each in alone)
    first, *others = gathered(found)
    every = [_taken(problem, first, chosen=True)]
    every += [_taken(problem, each) for each in others if next(faults(problem, each), None) is None]
    weighed = MEASURES if second is None else ("latency_s", MEASURE[second])
    known = [name for name in weighed if all(getattr(each, name) is not None for each in every)]
    if problem.objective == "throughput" and second is None:
        known.append("period_s")
    front = undominated(every, lambda each: tuple(getattr(each, name) for name in known))
    if every[0] not in front:
        front.append(every[0])
    return sorted(front, key=lambda each: (each.latency_s, not each.chosen)), len(every)


def _taken(problem: SchedulingProblem, schedule: Schedule, *, chosen: bool = False) -> Alternative:
    taken = measures(problem, beside_each_other(problem, schedule))
    used = {
        (schedule.mode_of(problem, slot.call).device, core)
        for slot in schedule.slots
        for core in slot.cores
    }
    return Alternative(
        planner=schedule.planner,
        devices=tuple(sorted({device for device, _ in used})),
        cores=len(used),
        latency_s=taken.latency_s,
        period_s=taken.period_s,
        energy_j=taken.energy_j,
        price=taken.price,
        memory_bytes=sum(taken.peak_memory_bytes.values()),
        chosen=chosen,
    )
