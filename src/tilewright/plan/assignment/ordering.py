"""In which order variables are eliminated, and what that takes.

Finding the best order is NP-hard; min-fill and min-weight are the usual greedy rules (Kjaerulff
1990). Both are tried and the cheaper order taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod

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
    scopes: Iterable[Sequence[int]], sizes: Sequence[int], last: Container[int] = ()
) -> Order:
    """The cheaper of the min-fill and the min-weight order of all variables in the scopes, those
    in `last` after all others."""
    listed = list(scopes)
    orders = (_order(neighbours_of(listed), sizes, rule, last) for rule in (_fill, _weight))
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
