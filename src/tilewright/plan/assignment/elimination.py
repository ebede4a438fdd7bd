"""Bucket elimination (Dechter 1999): exact, one variable at a time.

To eliminate a variable, all factors over it are added up and minimised over it; the result, a
message, is a factor over its neighbours. Going back in the reverse order gives the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.factors import (
    BLOCK_CELLS,
    Factor,
    Network,
    added,
    at,
    by_size,
    capped,
    eliminated,
    front,
)
from tilewright.plan.assignment.records import FORBIDDEN, Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The factors that were added up to eliminate a variable, and the message that came out.

    `children` are the numbers of the buckets whose messages are among the factors.
    """

    variable: int
    factors: tuple[Factor, ...]
    children: tuple[int, ...]
    message: Factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination:
    """All buckets in order; `least` is the least cost, `FORBIDDEN` where nothing is allowed."""

    buckets: tuple[Bucket, ...]
    least: int

    def chosen(self) -> dict[int, int]:
        """The values of one optimum, as places among those left in the network."""
        chosen: dict[int, int] = {}
        for bucket in reversed(self.buckets):
            costs = at(bucket.factors, bucket.variable, chosen)
            chosen[bucket.variable] = int(np.argmin(costs))
        return chosen


def eliminate(network: Network, order: Sequence[int]) -> Elimination:
    """Eliminate in this order all variables that factors are over."""
    position = {variable: number for number, variable in enumerate(order)}
    waiting: list[list[tuple[int | None, Factor]]] = [[] for _ in order]
    for factor in network.factors:
        waiting[min(position[variable] for variable in factor.scope)].append((None, factor))
    buckets: list[Bucket] = []
    least = network.constant
    for number, variable in enumerate(order):
        factors = tuple(factor for _, factor in waiting[number])
        children = tuple(child for child, _ in waiting[number] if child is not None)
        message = eliminated(factors, variable)
        if message.scope:
            parent = min(position[other] for other in message.scope)
            waiting[parent].append((number, message))
        else:
            least = min(least + int(message.costs), FORBIDDEN)
        buckets.append(
            Bucket(variable=variable, factors=factors, children=children, message=message)
        )
    return Elimination(buckets=tuple(buckets), least=least)


def least_by_value(elimination: Elimination) -> dict[int, Costs]:
    """For each variable, the least cost of an assignment with each of its values (min-marginals).

    Messages go back from the last bucket to the first: what a bucket is told is the least cost of
    everything that is not below it, by the variables of the message it sent.
    """
    buckets = elimination.buckets
    told: dict[int, Costs] = {}
    found: dict[int, Costs] = {}
    for number in reversed(range(len(buckets))):
        bucket = buckets[number]
        if not bucket.message.scope:
            told[number] = np.array(_without(elimination.least, int(bucket.message.costs)))
        least, downward = _beliefs(bucket, told.pop(number), [buckets[c] for c in bucket.children])
        found[bucket.variable] = least
        told.update(zip(bucket.children, downward, strict=True))
    return found


def _without(total: int, part: int) -> int:
    return FORBIDDEN if total >= FORBIDDEN else total - part


def _beliefs(
    bucket: Bucket, outside: Costs, children: Sequence[Bucket]
) -> tuple[Costs, list[Costs]]:
    """The least cost by the bucket's own values, and what each child is told."""
    clique = (bucket.variable, *bucket.message.scope)
    fronts = [front(factor, clique) for factor in by_size(bucket.factors)]
    size = max(each.shape[0] for each in fronts)
    least = np.empty(size, dtype=np.int64)
    views = [front(child.message, clique) for child in children]
    downward = [np.full(view.shape, FORBIDDEN, dtype=np.int64) for view in views]
    step = max(1, BLOCK_CELLS // max(1, outside.size))
    for start in range(0, size, step):
        block = added([outside[np.newaxis], *(each[start : start + step] for each in fronts)])
        block = capped(block)
        least[start : start + step] = block.reshape(len(block), -1).min(axis=1)
        for down in downward:
            axes = tuple(axis for axis in range(1, block.ndim) if down.shape[axis] == 1)
            down[start : start + step] = block.min(axis=axes, keepdims=True)
    told: list[Costs] = []
    for child, view, down in zip(children, views, downward, strict=True):
        rest = np.where((down < FORBIDDEN) & (view < FORBIDDEN), down - view, FORBIDDEN)
        told.append(_ascending(rest, clique, child.message.scope))
    return least, told


def _ascending(costs: Costs, clique: Sequence[int], scope: Sequence[int]) -> Costs:
    """Costs over a clique as costs over `scope`; the other axes have one value."""
    absent = tuple(axis for axis, variable in enumerate(clique) if variable not in scope)
    left = [variable for variable in clique if variable in scope]
    squeezed = costs.squeeze(axis=absent)
    return np.transpose(squeezed, [left.index(variable) for variable in scope])


def lower_bound(network: Network, order: Sequence[int], most_cells: int) -> int:
    """A lower bound by mini-buckets (Dechter and Rish 2003), in picoseconds.

    As `eliminate`, but where a message would have more than `most_cells` the factors are divided
    and each part minimised by itself. Without any division the bound is the optimum.
    """
    position = {variable: number for number, variable in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in order]
    for factor in network.factors:
        waiting[min(position[variable] for variable in factor.scope)].append(factor)
    bound = network.constant
    for number, variable in enumerate(order):
        for part in _divided(waiting[number], variable, network.sizes, most_cells):
            message = eliminated(part, variable)
            if message.scope:
                waiting[min(position[other] for other in message.scope)].append(message)
            else:
                bound = min(bound + int(message.costs), FORBIDDEN)
    return bound


def _divided(
    factors: Sequence[Factor], variable: int, sizes: Sequence[int], most_cells: int
) -> list[list[Factor]]:
    """Factors in groups whose messages are small enough, large factors first."""
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in reversed(by_size(factors)):
        others = set(factor.scope) - {variable}
        for scope, group in groups:
            joint = scope | others
            if joint == scope or _cells(joint, sizes) <= most_cells:
                scope |= others
                group.append(factor)
                break
        else:
            groups.append((others, [factor]))
    return [group for _, group in groups]


def _cells(variables: set[int], sizes: Sequence[int]) -> int:
    cells = 1
    for variable in variables:
        cells *= sizes[variable]
    return cells
