"""No schedule is below what sets of calls say, which is no less than by ways and work."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, least, mode, plain_problem, random_problem
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.planners.antichains import apart_s


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cores=st.integers(2, 4))
def test_the_best_of_all_schedules_is_not_below_it(seed: int, cores: int) -> None:
    problem = random_problem(seed, calls=4, devices=1, cores=cores, limits=False)
    assert apart_s(problem, perf_counter() + 20.0) <= least(problem) * (1 + 1e-9)


def test_calls_that_wait_for_each_other_are_apart() -> None:
    """b and c wait for a: 5 µs for a, then 10 µs for both on a core each."""
    both = (mode(us=10), mode(cores=2, us=6))
    problem = plain_problem({"a": (mode(us=5),), "b": both, "c": both}, "a>b a>c")
    assert apart_s(problem, perf_counter() + 20.0) == pytest.approx(15 * MICRO, rel=1e-3)
    assert bound(problem) < 14 * MICRO


def test_without_time_nothing_is_known() -> None:
    problem = plain_problem({"a": (mode(us=5),), "b": (mode(us=5),)})
    assert apart_s(problem, perf_counter() - 1.0) == 0.0
