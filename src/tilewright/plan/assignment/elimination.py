"""Bucket elimination (Dechter 1999): exact, one variable at a time.

To eliminate a variable, all factors over it are added up and minimised over it; the result, a
message, is a factor over its neighbours. Going back in the reverse order gives the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from tilewright.plan.assignment.factors import Factor, Network, at, by_size, eliminated
from tilewright.plan.assignment.records import FORBIDDEN

Buckets = tuple[tuple[int, tuple[Factor, ...]], ...]
"""Variables in the order of their elimination, each with the factors that were over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination:
    """What came of eliminating some variables.

    `rest` are the factors over the other variables. `least` is what an assignment costs at least
    beside them; where no variable is left, the least cost, `FORBIDDEN` if nothing is allowed.
    """

    buckets: Buckets
    rest: tuple[Factor, ...]
    least: int

    def chosen(self) -> dict[int, int]:
        """The values of one optimum, as places among those left in the network."""
        chosen: dict[int, int] = {}
        for variable, factors in reversed(self.buckets):
            chosen[variable] = int(np.argmin(at(factors, variable, chosen)))
        return chosen


def eliminate(network: Network, order: Sequence[int], most_cells: float = inf) -> Elimination:
    """Eliminate the variables of `order`.

    Where a message would have more than `most_cells`, the factors are divided and each part is
    minimised by itself. What is least then is a lower bound only (mini-buckets; Dechter and Rish
    2003).
    """
    position = {variable: number for number, variable in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in range(len(order) + 1)]

    def wait(factor: Factor) -> None:
        waiting[min(position.get(variable, len(order)) for variable in factor.scope)].append(factor)

    for factor in network.factors:
        wait(factor)
    least = network.constant
    for number, variable in enumerate(order):
        for part in _divided(waiting[number], variable, network.sizes, most_cells):
            message = eliminated(part, variable)
            if message.scope:
                wait(message)
            else:
                least = min(least + int(message.costs), FORBIDDEN)
    *buckets, rest = (tuple(factors) for factors in waiting)
    return Elimination(buckets=tuple(zip(order, buckets, strict=True)), rest=rest, least=least)


def _divided(
    factors: Sequence[Factor], variable: int, sizes: Sequence[int], most_cells: float
) -> list[list[Factor]]:
    """Factors in groups whose messages are small enough, large factors first."""
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in reversed(by_size(factors)):
        others = set(factor.scope) - {variable}
        for scope, group in groups:
            joint = scope | others
            if joint == scope or prod(sizes[other] for other in joint) <= most_cells:
                scope |= others
                group.append(factor)
                break
        else:
            groups.append((others, [factor]))
    return [group for _, group in groups]
