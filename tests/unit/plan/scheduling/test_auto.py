"""`auto` asks the planner that a problem calls for, and says why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems, random_problem
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


def test_requests_that_follow_each_other_have_a_pipeline_where_no_search_finds_better() -> None:
    """Two requests are under way, each with a core: 40 µs for four calls of 20 µs."""
    narrow = (mode(us=20), mode(cores=2, us=19))
    problem = plain_problem(dict.fromkeys("abcd", narrow), "a>b b>c c>d", objective="throughput")
    found = schedule_with("auto", problem)
    assert found.planner == "chain_dp" and found.objective == pytest.approx(40 * MICRO)
    assert found.note.startswith("requests follow each other soonest by chain_dp; a search")


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_requests_follow_each_other_no_later_than_by_a_pipeline_or_stages(seed: int) -> None:
    problem = random_problem(seed, calls=7, devices=2, cores=3, objective="throughput")
    found = schedule_with("auto", problem, 0.1)
    for other in ("chain_dp", "stages"):
        assert found.objective <= schedule_with(other, problem).objective * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(problem=problems(calls=7, devices=3, cores=3))
def test_no_schedule_of_auto_breaks_a_limit(problem: SchedulingProblem) -> None:
    found = schedule_with("auto", problem, 0.2)
    assert found.objective <= schedule_with("sequential", problem).objective
