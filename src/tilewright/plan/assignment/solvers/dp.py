"""Dynamic programming in topological order, as TVM's old graph tuner did it.

The state is the values of the unresolved variables: those seen that a table still to come is over.
It is exact where the states stay few, and refuses where they do not: other orders, as the exact
solver takes, often have far fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.plan.assignment.elimination import eliminate
from tilewright.plan.assignment.factors import Network, network_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicProgram:
    """`max_num_states` limits the states at any time; above it, TooWide is raised."""

    name: str = "dp"
    max_num_states: int = 1 << 23

    def find(self, problem: Problem) -> Found:
        """An optimum."""
        network = network_of(problem)
        elimination = eliminate(network, self._order(problem, network))
        if not allowed(elimination.least):
            raise infeasible(problem)
        return Found(places=network.places(elimination.chosen()), bound_ps=elimination.least)

    def _order(self, problem: Problem, network: Network) -> list[int]:
        """The variables as they are resolved, each with the last table over it."""
        last: dict[int, int] = {}
        arriving: list[set[int]] = [set() for _ in network.values]
        for factor in network.factors:
            arriving[factor.scope[-1]].update(factor.scope)
            for variable in factor.scope:
                last[variable] = max(last.get(variable, 0), factor.scope[-1])
        order: list[int] = []
        unresolved: set[int] = set()
        for variable, scope in enumerate(arriving):
            unresolved |= scope
            states = prod(len(network.values[each]) for each in unresolved)
            if states > self.max_num_states:
                raise TooWide(
                    f"{problem.title} has {states:.1e} states at "
                    f"{problem.variables[max(unresolved)].name!r}, with {len(unresolved)} "
                    f"variables unresolved; dp stops at {self.max_num_states:.1e}.",
                    hint="Use the solver exact, which eliminates in a better order, or pbqp.",
                )
            done = sorted(each for each in unresolved if last[each] <= variable)
            order += done
            unresolved.difference_update(done)
        return order
