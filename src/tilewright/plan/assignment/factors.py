"""Tables by number: what the solvers compute with.

A factor is a table over variable numbers in ascending order. Every function here keeps sums at
`FORBIDDEN` or below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import FORBIDDEN, Costs

_SUMMED_AT_ONCE = 16
BLOCK_CELLS = 1 << 16
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
        merged: dict[tuple[int, ...], Costs] = {}
        constant = self.constant
        for factor in self.factors:
            scope = tuple(v for v in factor.scope if len(self.values[v]) > 1)
            costs = factor.costs.reshape([len(self.values[v]) for v in scope])
            least = int(costs.min())
            if least == int(costs.max()):
                constant = min(constant + least, FORBIDDEN)
            else:
                _merge(merged, scope, costs)
        factors = [Factor(scope, costs) for scope, costs in merged.items()]
        touching = _touching(factors, len(self.values))
        return Network(list(self.values), factors, touching, constant)

    def places(self, chosen: Mapping[int, int]) -> tuple[int, ...]:
        """Choices among the values left as places in the problem; the first where none is made."""
        return tuple(values[chosen.get(number, 0)] for number, values in enumerate(self.values))


def network_of(problem: Problem) -> Network:
    """The factors of a problem, tables over the same variables added up."""
    merged: dict[tuple[int, ...], Costs] = {}
    for table in problem.tables:
        numbers = [problem.numbers[name] for name in table.variables]
        axes = sorted(range(len(numbers)), key=numbers.__getitem__)
        scope = tuple(numbers[axis] for axis in axes)
        _merge(merged, scope, np.transpose(table.costs, axes))
    factors = [Factor(scope, costs) for scope, costs in merged.items()]
    values = [list(range(len(variable.values))) for variable in problem.variables]
    return Network(values, factors, _touching(factors, len(values)))


def _merge(merged: dict[tuple[int, ...], Costs], scope: tuple[int, ...], costs: Costs) -> None:
    known = merged.get(scope)
    merged[scope] = costs if known is None else capped(known + costs)


def _touching(factors: Iterable[Factor], variables: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(variables)]
    for number, factor in enumerate(factors):
        for variable in factor.scope:
            found[variable].append(number)
    return found


def capped(costs: Costs) -> Costs:
    """Costs with everything above `FORBIDDEN` cut to it."""
    return np.minimum(costs, FORBIDDEN)


def scope_of(factors: Iterable[Factor]) -> tuple[int, ...]:
    """All variables of some factors, ascending."""
    return tuple(sorted({variable for factor in factors for variable in factor.scope}))


def eliminated(factors: Sequence[Factor], variable: int) -> Factor:
    """The sum of factors over `variable`, minimised over it: (v, a, b) → min over v of the sum.

    The sum is made block by block, never as a whole.
    """
    rest = tuple(other for other in scope_of(factors) if other != variable)
    sizes = {v: n for f in factors for v, n in zip(f.scope, f.costs.shape, strict=True)}
    message = np.full([sizes[other] for other in rest], FORBIDDEN, dtype=np.int64)
    step = max(1, BLOCK_CELLS // max(1, message.size))
    clique = (variable, *rest)
    fronts = [front(factor, clique) for factor in by_size(factors)]
    for start in range(0, sizes[variable], step):
        block = added([each[start : start + step] for each in fronts])
        np.minimum(message, block.min(axis=0), out=message)
    return Factor(rest, message)


def added(parts: Sequence[Costs]) -> Costs:
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
    return capped(added(vectors))


def front(factor: Factor, clique: Sequence[int]) -> Costs:
    """A view with the axis of `clique[0]` first that broadcasts over the clique.

    The factor is over that variable; the rest of the clique is ascending.
    """
    variable, rest = clique[0], clique[1:]
    costs = np.moveaxis(factor.costs, factor.scope.index(variable), 0)
    others = [other for other in factor.scope if other != variable]
    axes = dict(zip(others, costs.shape[1:], strict=True))
    return costs.reshape([costs.shape[0], *(axes.get(other, 1) for other in rest)])
