"""Values that need not be looked at, and how to decide a variable.

Values go that nothing allows, and those that another value beats. Both leave at least one optimum.
The second is dead-end elimination after Goldstein (1994): value b beats value a of a variable when,
whatever the others are, b costs no more than a.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.plan.assignment.factors import Network, capped, least_along, network_of
from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem
from tilewright.plan.assignment.solution import infeasible

_MOST_DIFFERENCES = 1 << 22
_MOST_VISITS = 8


def possible_network(problem: Problem) -> Network:
    """The network of a problem without the values that nothing allows; raises Infeasible where a
    variable has no other ones."""
    network = network_of(problem)
    if not propagate(network):
        raise infeasible(problem)
    return network


def propagate(network: Network, changed: Iterable[int] | None = None) -> bool:
    """Drop values that some factor forbids whatever the others are, until none is left.

    Starts from the factors of the `changed` variables, all by default. False when a variable has
    no value left; the network is not to be used then.
    """
    start = range(len(network.values)) if changed is None else changed
    waiting = {number for variable in start for number in network.touching[variable]}
    while waiting:
        number = waiting.pop()
        factor = network.factors[number]
        if (factor.costs < FORBIDDEN).all():
            continue
        for axis, variable in enumerate(factor.scope):
            supported = np.flatnonzero(least_along(factor.costs, axis) < FORBIDDEN)
            if supported.size == 0:
                return False
            if supported.size < len(network.values[variable]):
                network.keep(variable, supported.tolist())
                factor = network.factors[number]
                waiting.update(network.touching[variable])
    return True


def drop_beaten(network: Network) -> None:
    """Dead-end elimination, as far as it is cheap: very large factors end it for a variable."""
    waiting = dict.fromkeys(range(len(network.values)))
    visits = [0] * len(network.values)
    while waiting:
        variable = next(iter(waiting))
        del waiting[variable]
        visits[variable] += 1
        kept = _unbeaten(network, variable)
        if len(kept) == len(network.values[variable]):
            continue
        network.keep(variable, kept)
        for number in network.touching[variable]:
            for other in network.factors[number].scope:
                if other != variable and visits[other] < _MOST_VISITS:
                    waiting[other] = None


def _unbeaten(network: Network, variable: int) -> list[int]:
    """The places of values of a variable that no value kept beats."""
    size = len(network.values[variable])
    factors = [network.factors[number] for number in network.touching[variable]]
    if size == 1 or sum(factor.costs.size for factor in factors) * size > _MOST_DIFFERENCES:
        return list(range(size))
    excess = np.zeros((size, size), dtype=np.int64)
    for factor in factors:
        costs = np.moveaxis(factor.costs, factor.scope.index(variable), 0).reshape(size, -1)
        excess = np.clip(excess + _excess(costs), -FORBIDDEN, FORBIDDEN)
    kept = set(range(size))
    for place in reversed(range(size)):
        if any(excess[other, place] <= 0 for other in kept if other != place):
            kept.discard(place)
    return sorted(kept)


def _excess(costs: Costs) -> Costs:
    """How much value b may cost more than value a in one factor, as [b, a].

    Where the factor forbids a, a is no alternative and b may cost anything.
    """
    found = np.empty((len(costs), len(costs)), dtype=np.int64)
    for place, others in enumerate(costs):
        more = costs - others
        more[:, others >= FORBIDDEN] = -FORBIDDEN
        found[:, place] = more.max(axis=1)
    return found


def decide(network: Network, variable: int, costs: Costs) -> Network | None:
    """The network with a variable at the value of least cost that leaves all others some value.

    `costs` are by the values left; None when no value does.
    """
    for place in map(int, np.argsort(costs, kind="stable")):
        if costs[place] >= FORBIDDEN:
            return None
        trial = network.copy()
        trial.keep(variable, [place])
        if propagate(trial, [variable]):
            return trial
    return None


def least_costs(network: Network, variable: int, *, with_neighbours: bool = False) -> Costs:
    """What each value left to a variable costs at least, by the factors over it; with what its
    neighbours cost by themselves, if asked for."""
    total = np.zeros(len(network.values[variable]), dtype=np.int64)
    for number in network.touching[variable]:
        factor = network.factors[number]
        costs = factor.costs
        for axis, other in enumerate(factor.scope if with_neighbours else ()):
            if other != variable:
                shape = [-1 if each == axis else 1 for each in range(costs.ndim)]
                costs = capped(costs + _own_costs(network, other).reshape(shape))
        total = capped(total + least_along(costs, factor.scope.index(variable)))
    return total


def _own_costs(network: Network, variable: int) -> Costs:
    factors = [network.factors[number] for number in network.touching[variable]]
    own = [factor.costs for factor in factors if len(factor.scope) == 1]
    return capped(np.sum(own, axis=0)) if own else np.zeros(1, dtype=np.int64)
