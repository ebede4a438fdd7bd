# pyright: basic
"""Which kernels of a new device class to measure first: those that tell most about the others.

What the model of a known class misses on the new one is taken for a Gaussian process: kernels of
which that model says the same, and which are alike in the facts that it goes by, are missed alike.
The kernels that are chosen leave the least of its variance on all that were offered.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tilewright.predict.base import Floats
from tilewright.predict.gaussian import GaussianProcess, Inputs, Prior, most_telling
from tilewright.predict.kernel_facts import KernelTable
from tilewright.predict.kernel_models import KernelModel
from tilewright.predict.splits import Integers

FACTS = 8
"""So many facts, those by which the known class's trees gain most, say how alike kernels are."""

_POOL = 1500
_SAID = 2.0
"""How much what the known model says counts beside one fact."""

_PRIOR = Prior(near=0.1, linear=0.02, constant=0.1, noise=0.05)


def informative(model: KernelModel, table: KernelTable, count: int, seed: int = 0) -> Integers:
    """The numbers of `count` rows of a table, the most telling first; `model` is that of a known
    device class. Of a large table a part is drawn that is chosen from."""
    rows = np.random.default_rng(seed).permutation(len(table))[:_POOL]
    places = coordinates(model, table)
    inputs = Inputs(near=places[rows], linear=places[rows], noise=np.ones(len(rows)))
    process = GaussianProcess(_PRIOR, places.shape[1])
    covariance, noise = process.covariance(inputs)
    weights = np.full(len(rows), 1 / len(rows))
    return rows[most_telling(covariance, noise, weights, count)]


def coordinates(model: KernelModel, table: KernelTable) -> Floats:
    """Where the rows lie: by what the model says of them, how long they take at least, and the
    facts it goes by, each of unit spread; facts that a row does not have lie in the middle."""
    values = table.aligned(model.names)
    own = [_SAID * _unit(model.margin(values)), _unit(np.log2(table.roof_s))]
    facts = [_unit(values[:, column]) for column in _leading(model)]
    return np.column_stack([*own, *facts])


def _leading(model: KernelModel) -> list[int]:
    """The columns that the trees gain most by."""
    gains: Counter[int] = Counter()
    for member in model.members:
        found = member.booster.get_score(importance_type="total_gain")
        gains.update({int(name.removeprefix("f")): gain for name, gain in found.items()})
    return [column for column, _ in gains.most_common(FACTS)]


def _unit(values: Floats) -> Floats:
    there = np.isfinite(values)
    if not there.any():
        return np.zeros(len(values))
    middle, spread = values[there].mean(), values[there].std()
    return np.where(there, (values - middle) / (spread or 1.0), 0.0)
