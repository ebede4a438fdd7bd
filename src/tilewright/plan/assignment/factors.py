"""Tables by number: what the solvers compute with.

A factor is a table over variable numbers in ascending order. Every function here keeps sums at
`FORBIDDEN` or below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem

_SUMMED_AT_ONCE = 16
_BLOCK_CELLS = 1 << 16
"""How many costs are added up at once: few enough for the caches."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """Costs in picoseconds over the variables `scope`, ascending; one axis for each."""

    scope: tuple[int, ...]
    costs: Costs


@dataclass(slots=True)
class Network:
    """Factors over variables whose values may have become fewer.

    `values[v]` are the places, in the problem, of the values left for variable v; the axes of the
    factors follow them. `touching[v]` are the numbers of the factors over v. `constant` is a cost
    in picoseconds that every assignment has.
    """

    values: list[list[int]]
    factors: list[Factor]
    touching: list[list[int]]
    constant: int = 0

    @property
    def sizes(self) -> list[int]:
        """How many values each variable has left."""
        return [len(values) for values in self.values]

    def copy(self) -> Network:
        """Another network that can be narrowed on its own."""
        return Network(list(self.values), list(self.factors), self.touching, self.constant)

    def keep(self, variable: int, kept: Sequence[int]) -> None:
        """Leave a variable only those of its values that stand at `kept`."""
        self.values[variable] = [self.values[variable][place] for place in kept]
        for number in self.touching[variable]:
            factor = self.factors[number]
            costs = np.take(factor.costs, kept, axis=factor.scope.index(variable))
            self.factors[number] = Factor(factor.scope, costs)

    def simplified(self) -> Network:
        """The same without axes of one value and without factors that say nothing.

        A variable may end up in no factor; any value left to it will do.
        """
        left: list[Factor] = []
        constant = self.constant
        for factor in self.factors:
            scope = tuple(v for v in factor.scope if len(self.values[v]) > 1)
            costs = factor.costs.reshape([len(self.values[v]) for v in scope])
            if costs.min() == costs.max():
                constant = min(constant + int(costs.min()), FORBIDDEN)
            else:
                left.append(Factor(scope, costs))
        return network_over(self.values, left, constant)

    def places(self, chosen: Mapping[int, int]) -> tuple[int, ...]:
        """Choices among the values left as places in the problem; the first where none is made."""
        return tuple(values[chosen.get(number, 0)] for number, values in enumerate(self.values))


def network_of(problem: Problem) -> Network:
    """The factors of a problem."""
    factors: list[Factor] = []
    for table in problem.tables:
        numbers = [problem.numbers[name] for name in table.variables]
        axes = sorted(range(len(numbers)), key=numbers.__getitem__)
        factors.append(Factor(tuple(sorted(numbers)), np.transpose(table.costs, axes)))
    return network_over([range(len(each.values)) for each in problem.variables], factors)


def network_over(
    values: Iterable[Iterable[int]], factors: Iterable[Factor], constant: int = 0
) -> Network:
    """A network of these factors, those over the same variables added up."""
    merged: dict[tuple[int, ...], Factor] = {}
    for factor in factors:
        known = merged.get(factor.scope)
        total = (
            factor if known is None else Factor(factor.scope, capped(known.costs + factor.costs))
        )
        merged[factor.scope] = total
    lists = [list(left) for left in values]
    touching: list[list[int]] = [[] for _ in lists]
    for number, scope in enumerate(merged):
        for variable in scope:
            touching[variable].append(number)
    return Network(lists, list(merged.values()), touching, constant)


def least_along(costs: Costs, axis: int) -> Costs:
    """The least cost of each value along one axis, whatever the other axes' values are."""
    return np.moveaxis(costs, axis, 0).reshape(costs.shape[axis], -1).min(axis=1)


def capped(costs: Costs) -> Costs:
    """Costs with everything above `FORBIDDEN` cut to it."""
    return np.minimum(costs, FORBIDDEN)


def eliminated(factors: Sequence[Factor], variable: int) -> Factor:
    """The sum of factors over `variable`, minimised over it: (v, a, b) → min over v of the sum.

    The sum is made block by block, never as a whole.
    """
    sizes = {v: n for f in factors for v, n in zip(f.scope, f.costs.shape, strict=True)}
    rest = tuple(sorted(sizes.keys() - {variable}))
    message = np.full([sizes[other] for other in rest], FORBIDDEN, dtype=np.int64)
    step = max(1, _BLOCK_CELLS // max(1, message.size))
    clique = (variable, *rest)
    fronts = [_front(factor, clique) for factor in by_size(factors)]
    for start in range(0, sizes[variable], step):
        block = _added([each[start : start + step] for each in fronts])
        np.minimum(message, block.min(axis=0), out=message)
    return Factor(rest, message)


def _added(parts: Sequence[Costs]) -> Costs:
    """The sum of broadcastable costs, small ones first; cut at `FORBIDDEN` when there are many."""
    total = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        total = total + part
        if number % _SUMMED_AT_ONCE == 0:
            total = capped(total)
    return total


def by_size(factors: Iterable[Factor]) -> list[Factor]:
    """Factors, those with fewest costs first."""
    return sorted(factors, key=lambda factor: factor.costs.size)


def at(factors: Iterable[Factor], variable: int, chosen: Mapping[int, int]) -> Costs:
    """The cost of each value of a variable, its neighbours' values being `chosen`."""
    vectors = [
        factor.costs[
            tuple(slice(None) if other == variable else chosen[other] for other in factor.scope)
        ]
        for factor in factors
        if variable in factor.scope
    ]
    return capped(_added(vectors))


def _front(factor: Factor, clique: Sequence[int]) -> Costs:
    """A view with the axis of `clique[0]` first that broadcasts over the clique.

    The factor is over that variable; the rest of the clique is ascending.
    """
    costs = np.moveaxis(factor.costs, factor.scope.index(clique[0]), 0)
    sizes = dict(zip(factor.scope, factor.costs.shape, strict=True))
    return costs.reshape([sizes.get(variable, 1) for variable in clique])
