"""Tables by number: what the solvers compute with, values that they need not look at, and bucket
elimination.

A factor is a table over variable numbers in ascending order. Every function here keeps sums at
`FORBIDDEN` or below. Values of variables go that nothing allows, and those that another one beats.
Both leave at least one optimum. The second is dead-end elimination after Goldstein (1994): value b
beats value a of a variable when, whatever the others are, b costs no more than a.

Bucket elimination (Dechter 1999) is exact, one variable at a time. To eliminate a variable, all
factors over it are added up and minimised over it; the result, a message, is a factor over its
neighbours. Going back in the reverse order gives the values. What it takes depends on the order.
Finding the best one is NP-hard; min-fill and min-weight are the usual greedy rules (Kjaerulff
1990). Both are tried and the cheaper order taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf, prod

import numpy as np

from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem
from tilewright.plan.assignment.solution import allowed, infeasible

_MOST_DIFFERENCES = 1 << 22
_MOST_VISITS = 8
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
    merged: dict[tuple[int, ...], Costs] = {}
    for factor in factors:
        merged[factor.scope] = capped(merged.get(factor.scope, 0) + factor.costs)
    lists = [list(left) for left in values]
    touching: list[list[int]] = [[] for _ in lists]
    for number, scope in enumerate(merged):
        for variable in scope:
            touching[variable].append(number)
    return Network(lists, [Factor(*each) for each in merged.items()], touching, constant)


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
    fronts = [_front(factor, (variable, *rest)) for factor in by_size(factors)]
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


def possible_network(problem: Problem) -> Network:
    """The network of a problem without the values that nothing allows; raises Infeasible where a
    variable has no other ones."""
    network = network_of(problem)
    if not propagate(network):
        raise infeasible(problem)
    return network


def propagate(network: Network, changed: Iterable[int] | None = None) -> bool:
    """Drop values that some factor forbids whatever the others are, until none is left.

    Starts from the factors of the `changed` variables, all by default. False when a variable has
    no value left; the network is not to be used then.
    """
    start = range(len(network.values)) if changed is None else changed
    waiting = {number for variable in start for number in network.touching[variable]}
    while waiting:
        number = waiting.pop()
        factor = network.factors[number]
        if (factor.costs < FORBIDDEN).all():
            continue
        for axis, variable in enumerate(factor.scope):
            supported = np.flatnonzero(least_along(factor.costs, axis) < FORBIDDEN)
            if supported.size == 0:
                return False
            if supported.size < len(network.values[variable]):
                network.keep(variable, supported.tolist())
                factor = network.factors[number]
                waiting.update(network.touching[variable])
    return True


def drop_beaten(network: Network) -> None:
    """Dead-end elimination, as far as it is cheap: very large factors end it for a variable."""
    waiting = dict.fromkeys(range(len(network.values)))
    visits = [0] * len(network.values)
    while waiting:
        variable = next(iter(waiting))
        del waiting[variable]
        visits[variable] += 1
        kept = _unbeaten(network, variable)
        if len(kept) == len(network.values[variable]):
            continue
        network.keep(variable, kept)
        for number in network.touching[variable]:
            for other in network.factors[number].scope:
                if other != variable and visits[other] < _MOST_VISITS:
                    waiting[other] = None


def _unbeaten(network: Network, variable: int) -> list[int]:
    """The places of values of a variable that no value kept beats."""
    size = len(network.values[variable])
    factors = [network.factors[number] for number in network.touching[variable]]
    if size == 1 or sum(factor.costs.size for factor in factors) * size > _MOST_DIFFERENCES:
        return list(range(size))
    excess = np.zeros((size, size), dtype=np.int64)
    for factor in factors:
        costs = np.moveaxis(factor.costs, factor.scope.index(variable), 0).reshape(size, -1)
        excess = np.clip(excess + _excess(costs), -FORBIDDEN, FORBIDDEN)
    kept = list(range(size))
    for place in reversed(range(size)):
        if any(excess[other, place] <= 0 for other in kept if other != place):
            kept.remove(place)
    return kept


def _excess(costs: Costs) -> Costs:
    """How much value b may cost more than value a in one factor, as [b, a].

    Where the factor forbids a, a is no alternative and b may cost anything.
    """
    found = np.empty((len(costs), len(costs)), dtype=np.int64)
    for place, others in enumerate(costs):
        more = costs - others
        more[:, others >= FORBIDDEN] = -FORBIDDEN
        found[:, place] = more.max(axis=1)
    return found


def decide(network: Network, variable: int, costs: Costs) -> Network | None:
    """The network with a variable at the value of least cost that leaves all others some value.

    `costs` are by the values left; None when no value does.
    """
    for place in map(int, np.argsort(costs, kind="stable")):
        if costs[place] >= FORBIDDEN:
            return None
        trial = network.copy()
        trial.keep(variable, [place])
        if propagate(trial, [variable]):
            return trial
    return None


def least_costs(network: Network, variable: int, *, with_neighbours: bool = False) -> Costs:
    """What each value left to a variable costs at least, by the factors over it; with what its
    neighbours cost by themselves, if asked for."""
    total = np.zeros(len(network.values[variable]), dtype=np.int64)
    for number in network.touching[variable]:
        factor = network.factors[number]
        costs = factor.costs
        for axis, other in enumerate(factor.scope if with_neighbours else ()):
            if other != variable:
                shape = [-1 if each == axis else 1 for each in range(costs.ndim)]
                costs = capped(costs + _own_costs(network, other).reshape(shape))
        total = capped(total + least_along(costs, factor.scope.index(variable)))
    return total


def _own_costs(network: Network, variable: int) -> Costs:
    factors = [network.factors[number] for number in network.touching[variable]]
    own = [factor.costs for factor in factors if len(factor.scope) == 1]
    return capped(np.sum(own, axis=0)) if own else np.zeros(1, dtype=np.int64)


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


def solved(problem: Problem, network: Network, order: Sequence[int]) -> Elimination:
    """A problem's network with all variables eliminated. Raises Infeasible where nothing is
    allowed."""
    elimination = eliminate(network, order)
    if not allowed(elimination.least):
        raise infeasible(problem)
    return elimination


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
