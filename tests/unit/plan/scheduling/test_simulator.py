"""Plans carried out in thought: as planned with the planned times, and sound with all others."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from math import nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems
from tilewright.core.errors import ModelError
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import measures, memory_over_time
from tilewright.plan.scheduling.parts import NO_LIMITS, Mode, ScheduleDevice
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.simulator import simulate


def decoded(problem: SchedulingProblem, seed: int) -> Schedule | None:
    """A schedule in any order and modes, where there is one."""
    random = Random(seed)
    order = random.sample(range(len(problem.calls)), len(problem.calls))
    with suppress(NothingFound):
        return decode(problem, order, [random.randrange(len(c.modes)) for c in problem.calls])
    return None


def longer(problem: SchedulingProblem, factors: dict[str, float]) -> SchedulingProblem:
    """The problem in which all modes of a call take so many times as long, without limits."""

    def slowed(each: Mode, call: str) -> Mode:
        seconds = each.latency_s * factors[call]
        return replace(each, latency_s=seconds, low_s=seconds, high_s=seconds)

    return replace(
        problem,
        calls=tuple(
            replace(c, task="", modes=tuple(slowed(each, c.name) for each in c.modes))
            for c in problem.calls
        ),
        devices=tuple(
            replace(d, memory_bytes=None, power_w=None, bytes_per_s=None) for d in problem.devices
        ),
        limits=NO_LIMITS,
        objective="latency",
    )


@settings(max_examples=300, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3), seed=st.integers(0, 2**16))
def test_with_the_planned_times_everything_happens_as_planned(
    problem: SchedulingProblem, seed: int
) -> None:
    planned = decoded(problem, seed)
    if planned is None:
        return
    for slowdown in (None, lambda call, others: 1.0):
        found = simulate(problem, planned, slowdown=slowdown)
        for slot in planned.slots:
            other = found.slot[slot.call]
            assert (other.mode, other.cores) == (slot.mode, slot.cores)
            assert other.begin_s == pytest.approx(slot.begin_s, rel=1e-12, abs=1e-18)
            assert other.end_s == pytest.approx(slot.end_s, rel=1e-12, abs=1e-18)
        assert len(found.transfers) == len(planned.transfers)
        assert measures(problem, found).latency_s == pytest.approx(planned.latency_s)


@settings(max_examples=300, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3), seed=st.integers(0, 2**16))
def test_with_other_times_cores_waits_and_links_are_kept_all_the_same(
    problem: SchedulingProblem, seed: int
) -> None:
    planned = decoded(problem, seed)
    if planned is None:
        return
    random = Random(seed)
    factors = {call.name: random.choice((0.5, 1.0, 3.0)) for call in problem.calls}
    found = simulate(problem, planned, lambda call, mode: mode.latency_s * factors[call])
    assert list(faults(longer(problem, factors), found)) == []
    slow = simulate(problem, planned, lambda call, mode: mode.latency_s * 2)
    assert slow.latency_s >= planned.latency_s
    for call in problem.calls:
        assert slow.slot[call.name].begin_s >= planned.slot[call.name].begin_s * (1 - 1e-12)


def test_what_was_held_back_for_memory_waits_for_what_frees_it() -> None:
    calls = {name: (mode(us=10, workspace_bytes=60),) for name in "ab"}
    device = ScheduleDevice(name="cpu", cores=2, memory_bytes=100)
    problem = plain_problem(calls, devices=(device,))
    planned = decode(problem, (0, 1), (0, 0))
    assert planned.slot["b"].begin_s == pytest.approx(10 * MICRO)
    found = simulate(problem, planned, lambda call, mode: 30 * MICRO)
    assert found.slot["b"].begin_s == pytest.approx(30 * MICRO)
    assert memory_over_time(problem, found)["cpu"].peak == 60


def test_calls_slow_each_other_down_while_they_overlap() -> None:
    """a and b run beside each other at half speed until b's 10 µs are done, then a goes on."""
    problem = plain_problem({"a": (mode(us=30),), "b": (mode(us=10),)})
    planned = decode(problem, (0, 1), (0, 0))
    found = simulate(problem, planned, slowdown=lambda call, others: 2.0 if others else 1.0)
    assert found.slot["b"].end_s == pytest.approx(20 * MICRO)
    assert found.slot["a"].end_s == pytest.approx(40 * MICRO)


def test_eight_devices_that_are_not_there() -> None:
    """Sixteen towers on eight cards that are only known by a table."""
    modes = tuple(mode(f"card{number}", us=100) for number in range(8))
    calls = {f"tower{number}": modes for number in range(16)}
    devices = tuple(ScheduleDevice(name=f"card{number}", idle_w=50.0) for number in range(8))
    problem = plain_problem(calls, devices=devices)
    found = simulate(problem, schedule_with("heft", problem), lambda call, mode: 150 * MICRO)
    assert found.latency_s == pytest.approx(300 * MICRO)


def test_a_plan_on_64_cores_keeps_each_core_for_one() -> None:
    problem = plain_problem({f"c{n}": on_cores(100, cores=8) for n in range(40)}, cores=64)
    planned = schedule_with("heft", problem)
    found = simulate(problem, planned, slowdown=lambda call, others: 1.0 + len(others) / 64)
    assert found.latency_s > planned.latency_s
    for core in range(64):
        own = sorted((s.begin_s, s.end_s) for s in found.slots if core in s.cores)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(own))


def test_times_that_are_none() -> None:
    problem = plain_problem({"a": (mode(),)})
    planned = decode(problem, (0,), (0,))
    with pytest.raises(ModelError, match="the latency of call 'a' is nan"):
        simulate(problem, planned, lambda call, mode: nan)
    with pytest.raises(ModelError, match="the slowdown of call 'a' is -1"):
        simulate(problem, planned, slowdown=lambda call, others: -1.0)
