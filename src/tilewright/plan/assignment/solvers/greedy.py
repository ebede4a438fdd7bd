"""One variable after the other, in the problem's order, each at its least cost so far.

A table with undecided variables counts with the least it can still cost. Values that would leave a
variable without any are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.factors import Network, capped, network_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import Costs
from tilewright.plan.assignment.reduction import propagate
from tilewright.plan.assignment.solution import Found, allowed, infeasible, nothing_found


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """Proves nothing, and may find nothing where much is forbidden."""

    name: str = "greedy"

    def find(self, problem: Problem) -> Found:
        """An assignment made in one pass."""
        network = network_of(problem)
        if not propagate(network):
            raise infeasible(problem)
        for variable in range(len(network.values)):
            decided = decide(network, variable, _costs(network, variable))
            if decided is None:
                raise nothing_found(problem, self.name)
            network = decided
        return Found(places=network.places({}))


def decide(network: Network, variable: int, costs: Costs) -> Network | None:
    """The network with a variable at the value of least cost that leaves all others some value.

    `costs` are by the values left; None when no value does.
    """
    for place in map(int, np.argsort(costs, kind="stable")):
        if not allowed(int(costs[place])):
            return None
        trial = network.copy()
        trial.keep(variable, [place])
        if propagate(trial, [variable]):
            return trial
    return None


def _costs(network: Network, variable: int) -> Costs:
    """What each value left to a variable costs at least."""
    total = np.zeros(len(network.values[variable]), dtype=np.int64)
    for number in network.touching[variable]:
        factor = network.factors[number]
        rest = tuple(axis for axis, other in enumerate(factor.scope) if other != variable)
        total = capped(total + factor.costs.min(axis=rest))
    return total


SOLVER = Greedy()
