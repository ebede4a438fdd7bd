"""Reductions of partitioned boolean quadratic programs (Hames and Scholz 2006).

R0, RI and RII eliminate variables with no, one or two neighbours; they lose nothing. Where only
variables with more are left, RN fixes the one with most neighbours at the value that looks best by
itself and its neighbours. Going back gives the values of the eliminated variables. A table over
more than two variables makes all of them neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.elimination import Buckets, eliminate
from tilewright.plan.assignment.factors import at, network_over
from tilewright.plan.assignment.ordering import Neighbours, join_neighbours, neighbours_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.reduction import decide, least_costs, possible_network
from tilewright.plan.assignment.solution import Found, allowed, infeasible, nothing_found

_MOST_NEIGHBOURS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pbqp:
    """Exact where R0, RI and RII suffice; a heuristic that may find nothing elsewhere."""

    name: str = "pbqp"

    def find(self, problem: Problem) -> Found:
        """An assignment, proven the best when RN was not needed."""
        network = possible_network(problem)
        steps: list[tuple[list[list[int]], Buckets]] = []
        while True:
            neighbours = neighbours_of(factor.scope for factor in network.factors)
            elimination = eliminate(network, _reducible(neighbours))
            steps.append((network.values, elimination.buckets))
            network = network_over(network.values, elimination.rest)
            if not network.factors:
                break
            variable = max(neighbours, key=lambda each: (len(neighbours[each]), -each))
            costs = least_costs(network, variable, with_neighbours=True)
            decided = decide(network, variable, costs)
            if decided is None:
                raise nothing_found(problem, self.name) if steps[1:] else infeasible(problem)
            network = decided.simplified()
        places = _places(network.places({}), steps)
        objective = problem.cost(problem.assignment(places))
        fixed = len(steps) - 1
        if not allowed(objective):
            raise nothing_found(problem, self.name) if fixed else infeasible(problem)
        note = f"RN fixed {fixed} variables" if fixed else "RN was not needed"
        return Found(places=places, bound_ps=None if fixed else objective, note=note)


def _reducible(neighbours: Neighbours) -> list[int]:
    """Take out the variables that R0, RI and RII eliminate, one after the other."""
    order: list[int] = []
    waiting = set(neighbours)
    while waiting:
        variable = waiting.pop()
        if len(neighbours[variable]) <= _MOST_NEIGHBOURS + 1:
            order.append(variable)
            waiting |= join_neighbours(variable, neighbours)
    return order


def _places(
    left: Sequence[int], steps: Sequence[tuple[list[list[int]], Buckets]]
) -> tuple[int, ...]:
    """Places in the problem, from those that are left and the factors of what was eliminated in
    each step, when variables had these values."""
    places = list(left)
    for values, buckets in reversed(steps):
        for variable, factors in reversed(buckets):
            others = {each for factor in factors for each in factor.scope} - {variable}
            chosen = {other: values[other].index(places[other]) for other in others}
            places[variable] = values[variable][int(np.argmin(at(factors, variable, chosen)))]
    return tuple(places)
