"""A known schedule's calls take modes that are worth their energy."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.parts import Limits, ScheduleDevice
from tilewright.plan.scheduling.planners.constraint_solution import Outcome
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.planners.heft import Heft
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.thrift import thriftier
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem

CLOCKS = (mode(us=100, energy_j=10.0), mode(us=104, energy_j=6.0))
SMALL = (mode(us=2, energy_j=1.0), mode(us=20, energy_j=0.1))


def problem(within_us: float, **named: object) -> SchedulingProblem:
    """Three long calls with a slower clock each, and a short one that is slow without energy."""
    limits = Limits(deadlines_s={"": within_us * MICRO})
    return plain_problem(
        {**dict.fromkeys("abc", CLOCKS), "d": SMALL},
        "a>b b>c c>d",
        devices=(ScheduleDevice(name="cpu", idle_w=0.0),),
        **{"objective": "energy", "limits": limits, **named},
    )


@pytest.mark.parametrize(
    ("within_us", "energy_j"), [(302, 31.0), (306, 27.0), (313, 23.0), (316, 19.0), (332, 18.1)]
)
def test_what_time_is_left_buys_energy(within_us: float, energy_j: float) -> None:
    """Where it does not suffice for all calls, those that save most have it."""
    asked = problem(within_us)
    fast = Heft().schedule(replace(asked, objective="latency"), 1.0)
    assert fast.latency_s == pytest.approx(302 * MICRO)
    found = thriftier(asked, fast, inf)
    assert found is not None and next(faults(asked, found), None) is None
    assert found.objective == pytest.approx(energy_j)


def test_a_limit_of_energy_is_met_from_a_schedule_that_breaks_it() -> None:
    asked = problem(0, objective="latency", limits=Limits(deadlines_s={}, energy_j=20.0))
    fast = Heft().schedule(replace(asked, limits=Limits(deadlines_s={})), 1.0)
    found = thriftier(asked, fast, inf)
    assert found is not None and found.objective == pytest.approx(314 * MICRO)
    assert thriftier(problem(301), fast, inf) is None


def test_energy_is_saved_in_another_order() -> None:
    """Beside `a`, whose slow version is as long as both, `b` and `c` go one after the other on one
    core; only where `a` begins first does its slow version end in time."""
    long = (mode(us=100, energy_j=10.0), mode(us=120, energy_j=2.0))
    short = (mode(us=60, energy_j=1.0),)
    asked = plain_problem(
        {"b": short, "c": short, "a": long},
        devices=(ScheduleDevice(name="cpu", cores=2, idle_w=0.0),),
        objective="energy",
        limits=Limits(deadlines_s={"": 160 * MICRO}),
    )
    late = decode(replace(asked, objective="latency"), [0, 1, 2], [0, 0, 0])
    assert late.latency_s == pytest.approx(160 * MICRO)
    found = thriftier(asked, late, inf)
    assert found is not None and found.objective == pytest.approx(4.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_it_keeps_all_limits(seed: int) -> None:
    asked = random_problem(seed, calls=9, devices=3, cores=3, objective="energy")
    start = judged(asked, Sequential().schedule(asked, 1.0))
    found = thriftier(asked, start, inf)
    if found is not None:
        assert next(faults(asked, found), None) is None


def test_what_no_search_finds_is_saved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower clock takes 4 % more time and 40 % less energy of all that the card does."""
    monkeypatch.setattr(CpSat, "_solved", lambda *_: Outcome())
    calls = {f"c{n}": CLOCKS for n in range(12)}
    waits = " ".join(f"c{n}>c{n + 1}" for n in range(11))
    fast = plain_problem(calls, waits, devices=(ScheduleDevice(name="cpu", idle_w=0.0),))
    within = Limits(deadlines_s={"": 1.05 * 1200 * MICRO})
    found = schedule_with("cpsat", replace(fast, objective="energy", limits=within))
    assert found.objective == pytest.approx(0.6 * 120)
