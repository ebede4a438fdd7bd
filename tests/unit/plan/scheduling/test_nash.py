"""`nash` ends where no call gains by another mode."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, problems, random_problem
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import Link, ScheduleDevice
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem


@settings(max_examples=25, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_of_nash_breaks_a_limit(problem: SchedulingProblem) -> None:
    found = Nash(most_s=inf).schedule(problem, inf)
    assert next(faults(problem, found), None) is None
    assert found.objective <= schedule_with("sequential", problem).objective
    assert found.details["converged"] == 1


@settings(max_examples=25, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_without_time_for_a_game_a_known_schedule_is_the_answer(problem: SchedulingProblem) -> None:
    found = Nash(most_s=0.0).schedule(problem, inf)
    assert next(faults(problem, found), None) is None
    assert found.objective <= schedule_with("sequential", problem).objective
    assert found.details["rounds"] == 0 and found.note.startswith("stopped after 0 rounds")


def test_games_begin_with_few_cores_for_calls_beside_each_other() -> None:
    """Not from all cores for all, 80 µs: nobody has to move."""
    four = (mode(cores=1, us=40), mode(cores=4, us=20))
    calls = {name: four for name in ("a", "b", "c", "d")}
    problem = plain_problem(calls, "", cores=4)
    assert Nash(most_s=0.0).schedule(problem, inf).objective == pytest.approx(40 * MICRO)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_where_a_game_ends_no_call_gains_alone(seed: int) -> None:
    problem = random_problem(seed, calls=8, devices=2, cores=3, limits=False)
    (end, *_) = Nash().games(problem, inf)
    assert end.converged
    now = LineUp(problem, end.behind).latency_s(end.modes)
    assert now == pytest.approx(end.cost[1])
    for number, call in enumerate(problem.calls):
        for place in range(len(call.modes)):
            other = [place if at == number else mode for at, mode in enumerate(end.modes)]
            assert LineUp(problem, end.behind).latency_s(other) >= now * (1 - 1e-8)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_trial_that_cannot_be_better_is_given_up_and_no_other(seed: int) -> None:
    problem = random_problem(seed, calls=8, devices=2, cores=3, limits=False)
    modes = [len(call.modes) - 1 for call in problem.calls]
    whole = LineUp(problem).latency_s(modes)
    assert LineUp(problem).latency_s(modes, whole * 1.001 + 1e-12) == whole
    assert LineUp(problem).latency_s(modes, whole * 0.999) == inf


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_trials_are_schedules(seed: int) -> None:
    """Placed in the order of their begins, calls end as in the trial; hand-offs, which could make
    cores better or worse, taking no time."""
    drawn = random_problem(seed, calls=8, devices=2, cores=3, limits=False)
    problem = replace(drawn, handoff_s=0.0)
    modes, queue = [0] * len(problem.calls), LineUp(problem)
    whole = queue.latency_s(modes)
    order = sorted(range(len(modes)), key=lambda number: queue.begins_s[number])
    if whole < inf:
        assert decode(problem, order, modes).latency_s == pytest.approx(whole)


def test_branches_agree_on_sharing_the_cores() -> None:
    """Neither of two branches gains by leaving half of the cores alone: together they do."""
    four = (mode(cores=2, us=30), mode(cores=4, us=20))
    problem = plain_problem({"a": four, "b": four, "join": four}, "a>join b>join", cores=4)
    found = Nash(most_s=inf).schedule(problem, inf)
    assert found.objective == pytest.approx(50 * MICRO)
    assert [len(found.slot[name].cores) for name in ("a", "b", "join")] == [2, 2, 4]
    assert found.note.startswith("equilibrium after")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_trial_in_an_order_is_the_schedule_in_that_order(seed: int) -> None:
    """In the order of their begins, calls of a schedule without limits end when they did."""
    drawn = random_problem(seed, calls=8, devices=2, cores=3, limits=False)
    problem = replace(drawn, handoff_s=0.0)
    found = schedule_with("heft", problem)
    order = [problem.numbers[slot.call] for slot in found.slots]
    modes = [found.slot[call.name].mode for call in problem.calls]
    again = LineUp(problem, order)
    assert again.latency_s(modes) <= found.latency_s * (1 + 1e-9)
    assert again.latency_s(modes, found.latency_s * 0.5) in (inf, again.latency_s(modes))


def test_with_several_devices_a_game_begins_with_a_list_of_heft() -> None:
    """A call on all cores waits for its place, although a small one is ready before it."""
    big, small = (mode(cores=4, us=40),), (mode(cores=1, us=35), mode("card", us=70))
    devices = (ScheduleDevice(name="cpu", cores=4), ScheduleDevice(name="card"))
    links = tuple(
        Link(origin=a, destination=b, latency_s=5 * MICRO, bytes_per_s=1e9)
        for a, b in (("cpu", "card"), ("card", "cpu"))
    )
    calls = {"a": (mode("card", us=5),), "b": big, "c": big, "d": small}
    problem = plain_problem(calls, "a>b b>c", devices=devices, links=links)
    found = Nash(most_s=inf).schedule(problem, inf)
    assert found.objective <= schedule_with("heft", problem).objective
    assert found.objective == pytest.approx(90 * MICRO)
