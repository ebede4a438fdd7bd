"""Dynamic programming in topological order, as TVM's old graph tuner did it.

The state is the values of the unresolved variables: those seen that a table still to come is over.
It is exact where the states stay few, and refuses where they do not: other orders, as the exact
solver takes, often have far fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.plan.assignment.factors import Factor, Network, capped, network_of, scope_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import FORBIDDEN, Costs
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicProgram:
    """`max_num_states` limits the states at any time; above it, TooWide is raised."""

    name: str = "dp"
    max_num_states: int = 1 << 23

    def find(self, problem: Problem) -> Found:
        """An optimum."""
        network = network_of(problem)
        last = [
            max(network.factors[number].scope[-1] for number in touching)
            for touching in network.touching
        ]
        arriving: list[list[Factor]] = [[] for _ in last]
        for factor in network.factors:
            arriving[factor.scope[-1]].append(factor)
        states = Factor((), np.zeros((), dtype=np.int64))
        resolved: list[Factor] = []
        for variable in range(len(last)):
            joined = [states, *arriving[variable]]
            self._check(problem, network, scope_of(joined))
            states = _sum(joined, network)
            for done in [v for v in states.scope if last[v] <= variable]:
                resolved.append(_choices(states, done))
                states = _without(states, done)
        least = int(states.costs)
        if not allowed(least):
            raise infeasible(problem)
        return Found(places=_values(resolved, network), bound_ps=least)

    def _check(self, problem: Problem, network: Network, unresolved: tuple[int, ...]) -> None:
        states = prod(len(network.values[variable]) for variable in unresolved)
        if states > self.max_num_states:
            raise TooWide(
                f"{problem.title} has {states:.1e} states at "
                f"{problem.variables[unresolved[-1]].name!r}, with {len(unresolved)} variables "
                f"unresolved; dp stops at {self.max_num_states:.1e}.",
                hint="Use the solver exact, which eliminates in a better order, or pbqp.",
            )


def _sum(factors: list[Factor], network: Network) -> Factor:
    """The sum of factors over all their variables, ascending."""
    scope = scope_of(factors)
    total: Costs = np.zeros([len(network.values[v]) for v in scope], dtype=np.int64)
    for factor in factors:
        axes = dict(zip(factor.scope, factor.costs.shape, strict=True))
        total = capped(total + factor.costs.reshape([axes.get(v, 1) for v in scope]))
    return Factor(scope, total)


def _choices(states: Factor, variable: int) -> Factor:
    """The best value of a variable for every value of the other unresolved ones.

    The scope keeps `variable` in front; the costs are places of values.
    """
    axis = states.scope.index(variable)
    rest = tuple(other for other in states.scope if other != variable)
    return Factor((variable, *rest), states.costs.argmin(axis=axis).astype(np.int64))


def _without(states: Factor, variable: int) -> Factor:
    axis = states.scope.index(variable)
    rest = tuple(other for other in states.scope if other != variable)
    return Factor(rest, np.minimum(states.costs.min(axis=axis), FORBIDDEN))


def _values(resolved: list[Factor], network: Network) -> tuple[int, ...]:
    chosen: dict[int, int] = {}
    for choice in reversed(resolved):
        variable, *rest = choice.scope
        chosen[variable] = int(choice.costs[tuple(chosen[other] for other in rest)])
    return network.places(chosen)


SOLVER = DynamicProgram()
