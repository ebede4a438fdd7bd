"""Bounds that are known by hand, and limits that nobody can keep."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems, random_problem
from tilewright.plan.scheduling import bounds
from tilewright.plan.scheduling.bounds import bound, require_feasible
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.parts import (
    NO_LIMITS,
    Limits,
    Link,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.planners.thrift import thriftier
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import Infeasible

CPU = ScheduleDevice(name="cpu", cores=2)
PRICED = replace(CPU, idle_w=3.0, price_per_hour=3.6)


def test_a_chain_takes_its_fastest_modes() -> None:
    problem = plain_problem({name: on_cores(20) for name in "abc"}, "a>b b>c")
    assert bound(problem) == pytest.approx(30 * MICRO)


def test_work_is_shared_by_cores() -> None:
    calls = {name: (mode(us=8), mode(cores=2, us=5)) for name in "abcd"}
    assert bound(plain_problem(calls)) == pytest.approx(16 * MICRO)
    narrow = replace(CPU, bytes_per_s=1e8)
    moving = {name: (mode(us=8, moved_bytes=800),) for name in "abcd"}
    assert bound(plain_problem(moving, devices=(narrow,))) == pytest.approx(32 * MICRO)
    capped = replace(CPU, power_w=5.0, idle_w=1.0)
    drawing = {name: (mode(us=8, energy_j=24 * MICRO),) for name in "abcd"}
    assert bound(plain_problem(drawing, devices=(capped,))) == pytest.approx(24 * MICRO)


def two_devices(**named: Any) -> SchedulingProblem:
    """Four calls: 30 µs on the one device, 60 µs on the other."""
    both = (mode("fast", us=30), mode("slow", us=60))
    return SchedulingProblem(
        devices=(
            ScheduleDevice(name="fast", price_per_hour=3.0, idle_w=1.0),
            ScheduleDevice(name="slow", price_per_hour=1.0, idle_w=1.0),
        ),
        calls=tuple(ScheduledCall(name=name, modes=both, answer=True) for name in "abcd"),
        **named,
    )


def test_work_is_shared_by_devices_as_a_linear_program_would() -> None:
    assert bound(two_devices()) == pytest.approx(80 * MICRO, rel=1e-5)
    assert bound(two_devices(objective="throughput")) == pytest.approx(80 * MICRO, rel=1e-5)
    # 120 µs on the fast one, 240 µs on the slow one, 80 µs on both
    assert bound(two_devices(objective="price")) * 3600 == pytest.approx(240 * MICRO, rel=1e-5)


def test_transfers_count_where_they_must_be() -> None:
    link = Link(origin="cpu", destination="cuda", latency_s=5 * MICRO, bytes_per_s=1e9)
    problem = SchedulingProblem(
        devices=(CPU, ScheduleDevice(name="cuda")),
        calls=(
            ScheduledCall(name="a", modes=(mode(us=10),)),
            ScheduledCall(name="b", modes=(mode(us=50), mode("cuda", us=3))),
        ),
        waits=(Wait(before="a", after="b", bytes=2000),),
        links=(link,),
    )
    assert bound(problem) == pytest.approx(20 * MICRO)


def test_ways_and_work_count_together() -> None:
    """With a part p of a, b and c on both cores their way takes 24 − 9p, all work (32 + 6p) / 2:
    the same where p is 2/3. All on both cores the way takes 15, on one all work 16."""
    two = (mode(us=8), mode(cores=2, us=5))
    problem = plain_problem(dict.fromkeys("abcd", two), "a>b b>c")
    assert bound(problem) == pytest.approx(18 * MICRO, rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_is_below_the_bound(problem: SchedulingProblem) -> None:
    for planner in ("heft", "nash"):
        assert schedule_with(planner, problem).objective >= bound(problem) * (1 - 1e-9)


@pytest.mark.parametrize(("within_us", "energy_j"), [(200, 20), (202, 18), (204, 16), (208, 12)])
def test_energy_within_a_deadline(within_us: float, energy_j: float) -> None:
    """Each joule that is saved costs a microsecond; a call may save a part of its four."""
    clocks = (mode(us=100, energy_j=10.0), mode(us=104, energy_j=6.0))
    limits = Limits(deadlines_s={"": within_us * MICRO})
    only = ScheduleDevice(name="cpu", idle_w=0.0)
    problem = plain_problem(
        {"a": clocks, "b": clocks}, devices=(only,), objective="energy", limits=limits
    )
    assert bound(problem) == pytest.approx(energy_j, rel=1e-4)
    capped = replace(limits, energy_j=energy_j - 0.1)
    with pytest.raises(Infeasible, match="energy_j"):
        require_feasible(replace(problem, limits=capped))


def test_energy_is_not_bounded_where_nothing_limits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def energy(*_: object) -> float:
        raise AssertionError("the program was solved")

    monkeypatch.setattr(bounds, "least_energy_j", energy)
    problem = plain_problem({"a": (mode(us=10, energy_j=1.0),)}, devices=(PRICED,))
    require_feasible(replace(problem, limits=Limits(deadlines_s={"": 20 * MICRO})))
    with pytest.raises(AssertionError):
        require_feasible(replace(problem, limits=Limits(deadlines_s={}, energy_j=2.0)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), slack=st.floats(1.0, 1.5))
def test_no_schedule_draws_less_in_time_than_the_bound(seed: int, slack: float) -> None:
    problem = random_problem(seed, calls=7, limits=False, objective="energy")
    fast = schedule_with("heft", replace(problem, limits=NO_LIMITS))
    limits = Limits(deadlines_s={"": slack * fast.latency_s + 1e-12})
    problem = replace(problem, limits=limits)
    found = thriftier(problem, fast, inf) or judged(problem, fast)
    assert found.objective >= bound(problem) * (1 - 1e-9)


def test_energy() -> None:
    calls = {"a": (mode(us=10, energy_j=50 * MICRO), mode(cores=2, us=5, energy_j=60 * MICRO))}
    problem = plain_problem(calls, devices=(PRICED,), objective="energy")
    assert bound(problem) == pytest.approx((60 + 3 * 5) * MICRO, rel=1e-5), "idle time costs, too"
    assert bound(replace(problem, objective="price")) == pytest.approx(5e-6 / 1000)


FEW = {"a": (mode(us=10, weight_bytes=60, energy_j=MICRO),)}
TWO = {**FEW, "b": (mode(us=10, weight_bytes=60, energy_j=MICRO),)}
OUT_OF_REACH: dict[str, tuple[SchedulingProblem, str]] = {
    "deadline of all": (
        plain_problem(TWO, "a>b", limits=Limits(deadlines_s={"": 15 * MICRO})),
        r"the deadline of all, 1.5e-05 s, cannot be kept: it takes 2e-05 s at least",
    ),
    "energy": (
        plain_problem(FEW, devices=(PRICED,), limits=Limits(deadlines_s={}, energy_j=20 * MICRO)),
        r"energy_j, 2e-05 J, cannot be kept: an inference takes 3.1e-05 J at least",
    ),
    "memory of a call": (
        plain_problem(FEW, devices=(replace(CPU, memory_bytes=50),)),
        "call 'a' fits nowhere, it needs 60 bytes of memory of 'cpu', which has 50",
    ),
    "memory of all": (
        plain_problem(TWO, devices=(replace(CPU, memory_bytes=100),)),
        "all weights take 120 bytes at least, and the memory_bytes of all devices are 100",
    ),
    "power": (
        plain_problem(
            {"a": (mode(us=1, energy_j=8 * MICRO),)},
            devices=(replace(CPU, power_w=9.0, idle_w=2.0),),
        ),
        "it needs 10 W of 'cpu', whose power_w is 9",
    ),
}


@pytest.mark.parametrize("limit", OUT_OF_REACH)
def test_a_limit_that_nobody_can_keep_is_named_with_the_least_that_would_do(limit: str) -> None:
    problem, said = OUT_OF_REACH[limit]
    with pytest.raises(Infeasible, match=said) as refused:
        require_feasible(problem)
    assert refused.value.exit_code == 4
    with pytest.raises(Infeasible):
        schedule_with("sequential", problem)


def test_the_deadline_of_a_network() -> None:
    calls = tuple(
        ScheduledCall(name=name, modes=(mode(us=us),), network=name)
        for name, us in (("a", 10), ("b", 20))
    )
    problem = SchedulingProblem(devices=(CPU,), calls=calls)
    require_feasible(replace(problem, limits=Limits(deadlines_s={"a": 10 * MICRO})))
    with pytest.raises(Infeasible, match="the deadline of network 'b', 1.9e-05 s"):
        require_feasible(replace(problem, limits=Limits(deadlines_s={"b": 19 * MICRO})))
