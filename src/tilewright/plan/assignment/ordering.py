"""In which order variables are eliminated, and what that takes.

Finding the best order is NP-hard; min-fill and min-weight are the usual greedy rules (Kjaerulff
1990). Both are tried and the cheaper order taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import prod

Neighbours = list[set[int]]
Rule = Callable[[int, Neighbours, Sequence[int]], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An elimination order.

    `width` is the most neighbours of a variable when it is eliminated. `largest` is the size of the
    largest message, `kept` that of all together, `work` of all tables summed up on the way.
    """

    variables: tuple[int, ...]
    width: int
    largest: int
    kept: int
    work: int


def cheapest_order(scopes: Iterable[Sequence[int]], sizes: Sequence[int]) -> Order:
    """The cheaper of the min-fill and the min-weight order of all variables in the scopes."""
    listed = [tuple(scope) for scope in scopes if scope]
    return min((_order(listed, sizes, rule) for rule in (_fill, _weight)), key=lambda o: o.work)


def _order(scopes: Sequence[Sequence[int]], sizes: Sequence[int], rule: Rule) -> Order:
    neighbours: Neighbours = [set() for _ in sizes]
    present = {variable for scope in scopes for variable in scope}
    for scope in scopes:
        for first, second in combinations(scope, 2):
            neighbours[first].add(second)
            neighbours[second].add(first)
    score = {variable: rule(variable, neighbours, sizes) for variable in present}
    heap = [(score[variable], variable) for variable in score]
    heapify(heap)
    order: list[int] = []
    width = largest = kept = work = 0
    while heap:
        told, variable = heappop(heap)
        if score.get(variable) != told:
            continue
        del score[variable]
        order.append(variable)
        around = neighbours[variable]
        cells = prod(sizes[other] for other in around)
        width, largest = max(width, len(around)), max(largest, cells)
        kept, work = kept + cells, work + cells * sizes[variable]
        for other in around:
            neighbours[other] |= around
            neighbours[other] -= {variable, other}
        affected = set(around).union(*(neighbours[other] for other in around))
        for other in affected:
            score[other] = rule(other, neighbours, sizes)
            heappush(heap, (score[other], other))
    return Order(variables=tuple(order), width=width, largest=largest, kept=kept, work=work)


def _fill(variable: int, neighbours: Neighbours, sizes: Sequence[int]) -> tuple[int, int]:
    around = neighbours[variable]
    missing = sum(len(around - neighbours[other]) - 1 for other in around) // 2
    return missing, _cells(variable, neighbours, sizes)


def _weight(variable: int, neighbours: Neighbours, sizes: Sequence[int]) -> tuple[int, int]:
    return _cells(variable, neighbours, sizes), len(neighbours[variable])


def _cells(variable: int, neighbours: Neighbours, sizes: Sequence[int]) -> int:
    return sizes[variable] * prod(sizes[other] for other in neighbours[variable])
