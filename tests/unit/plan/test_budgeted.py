"""The fastest assignment within a budget of noise, against looking at all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.plan.assignment.budgeted import fastest_within, hull
from tilewright.plan.assignment.problem import Problem, Table, Variable
from tilewright.plan.assignment.solution import Infeasible


def chain(seed: int, length: int, values: int) -> tuple[Problem, dict[str, np.ndarray]]:
    """A chain of variables whose first value makes no noise, the others the more the faster."""
    rng = np.random.default_rng(seed)
    names = [f"v{number}" for number in range(length)]
    kinds = tuple(str(number) for number in range(values))
    variables = tuple(Variable(name=name, kind="choice", values=kinds) for name in names)
    alone = [
        Table(variables=(name,), costs=rng.integers(1000, 5000, values) // (1 + np.arange(values)))
        for name in names
    ]
    changes = [
        Table(variables=pair, costs=rng.integers(0, 800, (values, values)))
        for pair in zip(names, names[1:], strict=False)
    ]
    noises = {name: np.concatenate([[0.0], rng.random(values - 1)]) for name in names}
    return Problem(variables=variables, tables=(*alone, *changes)), noises


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 3), st.floats(0.0, 4.0))
def test_it_is_the_fastest_of_all_within_the_budget(
    seed: int, length: int, values: int, budget: float
) -> None:
    problem, noises = chain(seed, length, values)
    every = [
        (problem.cost_at(places), sum(n[p] for n, p in zip(noises.values(), places, strict=True)))
        for places in product(range(values), repeat=length)
    ]
    best = min(cost for cost, noise in every if noise <= budget)
    front = fastest_within(problem, noises, budget, most_s=60.0)
    assert front.chosen.noise <= budget
    assert front.chosen.cost_ps - 1 <= best and front.bound_ps <= best
    assert front.chosen.cost_ps - front.bound_ps <= 1
    assert all(
        not (cost < point.cost_ps and noise < point.noise)
        for point in front.points[:1]
        for cost, noise in every
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_the_front_is_convex_and_ends_without_noise(seed: int) -> None:
    problem, noises = chain(seed, 6, 3)
    points = fastest_within(problem, noises, 1.0).points
    assert points[-1].noise == 0.0
    costs, noise = [p.cost_ps for p in points], [p.noise for p in points]
    assert costs == sorted(costs) and noise == sorted(noise, reverse=True)
    assert hull(points) == points


def test_where_noise_cannot_be_avoided_there_is_none() -> None:
    problem, noises = chain(0, 3, 2)
    with pytest.raises(Infeasible):
        fastest_within(problem, {**noises, "v1": np.array([0.1, 0.2])}, 10.0)
