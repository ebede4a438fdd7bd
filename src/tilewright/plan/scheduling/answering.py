"""What a person is told of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

from tilewright.core.schedules import (
    DeviceUse,
    ScheduledSlot,
    ScheduledTransfer,
    ScheduleResult,
    Second,
)
from tilewright.plan.scheduling import planning
from tilewright.plan.scheduling.alternatives import AsRun, alternatives
from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import gathered, least
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import Measures, measures
from tilewright.plan.scheduling.merging import decided
from tilewright.plan.scheduling.pareto import front
from tilewright.plan.scheduling.precedence import waits_of, width, work_over_span
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.robust import at_upper_ends, expected, survival
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.sureness import surely, surely_in_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A problem with a schedule of it, and what a person is told of it."""

    problem: SchedulingProblem
    schedule: Schedule
    result: ScheduleResult


def answer(
    problem: SchedulingProblem,
    planner: str | None,
    limit_s: float,
    *,
    robust: bool = False,
    second: Second | None = None,
    as_run: AsRun | None = None,
) -> Answer:
    """What the planner of this name, or the default one, answers; with `robust` it plans with the
    upper ends of the intervals, and what is told are the expected times. Of the problem's merges
    those that gain are carried out (`merging`): the answer's problem has none left. What that
    search takes, at most about half of `limit_s`, is not left to the planner. With `second` what is
    best in something is the front of latency and that, each search for which takes `limit_s` at
    most. With `as_run` schedules are told as they are run, and by the default planner the one that
    takes least then is chosen, of those that were considered and that of `stages`; or one call
    after the other, where it is not sure that this gains (`sureness`). Raises as `schedule_with`
    and `front`."""
    found = _found(problem, planner, limit_s, robust=robust, second=second, as_run=as_run)
    if as_run is not None and found.by_default:
        found = found.keeping(surely(found.problem, found.schedule, as_run))
    return _told(found, second, as_run)


