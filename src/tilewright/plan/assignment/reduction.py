"""Values that need not be looked at: those nothing allows, and those another value beats.

Both leave at least one optimum. The second is dead-end elimination after Goldstein (1994): value b
beats value a of a variable when, whatever the others are, b costs no more than a.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tilewright.plan.assignment.factors import Network
from tilewright.plan.assignment.records import FORBIDDEN, Costs

_MOST_DIFFERENCES = 1 << 22
_MOST_VISITS = 8


def propagate(network: Network, changed: Iterable[int] | None = None) -> bool:
    """Drop values that some factor forbids whatever the others are, until none is left.

    Starts from the factors of the `changed` variables, all by default. False when a variable has
    no value left; the network is not to be used then.
    """
    touching = network.touching
    start = range(len(network.values)) if changed is None else changed
    waiting = {number for variable in start for number in touching[variable]}
    while waiting:
        factor = network.factors[waiting.pop()]
        possible = factor.costs < FORBIDDEN
        if possible.all():
            continue
        for axis, variable in enumerate(factor.scope):
            others = tuple(other for other in range(possible.ndim) if other != axis)
            supported = np.flatnonzero(possible.any(axis=others))
            if supported.size == 0:
                return False
            if supported.size < possible.shape[axis]:
                network.keep(variable, supported.tolist())
                possible = np.take(possible, supported, axis=axis)
                waiting.update(touching[variable])
    return True


def drop_beaten(network: Network) -> None:
    """Dead-end elimination, as far as it is cheap: very large factors end it for a variable."""
    touching = network.touching
    waiting = dict.fromkeys(range(len(network.values)))
    visits = [0] * len(network.values)
    while waiting:
        variable = next(iter(waiting))
        del waiting[variable]
        visits[variable] += 1
        kept = _unbeaten(network, variable, touching[variable])
        if len(kept) == len(network.values[variable]):
            continue
        network.keep(variable, kept)
        for number in touching[variable]:
            for other in network.factors[number].scope:
                if other != variable and visits[other] < _MOST_VISITS:
                    waiting[other] = None


def _unbeaten(network: Network, variable: int, touching: Sequence[int]) -> list[int]:
    """The places of values of a variable that no value kept beats."""
    size = len(network.values[variable])
    everything = list(range(size))
    factors = [network.factors[number] for number in touching]
    if size == 1 or sum(factor.costs.size for factor in factors) * size > _MOST_DIFFERENCES:
        return everything
    excess = np.zeros((size, size), dtype=np.int64)
    for factor in factors:
        costs = np.moveaxis(factor.costs, factor.scope.index(variable), 0).reshape(size, -1)
        excess = np.clip(excess + _excess(costs), -FORBIDDEN, FORBIDDEN)
    kept = set(everything)
    for place in reversed(everything):
        if any(excess[other, place] <= 0 for other in kept if other != place):
            kept.discard(place)
    return sorted(kept)


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
