"""Solvers that eliminate one variable after the other, in different orders.

`Exact` takes the cheaper of two greedy orders, after dead-end elimination if it pays, and proves
its optimum. Time and memory grow with the width of the graph, not with its length.

`DynamicProgram` takes the topological order, as TVM's old graph tuner did. The state is the values
of the unresolved variables: those seen that a table still to come is over. It is exact where the
states stay few, and refuses where they do not: other orders often have far fewer.

`Pbqp` has the reductions of partitioned boolean quadratic programs (Hames and Scholz 2006). R0, RI
and RII eliminate variables with no, one or two neighbours; they lose nothing. Where only variables
with more are left, RN fixes the one with most neighbours at the value that looks best by itself and
its neighbours. Going back gives the values of the eliminated variables. A table over more than two
variables makes all of them neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.plan.assignment.factors import (
    Buckets,
    Neighbours,
    Network,
    Order,
    at,
    cheapest_order,
    decide,
    drop_beaten,
    eliminate,
    join_neighbours,
    least_costs,
    neighbours_of,
    network_of,
    network_over,
    possible_network,
    solved,
)
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible, nothing_found

CHEAP_WORK = 5 * 10**7
"""Sums that take less time than looking for dead ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """`most_cells` limits the costs kept in messages (8 bytes each), `most_work` those summed up.

    Above either, TooWide is raised before anything is computed.
    """

    name: str = "exact"
    most_cells: int = 1 << 26
    most_work: int = 10**10

    def find(self, problem: Problem) -> Found:
        """An optimum."""
        network, order = reduced(problem, most_work=CHEAP_WORK)
        if not self.fits(order):
            raise TooWide(
                f"{problem.title} is too wide for the exact solver: an elimination order has width "
                f"{order.width}, messages of {order.kept:.1e} costs and {order.work:.1e} sums; "
                f"the limits are {self.most_cells:.1e} and {self.most_work:.1e}.",
                hint="Use the solver milp, which proves a bound, or auto.",
            )
        elimination = solved(problem, network, order.variables)
        return Found(
            places=network.places(elimination.chosen()),
            bound_ps=elimination.least,
            note=f"width {order.width}",
        )

    def fits(self, order: Order) -> bool:
        """Whether an elimination in this order stays within the limits."""
        return order.kept <= self.most_cells and order.work <= self.most_work


QUICK = Exact(most_cells=1 << 25, most_work=5 * 10**8)
"""The exact solver as it is used where there is a choice: for a few seconds at most."""


def reduced(problem: Problem, *, most_work: int = 0) -> tuple[Network, Order]:
    """The network with values dropped that no optimum needs, and an elimination order.

    Dead ends are looked for where an elimination takes more than `most_work` sums. Raises
    Infeasible where it shows already that nothing is allowed.
    """
    network = possible_network(problem)
    simple, order = _ordered(network)
    if order.work <= most_work:
        return simple, order
    drop_beaten(network)
    return _ordered(network)


def _ordered(network: Network) -> tuple[Network, Order]:
    """The network simplified, and an elimination order of that."""
    simple = network.simplified()
    return simple, cheapest_order([factor.scope for factor in simple.factors], simple.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicProgram:
    """`max_num_states` limits the states at any time; above it, TooWide is raised."""

    name: str = "dp"
    max_num_states: int = 1 << 23

    def find(self, problem: Problem) -> Found:
        """An optimum."""
        network = network_of(problem)
        elimination = solved(problem, network, self._order(problem, network))
        return Found(places=network.places(elimination.chosen()), bound_ps=elimination.least)

    def _order(self, problem: Problem, network: Network) -> list[int]:
        """The variables as they are resolved, each with the last table over it."""
        scopes = [factor.scope for factor in network.factors]
        last = [max((scopes[n][-1] for n in touching), default=0) for touching in network.touching]
        arriving: list[set[int]] = [set() for _ in network.values]
        for scope in scopes:
            arriving[scope[-1]].update(scope)
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
            decided = decide(
                network, variable, least_costs(network, variable, with_neighbours=True)
            )
            if decided is None:
                raise nothing_found(problem, self.name) if steps[1:] else infeasible(problem)
            network = decided.simplified()
        places, fixed = _places(network.places({}), steps), len(steps) - 1
        objective = problem.cost_at(places)
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
