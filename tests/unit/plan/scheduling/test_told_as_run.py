"""Schedules that are told as they are run keep their limits then, or are not told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.scheduling import MICRO, mode, plain_problem
from tilewright.plan.scheduling.answering import answer
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
