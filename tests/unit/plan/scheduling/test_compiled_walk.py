"""Compiled steps keep every wait, and what they come by is the list that Python has."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.planners.compiled_walk import on_one_device, walked
from tilewright.plan.scheduling.planners.line_up import LineUp


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_found_is_no_later_and_keeps_every_wait(seed: int) -> None:
    problem = random_problem(seed, calls=9, devices=1, cores=3, limits=False)
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    first = walked(problem, order, modes, perf_counter(), seed=seed)
    assert (first.order, first.modes) == (order, modes) or sorted(first.order) == order
    assert first.latency_s == pytest.approx(LineUp(problem, order).latency_s(modes))
    found = walked(problem, order, modes, perf_counter() + 0.05, seed=seed)
    assert sorted(found.order) == order
    places = {number: place for place, number in enumerate(found.order)}
    for number, waits in enumerate(problem.before):
        assert all(places[other] < places[number] for other, _ in waits)
    assert found.latency_s <= first.latency_s
    assert decode(problem, found.order, found.modes).latency_s <= found.latency_s * (1 + 1e-9)


def test_order_and_modes_are_found_that_no_game_moves_to() -> None:
    """The long one first, the others beside it on one core: 60 µs instead of 90."""
    calls = {"a": (mode(us=30),), "b": (mode(us=30),), "long": (mode(us=60), mode(cores=2, us=50))}
    problem = plain_problem(calls, "", cores=2)
    assert on_one_device(problem)
    found = walked(problem, [0, 1, 2], [0, 0, 1], perf_counter() + 5.0, 60 * MICRO)
    assert found.latency_s == pytest.approx(60 * MICRO)
