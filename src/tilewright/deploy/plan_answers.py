"""How plans of networks are carried out, which says by what rule they are answered; and their
pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.core.output_files import write_text
from tilewright.core.schedules import ScheduleResult
from tilewright.deploy.planned_network import HERE
from tilewright.plan.lanes import in_its_stages
from tilewright.plan.scheduling.alternatives import AsRun
from tilewright.plan.scheduling.answering import Answer
from tilewright.plan.scheduling.plan_file import PlannedNetwork
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.report.plan_page import render_plan
from tilewright.report.traces import trace

TRACE, PAGE = "trace.json", "plan.html"


def run_as(networks: Sequence[PlannedNetwork], problem: SchedulingProblem) -> AsRun | None:
    """How schedules are run that are of one network on several cores of this CPU: in stages."""
    (device, *others), named = problem.devices, {call.network for call in problem.calls}
    alone = not others and len(named) == 1
    here = alone and device.name == HERE and device.cores > 1
    return in_its_stages if networks and here and problem.objective == "latency" else None


def runs_in_parts(networks: Sequence[PlannedNetwork], problem: SchedulingProblem) -> bool:
    """Whether this is of several networks at a time, or over several devices, for the least
    latency: what is run in parts, each of one network at a place."""
    several = max(len(networks), len(problem.devices)) > 1
    return bool(networks) and several and problem.objective == "latency"


def write_pictures(folder: Path, found: Answer, traced: Mapping[str, ScheduleResult]) -> None:
    """Write a page of a plan, and a trace of what is said by name, to a folder. Raises OutputError
    where they cannot be written."""
    page = render_plan(found.problem, found.schedule, found.result)
    write_text(folder / TRACE, trace(traced))
    write_text(folder / PAGE, page)
