"""The best kernel everywhere, whatever the transforms between them cost.

What operator-level tuning gives by itself: each choice with kernel times takes the value whose
kernels are fastest. Everything else is then chosen at least cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.factors import capped, network_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import Costs
from tilewright.plan.assignment.reduction import propagate
from tilewright.plan.assignment.solution import Found, Infeasible, infeasible, nothing_found
from tilewright.plan.assignment.solvers.greedy import decide
from tilewright.plan.assignment.solvers.within import best_within


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBest:
    """Proves nothing. A choice that earlier ones forbid takes the next best value."""

    name: str = "history_best"

    def find(self, problem: Problem) -> Found:
        """The best kernels, then the best of the rest."""
        network = network_of(problem)
        if not propagate(network):
            raise infeasible(problem)
        fixed: dict[str, tuple[str, ...]] = {}
        for number, variable in enumerate(problem.variables):
            costs = _kernel_costs(problem, variable.name) if variable.kind == "choice" else None
            if costs is None:
                continue
            decided = decide(network, number, costs[network.values[number]])
            if decided is None:
                raise nothing_found(problem, self.name)
            network = decided
            fixed[variable.name] = (variable.values[network.values[number][0]],)
        try:
            found = best_within(problem.restricted(fixed))
        except Infeasible as error:
            raise nothing_found(problem, self.name) from error
        return Found(places=problem.places(found), note=f"{len(fixed)} choices fixed")


def _kernel_costs(problem: Problem, name: str) -> Costs | None:
    """The least kernel time by value of a choice, None where no kernel depends on it."""
    total: Costs | None = None
    for table in problem.tables:
        if table.role != "kernel" or name not in table.variables:
            continue
        rest = tuple(axis for axis, other in enumerate(table.variables) if other != name)
        least = np.asarray(table.costs.min(axis=rest))
        total = least if total is None else capped(total + least)
    return total


SOLVER = HistoryBest()