def answer_in_parts(
    problem: SchedulingProblem,
    planner: str | None,
    limit_s: float,
    *,
    robust: bool = False,
    second: Second | None = None,
) -> Answer:
    """The same of a problem of networks that are carried out in parts, several at a time or over
    several devices: all of it one call after the other on one device, by the default planner, where
    it is not sure that its schedule gains over that."""
    found = _found(problem, planner, limit_s, robust=robust, second=second)
    if not found.by_default:
        return _told(found, second)
    kept = found.keeping(surely_in_parts(found.problem, found.schedule))
    alone = kept.schedule if kept.schedule is not found.schedule else None
    return _told(kept, second, alone=alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The schedule that is chosen of a problem, and those that were considered beside it; whether
    by the default planner."""

    problem: SchedulingProblem
    schedule: Schedule
    considered: tuple[Schedule, ...]
    by_default: bool

    def keeping(self, schedule: Schedule) -> _Found:
        """The same with another schedule chosen instead, or with this one."""
        return replace(self, schedule=schedule, considered=(self.schedule, *self.considered))


def _found(
    problem: SchedulingProblem,
    planner: str | None,
    limit_s: float,
    *,
    robust: bool,
    second: Second | None,
    as_run: AsRun | None = None,
) -> _Found:
    name = planner or planning.DEFAULT
    planning.SCHEDULERS.named(name)
    if problem.merges:
        begin = perf_counter()
        problem = decided(problem, at_upper_ends if robust else lambda each: each, limit_s / 2)
        limit_s = max(limit_s / 2, limit_s - (perf_counter() - begin))
    counted = at_upper_ends(problem) if robust else problem
    points = front(counted, second, limit_s=limit_s) if second is not None else []
    schedule = planning.schedule_with(name, counted, limit_s)
    others = [point.schedule for point in points]
    if as_run is not None:
        others = _that_keep_limits(counted, others, as_run)
        rivals = list[Schedule]()
        if name == planning.DEFAULT:
            rivals = [*schedule.considered]
            with suppress(NothingFound):
                rivals.append(planning.schedule_with("stages", counted, limit_s))
        schedule = _as_run(counted, schedule, rivals, as_run)
    considered = (*others, *schedule.considered)
    schedule = replace(schedule, considered=())
    if robust:
        schedule = _expected(problem, schedule, as_run)
        considered = tuple(_expected(problem, each, as_run) for each in considered)
    return _Found(
        problem=problem,
        schedule=schedule,
        considered=considered,
        by_default=name == planning.DEFAULT,
    )


def _told(
    found: _Found, second: Second | None, as_run: AsRun | None = None, alone: Schedule | None = None
) -> Answer:
    problem, schedule = found.problem, found.schedule
    given = answered(problem, schedule, as_run, alone)
    listed, count = alternatives(problem, schedule, found.considered, second, as_run)
    told = replace(given.result, front=tuple(listed), considered=count, front_of=second or "")
    return replace(given, result=told)


def _expected(problem: SchedulingProblem, schedule: Schedule, as_run: AsRun | None) -> Schedule:
    """The schedule with the expected times, as it is run."""
    found = expected(problem, schedule)
    return found if as_run is None else replace(as_run(problem, found), planner=found.planner)


def _as_run(
    problem: SchedulingProblem, schedule: Schedule, others: Sequence[Schedule], as_run: AsRun
) -> Schedule:
    """A schedule as it is run, or the one of the others that takes less then; none that breaks a
    limit then. Raises NothingFound where all do."""
    known = gathered([replace(schedule, considered=()), *others])
    kept = _that_keep_limits(problem, known, as_run)
    if not kept:
        raise NothingFound(
            f"{schedule.planner} found no schedule that keeps all limits as it is run, in stages; "
            "there may be one"
        )
    found = least(problem, kept)
    chosen = f"; of {len(known)} schedules this one of {found.planner} takes least as it is run"
    return replace(
        found,
        planner=schedule.planner,
        bound=min(schedule.bound, found.objective),
        solve_s=schedule.solve_s,
        note=schedule.note + chosen * (found != as_run(problem, known[0])),
        details=schedule.details,
        considered=gathered(kept),
    )


def _that_keep_limits(
    problem: SchedulingProblem, schedules: Sequence[Schedule], as_run: AsRun
) -> list[Schedule]:
    """Schedules as they are run, without those that break a limit then."""
    run = (as_run(problem, each) for each in gathered(schedules))
    return [each for each in run if next(faults(problem, each), None) is None]


def answered(
    problem: SchedulingProblem,
    schedule: Schedule,
    as_run: AsRun | None = None,
    alone: Schedule | None = None,
) -> Answer:
    """A schedule of a problem with what is told of it, as `result_of` does."""
    told = result_of(problem, schedule, as_run, alone)
    return Answer(problem=problem, schedule=schedule, result=told)


def result_of(
    problem: SchedulingProblem,
    schedule: Schedule,
    as_run: AsRun | None = None,
    alone: Schedule | None = None,
) -> ScheduleResult:
    """A schedule as the verb `plan` tells it, beside one call after the other, with `as_run` as
    that is run, too; beside `alone`, where that is given."""
    found, sequential, left = measures(problem, schedule), None, None
    with suppress(NothingFound):
        if alone is None:
            alone = planning.schedule_with("sequential", problem)
            alone = alone if as_run is None else as_run(problem, alone)
        sequential, left = alone.objective, survival(problem, schedule, alone)
    waits = waits_of(problem)
    fastest = [
        min(call.modes[place].latency_s for place in places)
        for call, places in zip(problem.calls, usable_modes(problem), strict=True)
    ]
    return ScheduleResult(
        name=problem.name,
        objective=problem.objective,
        planner=schedule.planner,
        value=schedule.objective,
        bound=schedule.bound,
        gap=schedule.gap,
        solve_s=schedule.solve_s,
        latency_s=found.latency_s,
        period_s=found.period_s,
        energy_j=found.energy_j,
        energy_reason=found.energy_reason,
        price=found.price,
        sequential=sequential,
        width=width(waits),
        work_over_span=work_over_span(waits, fastest),
        slots=_slots(problem, schedule),
        transfers=tuple(
            ScheduledTransfer(
                call=way.call,
                origin=way.origin,
                destination=way.destination,
                begin_s=way.begin_s,
                end_s=way.end_s,
                link_is=problem.link[way.origin, way.destination].link_is,
            )
            for way in schedule.transfers
        ),
        devices=_devices(problem, schedule, found),
        gain=left and left.expected,
        gain_at_upper_ends=left and left.upper,
        gain_beside=left and left.beside,
        gain_low=left and left.low,
        gain_high=left and left.high,
        note=schedule.note,
        details=dict(schedule.details),
    )


def _slots(problem: SchedulingProblem, schedule: Schedule) -> tuple[ScheduledSlot, ...]:
    return tuple(
        ScheduledSlot(
            call=slot.call,
            network=problem.calls[problem.numbers[slot.call]].network,
            device=mode.device,
            cores=slot.cores,
            begin_s=slot.begin_s,
            end_s=slot.end_s,
            kernel=mode.kernel,
            source=mode.source,
            marks=mode.marks,
        )
        for slot in schedule.slots
        for mode in [schedule.mode_of(problem, slot.call)]
    )


def _devices(
    problem: SchedulingProblem, schedule: Schedule, found: Measures
) -> tuple[DeviceUse, ...]:
    spent = {device.name: 0.0 for device in problem.devices}
    metered = {device.name: device.idle_w is not None for device in problem.devices}
    for slot in schedule.slots:
        mode = schedule.mode_of(problem, slot.call)
        spent[mode.device] += len(slot.cores) * (slot.end_s - slot.begin_s)
        metered[mode.device] &= mode.energy_j is not None
    return tuple(
        DeviceUse(
            name=device.name,
            kind=device.kind,
            cores=device.cores,
            busy=spent[device.name] / (device.cores * found.latency_s) if found.latency_s else 0.0,
            peak_memory_bytes=found.peak_memory_bytes[device.name],
            memory_bytes=device.memory_bytes,
            peak_power_w=found.peak_power_w[device.name] if metered[device.name] else None,
            power_w=device.power_w,
        )
        for device in problem.devices
    )
