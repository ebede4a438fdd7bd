"""Fronts of latency and what else counts, and plans with upper ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.scheduling import MICRO, mode, plain_problem
from tilewright.core.errors import ModelError, UsageError
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import measures
from tilewright.plan.scheduling.pareto import front
from tilewright.plan.scheduling.parts import Link, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.robust import at_upper_ends, expected, survival


def towers(calls: int = 4, **named: object) -> SchedulingProblem:
    """Two towers and a head: the accelerator is faster at images, the CPU draws less and is as fast
    at text."""
    text = (mode("cpu", us=30, energy_j=30e-6), mode("cuda", us=25, energy_j=90e-6))
    image = (mode("cpu", us=120, energy_j=150e-6), mode("cuda", us=30, energy_j=90e-6))
    names = [f"{kind}{number}" for kind in ("text", "image") for number in range(calls)]
    waits = [
        (f"{kind}{number}", f"{kind}{number + 1}")
        for kind in ("text", "image")
        for number in range(calls - 1)
    ]
    waits += [(f"{kind}{calls - 1}", "head") for kind in ("text", "image")]
    given: dict[str, object] = {
        "devices": (
            ScheduleDevice(name="cpu", idle_w=0.2, price_per_hour=1.0),
            ScheduleDevice(name="cuda", kind="cuda", idle_w=0.3, price_per_hour=2.0),
        ),
        "calls": tuple(
            ScheduledCall(
                name=name,
                modes=image if name.startswith("image") else text,
                answer=name == "head",
                output_bytes=1000,
            )
            for name in [*names, "head"]
        ),
        "waits": tuple(Wait(before=a, after=b, bytes=1000) for a, b in waits),
        "links": tuple(
            Link(origin=a, destination=b, latency_s=2 * MICRO, bytes_per_s=1e9)
            for a, b in (("cpu", "cuda"), ("cuda", "cpu"))
        ),
        **named,
    }
    return SchedulingProblem(**given)  # type: ignore[arg-type]


def test_two_towers_on_two_devices_beat_the_better_device() -> None:
    problem = towers()
    found = schedule_with("cpsat", problem)
    alone = [
        sum(
            min((m.latency_s for m in call.modes if m.device == device), default=1.0)
            for call in problem.calls
        )
        for device in ("cpu", "cuda")
    ]
    assert found.gap == 0.0
    assert min(alone) / found.objective >= 1.2


def test_much_energy_is_saved_for_little_latency_where_the_table_allows() -> None:
    """Text ends long before images on the CPU, too."""
    problem = towers()
    fast = replace(problem, devices=tuple(replace(d, idle_w=0.0) for d in problem.devices))
    points = front(fast, "energy", points=5, limit_s=5.0)
    assert points[0].latency_s == pytest.approx(schedule_with("cpsat", fast).objective, rel=1e-6)
    assert [p.latency_s for p in points] == sorted(p.latency_s for p in points)
    energies = [p.second for p in points]
    assert energies == sorted(energies, reverse=True)
    on_card = sum(each.modes[1].energy_j or 0.0 for each in problem.calls)
    saving = min(p.second for p in points if p.latency_s <= 1.05 * points[0].latency_s)
    assert saving <= 0.7 * on_card


def test_every_point_of_a_front_keeps_the_limits() -> None:
    problem = towers(2)
    for second in ("energy", "price", "memory"):
        for point in front(problem, second, points=3, limit_s=0.4):
            assert list(faults(problem, point.schedule)) == []
            found = measures(problem, point.schedule)
            value = {
                "energy": found.energy_j,
                "price": found.price,
                "memory": sum(found.peak_memory_bytes.values()),
            }[second]
            assert point.second == pytest.approx(value)


def test_what_nobody_knows_has_no_front() -> None:
    problem = plain_problem({"a": (mode(),)})
    with pytest.raises(ModelError, match="energy counts, and nobody knows"):
        front(problem, "energy")
    with pytest.raises(UsageError, match="a front of 1 points is none"):
        front(problem, "memory", points=1)


def test_a_plan_for_the_worst_avoids_what_may_take_long() -> None:
    """Beside each other b and c are faster if all goes well, and much slower if not."""
    risky = (mode(us=20, high_s=60 * MICRO), mode(cores=2, us=12))
    problem = plain_problem({"b": risky, "c": risky})
    found = schedule_with("cpsat", problem)
    assert found.objective == pytest.approx(20 * MICRO)
    left = survival(problem, found)
    assert left.expected == pytest.approx(1.2) and left.upper == pytest.approx(0.4)
    worst = at_upper_ends(problem)
    safe = expected(problem, schedule_with("cpsat", worst))
    assert list(faults(problem, safe)) == [] and safe.note.startswith("planned at upper ends")
    assert safe.objective == pytest.approx(24 * MICRO)
    assert survival(problem, safe).upper == pytest.approx(1.0)
