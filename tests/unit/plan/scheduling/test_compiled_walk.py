"""Compiled steps keep every wait, and what they come by is placed as the list that Python has."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Event
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.compiler.list_walk import ListCalls, ListWalk
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.planners import compiled_walk, cpsat
from tilewright.plan.scheduling.planners.compiled_walk import on_one_device, walked
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), handoff_s=st.sampled_from([0.0, 3e-6, 2e-5]))
def test_what_is_found_is_no_later_and_keeps_every_wait(seed: int, handoff_s: float) -> None:
    problem = random_problem(seed, calls=9, devices=1, cores=3, limits=False)
    problem = replace(problem, handoff_s=handoff_s)
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    start = decode(problem, order, modes)
    first = walked(problem, start, perf_counter(), seed=seed)
    placed = [problem.numbers[slot.call] for slot in start.slots]
    assert first.latency_s == pytest.approx(LineUp(problem, placed).latency_s(modes))
    found = walked(problem, start, perf_counter() + 0.05, seed=seed)
    assert sorted(problem.numbers[slot.call] for slot in found.slots) == order
    assert not list(faults(problem, first)) and not list(faults(problem, found))
    assert found.objective == found.latency_s <= first.latency_s


def test_order_and_modes_are_found_that_no_game_moves_to() -> None:
    """The long one first, the others beside it on one core: 60 µs instead of 90."""
    calls = {"a": (mode(us=30),), "b": (mode(us=30),), "long": (mode(us=60), mode(cores=2, us=50))}
    problem = plain_problem(calls, "", cores=2)
    assert on_one_device(problem)
    start = decode(problem, [0, 1, 2], [0, 0, 1])
    found = walked(problem, start, perf_counter() + 5.0, 60 * MICRO)
    assert found.latency_s == pytest.approx(60 * MICRO)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(1, 2**32 - 1))
def test_a_list_that_is_placed_from_its_first_change_on_is_placed_right(seed: int) -> None:
    """Its begins and cores after many steps, with what cores count: no core has two calls at a
    time, no call begins too soon, and the last one ends when it is said to."""
    problem = random_problem(seed, calls=12, devices=1, cores=4, limits=False)
    calls = problem.calls
    before = [[other for other, _ in waits] for waits in problem.before]
    known = ListCalls(
        cores=[[mode.cores for mode in call.modes] for call in calls],
        seconds=[[mode.latency_s for mode in call.modes] for call in calls],
        before=before,
        device_cores=4,
        handoff_s=2e-6,
    )
    walk = ListWalk(known, range(len(calls)), [0] * len(calls), seed)
    least_s = float("inf")
    for weight in (0.0, 1.5, 0.5):
        walk.step(200, 0.05, weight)
        assert walk.latency_s <= least_s
        least_s = walk.latency_s
    ends_s: dict[int, float] = {}
    busy_s = [0.0] * 4
    held: dict[int, tuple[int, ...]] = {}
    for number, place, begin_s, cores in sorted(walk.best, key=lambda each: each[2]):
        assert len(cores) == calls[number].modes[place].cores
        for other in before[number]:
            wait_s = 0.0 if held[other] == cores else 2e-6
            assert begin_s >= ends_s[other] + wait_s - 1e-12
        assert all(begin_s >= busy_s[core] - 1e-12 for core in cores)
        ends_s[number] = begin_s + calls[number].modes[place].latency_s
        held[number] = cores
        for core in cores:
            busy_s[core] = ends_s[number]
    assert max(ends_s.values()) == pytest.approx(least_s)


def test_a_round_that_begins_cool_stays_close_and_drops_a_hand_off() -> None:
    """One core for the first call costs a hand-off before the second one on both."""
    calls = {"a": (mode(us=10), mode(cores=2, us=10)), "b": (mode(cores=2, us=10),)}
    problem = plain_problem(calls, "a>b", cores=2, handoff_s=5 * MICRO)
    start = decode(problem, [0, 1], [0, 0])
    assert start.latency_s == pytest.approx(25 * MICRO)
    found = walked(problem, start, perf_counter() + 5.0, 20 * MICRO, cooled=0.9)
    assert found.latency_s == pytest.approx(20 * MICRO)
    assert found.slot["a"].cores == found.slot["b"].cores == (0, 1)


def test_an_interrupt_does_not_wait_for_the_end_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives while a round runs that has ten minutes."""
    rounds: list[Future[float]] = []
    stopped: list[Event] = []

    class Interrupted(ThreadPoolExecutor):
        def map(self, fn: Any, *given: Any, **_: Any) -> Any:
            rounds.append(self.submit(fn, given[0][0]))
            stopped.append(fn.keywords["stopped"])
            raise KeyboardInterrupt

    monkeypatch.setattr(compiled_walk, "ThreadPoolExecutor", Interrupted)
    problem = of_one_device(1, 201, 260, limits=False)
    start = schedule_with("heft", problem)
    with pytest.raises(KeyboardInterrupt):
        walked(problem, start, perf_counter() + 600.0)
    assert rounds[0].done() and stopped[0].is_set()


def of_one_device(seed: int, least: int, most: int, *, limits: bool) -> SchedulingProblem:
    """So many drawn calls on a device of several cores."""
    drawn = (
        random_problem(each, calls=most, devices=1, cores=4, limits=limits)
        for each in count(100 * seed)
    )
    return next(each for each in drawn if on_one_device(each) and len(each.calls) >= least)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_limits_that_steps_do_not_know_are_kept(seed: int) -> None:
    """Of memory, power and bandwidth: `schedule_with` looks for faults."""
    problem = of_one_device(seed, 30, 60, limits=True)
    start = schedule_with("heft", problem)
    assert schedule_with("cpsat", problem, 1.5).objective <= start.objective


def test_very_many_calls_are_left_to_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constraint programming would find nothing, and not end in time."""

    def solved(*_: object) -> None:
        raise AssertionError("it was asked")

    def quick(problem: SchedulingProblem, limit_s: float) -> list[Schedule]:
        return [schedule_with("heft", problem, limit_s)]

    monkeypatch.setattr(cpsat.CpSat, "_solved", solved)
    monkeypatch.setattr(cpsat, "quick_schedules", quick)
    problem = of_one_device(1, 201, 260, limits=False)
    found = schedule_with("cpsat", problem, 1.5)
    assert bound(problem) <= found.bound <= found.objective
