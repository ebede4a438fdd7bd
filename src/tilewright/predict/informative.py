# pyright: basic
"""Which kernels of a new device class to measure first: those that tell most about the others.

What the model of a known class misses on the new one is taken for a Gaussian process: kernels of
which that model says the same, and which are alike in the features that it goes by, are
missed alike. The kernels that are chosen leave the least of its variance on all that were offered.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tilewright.predict.base import Features, Floats, Integers
from tilewright.predict.family_models import FamilyModel

FEATURES = 8
"""So many features, those by which the known class's trees gain most, say how alike kernels are."""

_POOL = 1500
_SAID = 2.0
"""How much what the known model says counts beside one feature."""


def informative(model: FamilyModel, features: Features, count: int, seed: int = 0) -> Integers:
    """The numbers of `count` rows, the most telling first; `model` is that of a known device class.
    Of many rows a part is drawn that is chosen from."""
    from tilewright.predict.processes import Prior, most_telling

    rows = np.random.default_rng(seed).permutation(len(features))[:_POOL]
    prior = Prior(near=0.1, linear=0.02, constant=0.1, noise=0.05)
    covariance = prior.kernel()(coordinates(model, features)[rows])
    noise, weights = np.full(len(rows), prior.noise), np.full(len(rows), 1 / len(rows))
    return rows[most_telling(covariance, noise, weights, count)]


def coordinates(model: FamilyModel, features: Features) -> Floats:
    """Where the rows lie: by what the model says of them, how long they take at least, and the
    features it goes by, each of unit spread; features that a row does not have lie in the
    middle."""
    values = features.aligned(model.names)
    own = [_SAID * _unit(model.margin(values)), _unit(np.log2(features.scale))]
    return np.column_stack([*own, *(_unit(values[:, column]) for column in _leading(model))])


def _leading(model: FamilyModel) -> list[int]:
    """The columns that the trees gain most by."""
    gains: Counter[int] = Counter()
    for member in model.members:
        found = member.booster.get_score(importance_type="total_gain")
        gains.update({int(name.removeprefix("f")): gain for name, gain in found.items()})
    return [column for column, _ in gains.most_common(FEATURES)]


def _unit(values: Floats) -> Floats:
    there = np.isfinite(values)
    if not there.any():
        return np.zeros(len(values))
    middle, spread = values[there].mean(), values[there].std()
    return np.where(there, (values - middle) / (spread or 1.0), 0.0)
