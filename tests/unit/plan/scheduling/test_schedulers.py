"""What every planner of schedules keeps, over random problems of every kind."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems, random_problem
from tilewright.core.errors import InternalError, UsageError
from tilewright.core.plugins import PluginError
from tilewright.plan.scheduling import planning
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import objective_of
from tilewright.plan.scheduling.parts import Link, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.planners.heft import lists
from tilewright.plan.scheduling.planners.ios import Ios
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.starts import quick_schedules
from tilewright.plan.scheduling.planning import SCHEDULERS, schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule

QUICK = ("sequential", "heft", "threads", "stages")
LIMIT_S = 5.0


@pytest.mark.parametrize("name", [name for name in SCHEDULERS.names() if name in QUICK])
@settings(max_examples=100, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_breaks_a_limit_or_is_worse_than_none(
    name: str, problem: SchedulingProblem
) -> None:
    found = schedule_with(name, problem, LIMIT_S)
    assert list(faults(problem, found)) == []
    assert found.objective == pytest.approx(objective_of(problem, found))
    assert 0 <= found.bound <= found.objective
    assert found.objective <= schedule_with("sequential", problem).objective
    assert found.planner == name


@pytest.mark.parametrize("name", [name for name in SCHEDULERS.names() if name in QUICK])
def test_asked_twice_it_answers_the_same(name: str) -> None:
    for seed in (1, 2, 3):
        problem = random_problem(seed, calls=12, devices=3, cores=4)
        one, other = (schedule_with(name, problem) for _ in range(2))
        assert (one.slots, one.transfers) == (other.slots, other.transfers)


def test_sequential_runs_one_call_at_a_time_on_all_cores() -> None:
    problem = plain_problem({name: on_cores(20) for name in "abcd"}, "a>b a>c b>d c>d")
    found = schedule_with("sequential", problem)
    assert found.latency_s == pytest.approx(40 * MICRO)
    assert [slot.cores for slot in found.slots] == [(0, 1)] * 4
    ends = [slot.end_s for slot in found.slots[:-1]]
    assert all(slot.begin_s >= end for slot, end in zip(found.slots[1:], ends, strict=True))


def test_heft_has_lists_by_the_fastest_modes_where_there_are_several_devices() -> None:
    """By the means `a` and `e` are long, which nobody computes on the CPU: `b` waits for both."""
    times = {"a": (160, 20), "b": (40, 10), "c": (20, 40), "d": (10, 20), "e": (160, 20)}
    ways = (("cpu", "card"), ("card", "cpu"))
    problem = plain_problem(
        {name: (mode(us=cpu), mode("card", us=card)) for name, (cpu, card) in times.items()},
        "a>c b>c d>e",
        devices=(ScheduleDevice(name="cpu"), ScheduleDevice(name="card", kind="accelerator")),
        links=tuple(
            Link(origin=a, destination=b, latency_s=0.0, bytes_per_s=1e12) for a, b in ways
        ),
    )
    by_mean, by_fastest = (
        min(each().latency_s for each in lists(problem, time)) for time in (fmean, min)
    )
    assert by_mean == pytest.approx(70 * MICRO)
    assert by_fastest == pytest.approx(50 * MICRO)
    assert schedule_with("heft", problem).latency_s == pytest.approx(50 * MICRO)


def test_stages_are_starts_that_take_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def seen(planner: Ios, problem: SchedulingProblem, limit_s: float) -> Schedule:
        steps.append(planner.most_steps)
        return Sequential().schedule(problem, limit_s)

    monkeypatch.setattr(Ios, "schedule", seen)
    problem = random_problem(1, calls=5, devices=1, cores=2)
    for limit_s in (1e-6, 1.0, 10.0, 1e4):
        quick_schedules(problem, limit_s)
    assert steps[0] == 1
    assert steps[2] == 10 * steps[1]
    assert steps[3] == Ios().most_steps


@pytest.mark.parametrize("name", ["heft", "threads"])
def test_branches_that_scale_badly_run_beside_each_other(name: str) -> None:
    """Two cores make a call 1.25 times as fast: two calls beside each other take 20, not 32."""
    calls = {"a": on_cores(2), **{name: (mode(us=20), mode(cores=2, us=16)) for name in "bc"}}
    problem = plain_problem({**calls, "d": on_cores(2)}, "a>b a>c b>d c>d")
    found = schedule_with(name, problem)
    assert found.latency_s == pytest.approx(22 * MICRO)
    assert schedule_with("sequential", problem).latency_s == pytest.approx(34 * MICRO)
    assert found.gap == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["heft"])
def test_hand_offs_that_cost_more_than_they_bring_are_left(name: str) -> None:
    calls = {name: (mode(us=20), mode(cores=2, us=16)) for name in "abcd"}
    problem = plain_problem(calls, "a>b a>c b>d c>d", handoff_s=100 * MICRO)
    assert schedule_with(name, problem).latency_s == pytest.approx(64 * MICRO)


def towers(bytes_per_s: float) -> SchedulingProblem:
    """Two towers that a CPU and a GPU compute equally fast, and a head."""
    devices = (ScheduleDevice(name="cpu"), ScheduleDevice(name="cuda", kind="cuda"))
    both = (mode("cpu", us=100), mode("cuda", us=100))
    names = ("text1", "text2", "image1", "image2", "head")
    waits = ("text1 text2", "image1 image2", "text2 head", "image2 head")
    return SchedulingProblem(
        devices=devices,
        calls=tuple(ScheduledCall(name=name, modes=both) for name in names),
        waits=tuple(Wait(before=a, after=b, bytes=1000) for a, b in map(str.split, waits)),
        links=tuple(
            Link(origin=a, destination=b, latency_s=0.0, bytes_per_s=bytes_per_s)
            for a, b in (("cpu", "cuda"), ("cuda", "cpu"))
        ),
    )


@pytest.mark.parametrize("name", ["heft"])
def test_towers_go_to_two_devices_where_the_link_is_fast(name: str) -> None:
    found = schedule_with(name, towers(1e9))
    assert found.latency_s == pytest.approx(301 * MICRO)
    (sent,) = found.transfers
    assert sent.end_s - sent.begin_s == pytest.approx(MICRO)
    slow = schedule_with(name, towers(1e6))
    assert slow.latency_s == pytest.approx(500 * MICRO) and not slow.transfers


def test_beside_a_call_that_streams_threads_gives_fewer_cores() -> None:
    """b alone takes 8 % longer on 2 cores than on 4. What a costs it, 80 µs, is the same on both,
    so that beside a it takes 4 % longer, which is less than more cores are taken for."""
    a = (replace(mode(us=2000), moved_bytes=2_000_000),)
    b = tuple(replace(mode(cores=n, us=us), moved_bytes=100_000) for n, us in ((2, 108), (4, 100)))
    problem = plain_problem({"a": a, "b": b}, cores=8)
    (device,) = problem.devices
    for scale, cores in ((None, 4), (1.25e18**0.5, 2)):
        known = replace(device, contention_bytes_per_s=scale)
        found = schedule_with("threads", replace(problem, devices=(known,)))
        assert [len(found.slot[name].cores) for name in "ab"] == [1, cores]


def test_threads_takes_cores_to_the_turning_point_and_gives_the_rest_to_others() -> None:
    """On 4 cores a gains nothing beyond 2; b, less urgent, runs on the 2 that are left; c would
    end after a on the cores that b leaves, and waits until a and b are done."""
    a = (mode(us=90), mode(cores=2, us=50), mode(cores=4, us=49))
    b = (mode(us=60), mode(cores=2, us=40), mode(cores=4, us=30))
    c = (mode(cores=2, us=35), mode(cores=4, us=20))
    problem = plain_problem({"a": a, "b": b, "c": c}, cores=4)
    found = schedule_with("threads", problem)
    assert {s.call: (len(s.cores), round(s.begin_s / MICRO)) for s in found.slots} == {
        "a": (2, 0),
        "b": (2, 0),
        "c": (4, 50),
    }
    assert found.latency_s < schedule_with("sequential", problem).latency_s


class Wrong:
    """A planner that forgets the last call."""

    name = "wrong"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        found = schedule_with("sequential", problem, limit_s)
        return Schedule(planner="wrong", slots=found.slots[:-1], objective=0.0)


def test_what_a_planner_gives_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = plain_problem({"a": on_cores(2), "b": on_cores(2)}, "a>b")
    offers: Any = planning.SCHEDULERS
    sound = offers.named
    monkeypatch.setattr(offers, "named", lambda name: Wrong() if name == "wrong" else sound(name))
    with pytest.raises(InternalError, match="'wrong' gave a schedule .* call 'b' has 0 slots"):
        schedule_with("wrong", problem)
    monkeypatch.setattr(offers, "others", lambda: {"wrong"})
    with pytest.raises(PluginError, match="'wrong' gave a schedule"):
        schedule_with("wrong", problem)
    with pytest.raises(UsageError, match="no planner of schedules is called 'hefty'"):
        schedule_with("hefty", problem)
