"""Bucket elimination (Dechter 1999): exact, one variable at a time.

To eliminate a variable, all factors over it are added up and minimised over it; the result, a
message, is a factor over its neighbours. Going back in the reverse order gives the values. What it
takes depends on the order. Finding the best one is NP-hard; min-fill and min-weight are the usual
greedy rules (Kjaerulff 1990). Both are tried and the cheaper order taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf, prod

import numpy as np

from tilewright.plan.assignment.factors import Factor, Network, at, by_size, eliminated
from tilewright.plan.assignment.problem import FORBIDDEN

Neighbours = dict[int, set[int]]
"""The variables that share a factor with each that is in any, itself among them."""
Rule = Callable[[int, Neighbours, Sequence[int]], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An elimination order.

    `width` is the most neighbours of a variable when it is eliminated. `kept` is the size of all
    messages together, `work` that of all tables summed up on the way.
    """

    variables: tuple[int, ...]
    width: int
    kept: int
    work: int


def cheapest_order(
    scopes: Collection[Sequence[int]], sizes: Sequence[int], last: Container[int] = ()
) -> Order:
    """The cheaper of the min-fill and the min-weight order of all variables in the scopes, those
    in `last` after all others."""
    orders = (_order(neighbours_of(scopes), sizes, rule, last) for rule in (_fill, _weight))
    return min(orders, key=lambda order: order.work)


def neighbours_of(scopes: Iterable[Sequence[int]]) -> Neighbours:
    """The neighbours of each variable that is in a scope."""
    neighbours: Neighbours = defaultdict(set)
    for scope in scopes:
        for variable in scope:
            neighbours[variable].update(scope)
    return neighbours


def join_neighbours(variable: int, neighbours: Neighbours) -> set[int]:
    """Take a variable out; the others around it, which are given, become neighbours."""
    around = neighbours.pop(variable) - {variable}
    for other in around:
        neighbours[other] |= around
        neighbours[other].discard(variable)
    return around


def _order(neighbours: Neighbours, sizes: Sequence[int], rule: Rule, last: Container[int]) -> Order:
    def scored(variable: int) -> tuple[bool, tuple[int, int]]:
        return variable in last, rule(variable, neighbours, sizes)

    score = {variable: scored(variable) for variable in neighbours}
    heap = [(score[variable], variable) for variable in score]
    heapify(heap)
    order: list[int] = []
    width = kept = work = 0
    while heap:
        told, variable = heappop(heap)
        if score.get(variable) != told:
            continue
        del score[variable]
        order.append(variable)
        around = join_neighbours(variable, neighbours)
        cells = prod(sizes[other] for other in around)
        width, kept, work = max(width, len(around)), kept + cells, work + cells * sizes[variable]
        for other in around.union(*(neighbours[other] for other in around)):
            score[other] = scored(other)
            heappush(heap, (score[other], other))
    return Order(variables=tuple(order), width=width, kept=kept, work=work)


def _fill(variable: int, neighbours: Neighbours, sizes: Sequence[int]) -> tuple[int, int]:
    around = neighbours[variable]
    missing = sum(len(around - neighbours[other]) for other in around) // 2
    return missing, _weight(variable, neighbours, sizes)[0]


def _weight(variable: int, neighbours: Neighbours, sizes: Sequence[int]) -> tuple[int, int]:
    around = neighbours[variable]
    return prod(sizes[other] for other in around), len(around)


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
