"""Plans of networks whose calls are put where a test wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.core.planning import PlanningData, PlanningMode
from tilewright.core.records import Placement
from tilewright.deploy import planning
from tilewright.plan.scheduling.parts import Link, Mode, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.plan_file import Plan, PlannedDevice, PlannedNetwork
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem

HANDOFF_S, SIZE = 1e-3, 64


def predict_equal_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are predicted to take as long as each other, so that one is better than two."""
    predicted = planning.data_of

    def equal(*given: Any) -> PlanningData:
        found = predicted(*given)
        calls = (replace(c, modes=tuple(map(as_long, c.modes))) for c in found.calls)
        return replace(found, calls=tuple(calls))

    def as_long(mode: PlanningMode) -> PlanningMode:
        seconds = 1e-4 if mode.forms else 0.0
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)

    monkeypatch.setattr(planning, "data_of", equal)


def spread(plan: Plan, where: Mapping[str, str]) -> Plan:
    """The plan with calls on the devices that are named, which are made out to be faster there."""

    def told(mode: Mode, call: str) -> Mode:
        seconds = 1e-4 if where.get(call, mode.device) == mode.device else 1e-2
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)

    calls = tuple(
        replace(call, task="", modes=tuple(told(mode, call.name) for mode in call.modes))
        for call in plan.problem.calls
    )
    problem = replace(plan.problem, calls=calls)
    return replace(plan, problem=problem, schedule=schedule_with("heft", problem))


def placed_plan(
    model: Path,
    placements: Mapping[str, Placement],
    reads: Mapping[str, Sequence[str]],
    where: Mapping[str, str],
) -> Plan:
    """The plan of a network on one core of a CPU, which is named first, and on GPUs, without
    anything that is predicted: each call is computed on all of them, and best where it is said to
    be. A call reads what calls are named, or inputs of the network."""
    host, *_ = placements
    at_host = (Mode(device=host, latency_s=0.0, low_s=0.0, high_s=0.0),)
    inputs = {name for names in reads.values() for name in names} - reads.keys()
    calls = [ScheduledCall(name=f"input {name}", network="net", modes=at_host) for name in inputs]
    waits = list[Wait]()
    for name, others in reads.items():
        times = {device: 1e-4 if device == where[name] else 1e-2 for device in placements}
        modes = tuple(
            Mode(device=device, latency_s=s, low_s=s, high_s=s, kernel="some")
            for device, s in times.items()
        )
        calls.append(ScheduledCall(name=name, network="net", modes=modes, output_bytes=SIZE))
        befores = (f"input {each}" if each in inputs else each for each in others)
        waits += [Wait(before=before, after=name, bytes=SIZE) for before in befores]
    last = [name for name in reads if not any(name in others for others in reads.values())]
    calls.append(ScheduledCall(name="outputs", network="net", modes=at_host, answer=True))
    waits += [Wait(before=name, after="outputs", bytes=SIZE) for name in last]
    problem = SchedulingProblem(
        devices=tuple(
            ScheduleDevice(name=name, kind=each.target.kind, cores=1)
            for name, each in placements.items()
        ),
        calls=tuple(calls),
        waits=tuple(waits),
        links=tuple(
            Link(origin=a, destination=b, latency_s=1e-6, bytes_per_s=1e10)
            for a in placements
            for b in placements
            if a != b
        ),
        handoff_s=HANDOFF_S,
    )
    return Plan(
        problem=problem,
        schedule=schedule_with("heft", problem),
        networks=(PlannedNetwork(name="net", model=str(model)),),
        devices=tuple(
            PlannedDevice(name=name, machine=each.device.class_key)
            for name, each in placements.items()
        ),
    )
