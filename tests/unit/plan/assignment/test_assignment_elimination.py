"""What the solvers are made of: dead ends, mini-buckets, orders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from helpers.problems.assignment_problems import problems, ranked, table, variable
from helpers.problems.synthetic_problems import headed_network, residual_network, tangled_network
from tilewright.plan.assignment.factors import (
    Network,
    Order,
    cheapest_order,
    drop_beaten,
    eliminate,
    network_of,
    propagate,
)
from tilewright.plan.assignment.problem import FORBIDDEN, Problem


def order_of(network: Network) -> Order:
    return cheapest_order([factor.scope for factor in network.factors], network.sizes)


@given(problem=problems())
@settings(max_examples=80, deadline=None)
def test_dropping_values_keeps_an_optimum(problem: Problem) -> None:
    costs = ranked(problem)
    network = network_of(problem)
    if not propagate(network):
        assert not costs
        return
    drop_beaten(network)
    simple = network.simplified()
    elimination = eliminate(simple, order_of(simple).variables)
    assert elimination.least == (costs[0] if costs else FORBIDDEN)
    if costs:
        places = simple.places(elimination.chosen())
        assert problem.cost(problem.assignment(places)) == costs[0]


def test_beaten_values_go_one_of_two_equal_ones_stays() -> None:
    problem = Problem(
        variables=(variable("f", "good", "same", "bad", "sometimes"), variable("x")),
        tables=(table("f x", [[1, 4], [1, 4], [2, 4], [9, 3]]), table("x", [5, 5])),
    )
    network = network_of(problem)
    drop_beaten(network)
    assert network.values == [[0, 3], [0, 1]]


def test_values_nothing_allows_go() -> None:
    problem = Problem(
        variables=(variable("a"), variable("b"), variable("c")),
        tables=(table("a b", [[0, None], [None, 0]]), table("c b", [[0, None], [0, None]])),
    )
    network = network_of(problem)
    assert propagate(network)
    assert network.values == [[0], [0], [0, 1]]


@pytest.mark.parametrize("cells", [1, 3, 9])
@given(problem=problems())
@settings(max_examples=50, deadline=None)
def test_bounds_are_sound(cells: int, problem: Problem) -> None:
    network = network_of(problem)
    bound = eliminate(network, order_of(network).variables, cells).least
    assert 0 <= bound <= min(ranked(problem), default=FORBIDDEN)


def test_bounds_get_better_with_room() -> None:
    problem = tangled_network(4, candidates=4, layouts=4)
    network = network_of(problem)
    order = order_of(network)
    bounds = [eliminate(network, order.variables, cells).least for cells in (1, 10**9)]
    assert 0 < bounds[0] < bounds[1]
    assert bounds[1] == eliminate(network, order.variables).least


@pytest.mark.parametrize(("make", "width"), [(residual_network, 3), (headed_network, 3)])
def test_networks_are_narrow_however_deep(make: Callable[..., Problem], width: int) -> None:
    for depth in (4, 30):
        network = network_of(make(depth, candidates=4, layouts=3)).simplified()
        assert order_of(network).width <= width


def test_orders_tell_what_they_take() -> None:
    order = cheapest_order([(0, 1), (1, 2), (2, 3), (0, 3)], [2, 3, 2, 3])
    assert sorted(order.variables) == [0, 1, 2, 3]
    assert order.width == 2
    assert order.kept < 9 + 9  # an end of three values goes first
    assert cheapest_order([], [5, 5]).variables == ()
