"""Bucket elimination in the cheaper of two greedy orders, after dead-end elimination if it pays.

Proves its optimum. Time and memory grow with the width of the graph, not with its length.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.plan.assignment.elimination import eliminate
from tilewright.plan.assignment.factors import Network
from tilewright.plan.assignment.ordering import Order, cheapest_order
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.reduction import drop_beaten, possible_network
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible

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
        elimination = eliminate(network, order.variables)
        if not allowed(elimination.least):
            raise infeasible(problem)
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
    simple = network.simplified()
    order = _order(simple)
    if order.work > most_work:
        drop_beaten(network)
        simple = network.simplified()
        order = _order(simple)
    return simple, order


def _order(network: Network) -> Order:
    return cheapest_order([factor.scope for factor in network.factors], network.sizes)
