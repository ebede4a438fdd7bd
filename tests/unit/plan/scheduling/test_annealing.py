"""Steps by chance keep every wait, and what they come by is a schedule."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.planners.annealing import annealed
from tilewright.plan.scheduling.planners.line_up import LineUp


def steps(count: int) -> Callable[[], float]:
    """A clock that has so many ticks."""
    ticks = iter(range(count + 1))
    return lambda: next(ticks) / count


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_found_is_no_later_and_keeps_every_wait(seed: int) -> None:
    problem = random_problem(seed, calls=9, devices=2, cores=3, limits=False)
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    before = LineUp(problem, order).latency_s(modes)
    found = annealed(problem, order, modes, steps(60), seed)
    assert sorted(found.order) == order
    places = {number: place for place, number in enumerate(found.order)}
    for number, waits in enumerate(problem.before):
        assert all(places[other] < places[number] for other, _ in waits)
    assert found.latency_s <= before
    again = LineUp(problem, found.order).latency_s(found.modes)
    assert again == pytest.approx(found.latency_s) or found.latency_s == inf


def test_order_and_modes_are_found_that_no_game_moves_to() -> None:
    """The long one first, the others beside it on one core: 60 µs instead of 90."""
    calls = {"a": (mode(us=30),), "b": (mode(us=30),), "long": (mode(us=60), mode(cores=2, us=50))}
    problem = plain_problem(calls, "", cores=2)
    found = annealed(problem, [0, 1, 2], [0, 0, 1], steps(300))
    assert found.latency_s == pytest.approx(60 * MICRO)
