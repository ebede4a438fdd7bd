"""Schedules that are told as they are run keep their limits then, or are not told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.scheduling import MICRO, mode, plain_problem
from tilewright.plan.lanes import in_its_stages
from tilewright.plan.scheduling.answering import answer
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.problem import Limits, SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.simulator import simulate

_TWO = (mode(cores=1, us=40), mode(cores=2, us=30))


def _problem(deadline_us: float) -> SchedulingProblem:
    problem = plain_problem({"a": _TWO, "b": _TWO}, "", cores=2)
    return replace(problem, limits=Limits(deadlines_s={"": deadline_us * MICRO}))


def _one_after_the_other(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """As a device runs it that computes nothing at a time."""
    both = (0, 1)
    slots = [
        replace(slot, mode=1, cores=both, begin_s=30 * at * MICRO, end_s=30 * (at + 1) * MICRO)
        for at, slot in enumerate(schedule.slots)
    ]
    return simulate(problem, replace(schedule, slots=tuple(slots)))


def test_a_deadline_that_only_calls_at_a_time_keep_is_met_without_stages() -> None:
    found = answer(_problem(45), None, 2.0, as_run=lambda _, schedule: schedule)
    assert found.schedule.latency_s == pytest.approx(40 * MICRO)


def test_what_breaks_a_limit_when_it_is_run_is_not_told() -> None:
    with pytest.raises(NothingFound, match="as it is run"):
        answer(_problem(45), None, 2.0, as_run=_one_after_the_other)
    found = answer(_problem(65), None, 2.0, as_run=_one_after_the_other)
    assert found.schedule.latency_s == pytest.approx(60 * MICRO)


def test_the_expected_times_of_a_robust_one_are_those_of_its_run() -> None:
    found = answer(_problem(65), None, 2.0, robust=True, as_run=_one_after_the_other)
    assert found.schedule.latency_s == pytest.approx(60 * MICRO)


def test_no_alternative_is_told_that_nobody_runs() -> None:
    """One call after the other would be faster on one core each, and is run on two."""
    calls = dict.fromkeys("ab", (mode(cores=1, us=20), mode(cores=2, us=30)))
    found = answer(plain_problem(calls), None, 2.0, as_run=_one_after_the_other).result
    assert min(each.latency_s for each in found.front) == pytest.approx(60 * MICRO)


def test_calls_under_a_limit_of_energy_are_told_with_the_cores_that_they_keep() -> None:
    frugal, wasteful = mode(us=20, energy_j=1.0), mode(cores=2, us=15, energy_j=3.0)
    problem = plain_problem(
        {"a": (frugal, wasteful)},
        devices=(ScheduleDevice(name="cpu", cores=2, idle_w=0.0),),
        limits=Limits(deadlines_s={}, energy_j=1.5),
    )
    found = answer(problem, None, 2.0, as_run=in_its_stages)
    assert [len(slot.cores) for slot in found.schedule.slots] == [1]
    assert found.result.energy_j == pytest.approx(1.0)
