"""The fastest assignment within a budget of noise, proven: bucket elimination with labels.

A message holds for each combination of its variables' values not one cost but labels: pairs of cost
and noise of which none beats another. At a price for noise the least costs that elimination finds
bound what any label can still become from below, so that only those are kept that may end below a
limit:

    least ── first window ──│── second, twice as wide ──│ … up to the best that is known

An assignment that is found below the limit is the fastest there is; where there is none, nothing is
below the limit, and the next window is looked at. This is label setting with Lagrangian bounds
(Handler and Zang 1980; Beasley and Christofides 1989), on a tree of buckets instead of a path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.plan.assignment.factors import (
    Factor,
    Network,
    capped,
    cheapest_order,
    possible_network,
)
from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem
from tilewright.plan.assignment.solution import infeasible

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_MOST_WORK = 2 * 10**6
"""Above so many sums an elimination takes too long to be repeated, and its cliques too much
memory."""
_MOST_LABELS = 1 << 21
"""Of one bucket, before those that are beaten go."""
_WINDOWS = 16
"""The first window is this part of what is open."""
_ROUNDING = 1e-12
"""By which sums of noise may differ that are added up in another order."""


@dataclass(slots=True)
class _Labels:
    """Labels in the cells of a clique: `cost` in picoseconds, `noise`, `excess`, by how much they
    cost more at the price than the least of the cell, and `parts`, the labels of the children's
    messages that they are made of. `starts` and `counts` are by the cells of the message."""

    cells: Numbers
    cost: Numbers
    noise: Floats
    excess: Floats
    parts: tuple[Numbers, ...] = ()
    starts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def taken(self, places: Any) -> _Labels:
        """Some of them."""
        return _Labels(
            self.cells[places],
            self.cost[places],
            self.noise[places],
            self.excess[places],
            tuple(part[places] for part in self.parts),
        )

    def joined(self, other: _Labels, cells: Numbers) -> _Labels:
        """Each with each label of another message in the cell that lies beside it."""
        counts = other.counts[cells]
        if counts.sum() > _MOST_LABELS:
            raise _TooMany
        rows = np.repeat(np.arange(len(counts)), counts)
        before = np.cumsum(counts) - counts
        picked = np.arange(len(rows)) + np.repeat(other.starts[cells] - before, counts)
        return _Labels(
            self.cells[rows],
            self.cost[rows] + other.cost[picked],
            self.noise[rows] + other.noise[picked],
            self.excess[rows] + other.excess[picked],
            (*(part[rows] for part in self.parts), picked),
        )

    def unbeaten(self, cells: Numbers, count: int) -> _Labels:
        """Those that no other of the same one of `count` cells beats, cell by cell."""
        order = np.lexsort((self.cost, self.noise, cells))
        cells, found = cells[order], self.taken(order)
        if len(cells):
            # sums that fall from cell to cell by more than costs differ: one running minimum
            falling = found.cost - cells * (np.ptp(found.cost) + 1)
            least = np.minimum.accumulate(falling)
            kept = np.append(True, falling[1:] < least[:-1])
            cells, found = cells[kept], found.taken(kept)
        found.counts = np.bincount(cells, minlength=count)
        found.starts = np.cumsum(found.counts) - found.counts
        return found


class _TooMany(Exception):
    """More labels than fit, or than there is time for."""


@dataclass(slots=True, kw_only=True)
class _Bucket:
    """A variable with the factors over it when it is eliminated, the last one without a variable.

    `own` is the sum of factors by its values and by the combined values of `rest`, which are the
    cells of its message; infinite where one forbids. `beside` has by child the cell of the child's
    message for each cell of both. `joint` adds the price of noise and the children's messages,
    `whole` also what the rest of the network costs at least.
    """

    variable: int
    rest: tuple[int, ...]
    steps: tuple[int, ...]
    own: Floats
    noise: Floats
    children: tuple[int, ...]
    beside: tuple[Numbers, ...]
    joint: Floats
    whole: Floats
    message: Floats

    @property
    def width(self) -> int:
        """Cells of the message."""
        return self.own.shape[1]


@dataclass(slots=True)
class Labelling:
    """A problem whose network is narrow enough for labels, in the order of `buckets`."""

    problem: Problem
    network: Network
    buckets: list[_Bucket]

    @staticmethod
    def of(problem: Problem, noises: Mapping[str, Floats]) -> Labelling | None:
        """None where the network is too wide. Raises Infeasible where nothing is allowed."""
        network = possible_network(problem)
        scopes = [factor.scope for factor in network.factors]
        order = cheapest_order(scopes, network.sizes)
        if order.work > _MOST_WORK:
            return None
        numbers = {problem.numbers[name]: noise for name, noise in noises.items()}
        left = {number: noise[network.values[number]] for number, noise in numbers.items()}
        return Labelling(problem, network, _buckets(network, order.variables, left))

    def cheapest(self, price: float) -> tuple[Sequence[int], float]:
        """The places of the values that cost least with a price for noise, and that cost; with an
        infinite price, without noise. Raises Infeasible where all make some."""
        least = self._priced(price)
        if least == inf:
            raise infeasible(self.problem)
        chosen: dict[int, int] = {}
        for bucket in reversed(self.buckets):
            steps = zip(bucket.rest, bucket.steps, strict=True)
            cell = sum(chosen[variable] * step for variable, step in steps)
            chosen[bucket.variable] = int(bucket.joint[:, cell].argmin())
        return self.network.places(chosen), least

    def fastest(
        self, price: float, budget: float, known_ps: int, until_s: float
    ) -> tuple[Sequence[int] | None, float]:
        """The places of the fastest assignment within a budget that costs less than `known_ps`,
        None where none was found, and a lower bound of what costs less."""
        least = self._priced(price) - price * budget
        self._complete()
        room = budget * (1.0 - _ROUNDING)
        bound, width = least, (known_ps - least) / _WINDOWS
        found: Sequence[int] | None = None
        while bound < known_ps - 1:
            limit = min(bound + width, float(known_ps))
            try:
                better = self._below(limit + price * budget, room, until_s)
            except _TooMany:
                break
            if better is not None and self.problem.cost_at(better) < known_ps:
                found, known_ps = better, self.problem.cost_at(better)
            bound, width = min(limit, float(known_ps)), 2 * width
        return found, bound

    def _priced(self, price: float) -> float:
        """Price noise: the least that all costs."""
        for bucket in self.buckets:
            noisy = bucket.noise > 0
            charge = np.multiply(price, bucket.noise, out=np.zeros(len(noisy)), where=noisy)
            bucket.joint = bucket.own + charge[:, None]
            for child, cells in zip(bucket.children, bucket.beside, strict=True):
                bucket.joint += self.buckets[child].message[cells]
            bucket.message = bucket.joint.min(axis=0)
        return float(self.buckets[-1].message[0])

    def _complete(self) -> None:
        """Add to each clique what the rest of the network costs at least."""
        self.buckets[-1].whole = self.buckets[-1].joint
        for bucket in reversed(self.buckets):
            for child, cells in zip(bucket.children, bucket.beside, strict=True):
                below = self.buckets[child]
                least = np.full(below.width, inf)
                np.minimum.at(least, cells.ravel(), bucket.whole.ravel())
                beyond = np.subtract(least, below.message, out=least, where=least < inf)
                below.whole = below.joint + beyond

    def _below(self, limit: float, budget: float, until_s: float) -> Sequence[int] | None:
        """The fastest assignment within the budget, of those below a limit at the price."""
        every: list[_Labels] = []
        for bucket in self.buckets:
            if perf_counter() > until_s:
                raise _TooMany
            whole, joint = bucket.whole.ravel(), bucket.joint.ravel()
            cells = np.flatnonzero(whole < limit)
            costs = bucket.own.ravel()[cells].astype(np.int64)
            noise = bucket.noise[cells // bucket.width]
            labels = _Labels(cells, costs, noise, np.zeros(len(cells)))
            for child, beside in zip(bucket.children, bucket.beside, strict=True):
                labels = labels.joined(every[child], beside.ravel()[labels.cells])
                fits = whole[labels.cells] + labels.excess < limit
                labels = labels.taken(fits & (labels.noise <= budget))
            under = labels.cells % bucket.width
            labels.excess += joint[labels.cells] - bucket.message[under]
            every.append(labels.unbeaten(under, bucket.width))
        if not len(every[-1].cost):
            return None
        return self._traced(every, int(np.argmin(every[-1].cost)))

    def _traced(self, every: Sequence[_Labels], label: int) -> Sequence[int]:
        """The places of the values that a label of the last bucket is made of."""
        chosen: dict[int, int] = {}
        waiting = [(len(self.buckets) - 1, label)]
        while waiting:
            number, label = waiting.pop()
            bucket, labels = self.buckets[number], every[number]
            chosen[bucket.variable] = int(labels.cells[label]) // bucket.width
            waiting += [
                (child, int(part[label]))
                for child, part in zip(bucket.children, labels.parts, strict=True)
            ]
        return self.network.places(chosen)


def _buckets(network: Network, order: Sequence[int], noises: Mapping[int, Floats]) -> list[_Bucket]:
    """The buckets of variables in their order, and one without a variable for what is left."""
    position = {variable: number for number, variable in enumerate(order)}
    factors: list[list[Factor]] = [[] for _ in range(len(order) + 1)]
    children: list[list[int]] = [[] for _ in range(len(order) + 1)]
    for factor in network.factors:
        factors[min(position[variable] for variable in factor.scope)].append(factor)
    found: list[_Bucket] = []
    for number, variable in enumerate((*order, -1)):
        scopes = [f.scope for f in factors[number]] + [found[c].rest for c in children[number]]
        rest = tuple(sorted({v for scope in scopes for v in scope} - {variable}))
        sizes = {v: len(network.values[v]) for v in rest}
        shape = (len(network.values[variable]) if variable >= 0 else 1, *sizes.values())
        costs = np.zeros(shape, dtype=np.int64)
        for factor in factors[number]:
            costs = capped(costs + _over(factor, variable, sizes))
        noise = noises.get(variable, np.zeros(shape[0]))
        own = np.where(costs < FORBIDDEN, costs, inf).reshape(shape[0], -1)
        own[noise == inf] = inf
        beside = [_beside(found[child], variable, rest, shape) for child in children[number]]
        found.append(
            _Bucket(
                variable=variable,
                rest=rest,
                steps=tuple(prod(shape[axis + 2 :]) for axis in range(len(rest))),
                own=own,
                noise=np.where(noise < inf, noise, 0.0),
                children=tuple(children[number]),
                beside=tuple(cells.reshape(own.shape) for cells in beside),
                joint=own,
                whole=own,
                message=own[0],
            )
        )
        if variable >= 0:
            children[min((position[v] for v in rest), default=len(order))].append(number)
    return found


def _over(factor: Factor, variable: int, sizes: Mapping[int, int]) -> Costs:
    """A factor's costs by the values of a variable of its, then of others."""
    costs = np.moveaxis(factor.costs, factor.scope.index(variable), 0)
    inside = [n if v in factor.scope else 1 for v, n in sizes.items()]
    return costs.reshape(len(costs), *inside)


def _beside(child: _Bucket, variable: int, rest: Sequence[int], shape: Sequence[int]) -> Numbers:
    """The cell of a child's message for each cell of its parent's clique."""
    steps = dict(zip(child.rest, child.steps, strict=True))
    found = np.zeros(shape, dtype=np.int64)
    for axis, (each, size) in enumerate(zip((variable, *rest), shape, strict=True)):
        along = [1] * len(shape)
        along[axis] = size
        found += (steps.get(each, 0) * np.arange(size)).reshape(along)
    return found
