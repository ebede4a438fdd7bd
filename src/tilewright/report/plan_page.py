"""The page of a plan: what runs where over time, what else could, memory, and the numbers."""

from __future__ import annotations

from tilewright.core.schedules import ScheduleResult
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.report import fronts, gantt, schedules
from tilewright.report.html import environment


def render_plan(problem: SchedulingProblem, schedule: Schedule, result: ScheduleResult) -> str:
    """The whole page as text; write it as UTF-8. Self-contained, as all pages are."""
    return (
        environment()
        .get_template("plan.html.j2")
        .render(
            result=result,
            gained=schedules.gained(result),
            gantt=gantt.chart(result),
            compromises=schedules.compromises(result),
            fronts=fronts.charts(result),
            memory=gantt.memory_charts(problem, schedule),
            tables=(
                schedules.summary(result),
                schedules.DEVICES.of(result.devices),
                *([schedules.FRONT.of(result.front)] if len(result.front) > 1 else []),
                schedules.SLOTS.of(result.slots),
                schedules.TRANSFERS.of(result.transfers),
            ),
        )
    )
