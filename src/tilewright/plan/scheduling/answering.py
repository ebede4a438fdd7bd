"""What a person is told of a schedule."""

from __future__ import annotations

from pathlib import Path

from tilewright.core.schedules import (
    DeviceUse,
    ScheduledSlot,
    ScheduledTransfer,
    ScheduleResult,
)
from tilewright.plan.scheduling import planning
from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.measures import Measures, measures
from tilewright.plan.scheduling.precedence import waits_of, width, work_over_span
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.problem_file import read_problem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound


def plan_file(path: Path, planner: str | None, limit_s: float) -> ScheduleResult:
    """Plan the scheduling problem in a file, by the planner of this name or by the default one.

    Raises as `schedule_with`, ModelError for a file that is missing, broken, or holds what cannot
    be planned.
    """
    name = planner or planning.DEFAULT
    problem = read_problem(path)
    schedule = planning.schedule_with(name, problem, limit_s)
    return result_of(problem, schedule, path.stem)


def result_of(problem: SchedulingProblem, schedule: Schedule, title: str) -> ScheduleResult:
    """A schedule as the verb `plan` tells it; `title` is for a problem without a name."""
    found = measures(problem, schedule)
    try:
        sequential = planning.schedule_with("sequential", problem).objective
    except NothingFound:
        sequential = None
    waits = waits_of(problem)
    fastest = [
        min(call.modes[place].latency_s for place in places)
        for call, places in zip(problem.calls, usable_modes(problem), strict=True)
    ]
    return ScheduleResult(
        name=problem.name or title,
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
            )
            for way in schedule.transfers
        ),
        devices=_devices(problem, schedule, found),
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
        )
        for slot in schedule.slots
        for mode in [schedule.mode_of(problem, slot.call)]
    )


def _devices(
    problem: SchedulingProblem, schedule: Schedule, found: Measures
) -> tuple[DeviceUse, ...]:
    spent = {device.name: 0.0 for device in problem.devices}
    for slot in schedule.slots:
        device = schedule.mode_of(problem, slot.call).device
        spent[device] += len(slot.cores) * (slot.end_s - slot.begin_s)
    return tuple(
        DeviceUse(
            name=device.name,
            kind=device.kind,
            cores=device.cores,
            busy=spent[device.name] / (device.cores * found.latency_s) if found.latency_s else 0.0,
            peak_memory_bytes=found.peak_memory_bytes[device.name],
            memory_bytes=device.memory_bytes,
            peak_power_w=found.peak_power_w[device.name],
            power_w=device.power_w,
        )
        for device in problem.devices
    )
