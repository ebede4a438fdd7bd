"""The fastest assignment within a budget of noise, against looking at all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.plan.assignment import labels
from tilewright.plan.assignment.budgeted import fastest_within, hull
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable
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


@st.composite
def networks(draw: st.DrawFn) -> tuple[Problem, dict[str, np.ndarray]]:
    """Up to six variables with tables over up to three, loops and parts among them. The first
    values make no noise and are allowed; other combinations may not be, other noise be infinite."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    names = [f"v{number}" for number in range(len(sizes))]
    scopes = draw(st.lists(st.sets(st.sampled_from(names), min_size=1, max_size=3), max_size=7))
    tables: list[Table] = []
    for scope in [*({name} for name in names), *scopes]:
        shape = [sizes[names.index(name)] for name in sorted(scope)]
        costs = np.where(rng.random(shape) < 0.15, FORBIDDEN, rng.integers(0, 1000, shape))
        costs[(0,) * len(shape)] = 900
        tables.append(Table(variables=tuple(sorted(scope)), costs=costs))
    variables = tuple(
        Variable(name=name, kind="choice", values=tuple(map(str, range(size))))
        for name, size in zip(names, sizes, strict=True)
    )
    noises = {
        name: np.where(rng.random(size) < 0.1, np.inf, rng.random(size))
        for name, size in zip(names, sizes, strict=True)
        if rng.random() < 0.8
    }
    for noise in noises.values():
        noise[0] = 0.0
    return Problem(variables=variables, tables=tuple(tables)), noises


def fastest_of_all(problem: Problem, noises: dict[str, np.ndarray], budget: float) -> int:
    """By looking at each assignment."""
    found: list[int] = []
    for places in product(*(range(len(each.values)) for each in problem.variables)):
        if sum(noise[places[problem.numbers[name]]] for name, noise in noises.items()) <= budget:
            found.append(problem.cost_at(places))
    return min(found)


@settings(deadline=None, max_examples=150)
@given(networks(), st.floats(0.0, 2.5), st.sampled_from(["auto", "exact"]))
def test_any_network_stays_within_its_budget_and_is_proven_the_fastest(
    made: tuple[Problem, dict[str, np.ndarray]], budget: float, solver: str
) -> None:
    problem, noises = made
    front = fastest_within(problem, noises, budget, solver, most_s=60.0)
    chosen, places = front.chosen, problem.places(front.chosen.assignment)
    assert chosen.cost_ps == problem.cost_at(places)
    spent = sum(noise[places[problem.numbers[name]]] for name, noise in noises.items())
    assert chosen.noise == pytest.approx(spent) and chosen.noise <= budget
    best = fastest_of_all(problem, noises, budget)
    assert best <= chosen.cost_ps <= best + 1 and best - 1 <= front.bound_ps <= best


@settings(deadline=None, max_examples=30)
@given(networks(), st.floats(0.0, 2.5))
def test_what_is_too_wide_for_labels_has_a_bound(
    made: tuple[Problem, dict[str, np.ndarray]], budget: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "_MOST_WORK", -1)
        front = fastest_within(*made, budget, most_s=60.0)
    best = fastest_of_all(*made, budget)
    assert front.chosen.noise <= budget
    assert front.bound_ps <= best <= front.chosen.cost_ps


def test_without_time_nothing_is_proven_but_the_budget_is_kept() -> None:
    problem, noises = chain(7, 12, 3)
    front = fastest_within(problem, noises, 1.0, most_s=0.0)
    proven = fastest_within(problem, noises, 1.0, most_s=60.0)
    assert front.chosen.noise <= 1.0 and front.bound_ps < proven.chosen.cost_ps
    assert proven.bound_ps >= proven.chosen.cost_ps - 1
    assert proven.chosen.cost_ps <= front.chosen.cost_ps


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
