"""`auto` asks the planner that a problem calls for, and says why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems
from tilewright.plan.scheduling.planning import DEFAULT, schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem


def test_where_nothing_is_to_gain_calls_run_one_after_the_other() -> None:
    problem = plain_problem({name: on_cores(20) for name in "abcd"}, "a>b a>c b>d c>d")
    found = schedule_with("auto", problem)
    assert found.planner == "sequential" and found.gap < 1e-3
    assert found.note == "no schedule gains a thousandth over one call after the other"


def test_a_chain_is_planned_exactly() -> None:
    """Three calls on one core each, as two hand-offs cost more than the second is worth."""
    narrow = (mode(us=20), mode(cores=2, us=21))
    calls = {"a": narrow, "b": (mode(us=20), mode(cores=2, us=15)), "c": narrow}
    found = schedule_with("auto", plain_problem(calls, "a>b b>c", handoff_s=5 * MICRO))
    assert found.planner == "chain_dp" and found.note == "the network is a chain"
    assert found.objective == pytest.approx(57 * MICRO) and found.gap == 0.0


def test_branches_are_searched() -> None:
    two = (mode(us=20), mode(cores=2, us=16))
    found = schedule_with(DEFAULT, plain_problem(dict.fromkeys("abcd", two), "a>b a>c b>d c>d"))
    assert found.planner == "cpsat" and found.gap == 0.0
    assert found.objective == pytest.approx(52 * MICRO)
    assert found.note.startswith("calls may run beside each other or compete")


@settings(max_examples=15, deadline=None)
@given(problem=problems(calls=7, devices=3, cores=3))
def test_no_schedule_of_auto_breaks_a_limit(problem: SchedulingProblem) -> None:
    found = schedule_with("auto", problem, 0.2)
    assert found.objective <= schedule_with("sequential", problem).objective
