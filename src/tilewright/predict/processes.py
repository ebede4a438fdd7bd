"""Gaussian processes for few rows: near rows behave alike, beside a linear trend.

scikit-learn's (Rasmussen & Williams 2006, chapters 2 and 5.4), with the kernel of `covariances`.
Which rows to measure next no library chooses so that the others become known: that is
`most_telling`.

What the model of a known device class misses on a new one is taken for such a process, too: kernels
of which that model says the same, and which are alike in the features that it goes by, are missed
alike. `informative` are those that leave the least of its variance on all that were offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.predict.base import Features, Floats, Integers
from tilewright.predict.family_models import FamilyModel

_FAR = 1e-4
"""Linear columns are scaled by this, so that they count nothing for distances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Where the kernel's parameters begin: variances of its parts."""

    near: float = 0.05
    linear: float = 0.1
    constant: float = 0.05
    noise: float = 0.003

    def kernel(self, first: int = 0, scale: float = 1.0) -> Any:
        """The kernel of rows whose columns from `first` on are linear, scaled by `scale`; without
        noise."""
        from tilewright.predict.covariances import covariance

        return covariance(self.near, self.linear / scale**2, self.constant, first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Rows × columns for the distance, rows × columns for the trend; both centred, of unit size."""

    near: Floats
    linear: Floats

    @property
    def joined(self) -> Floats:
        """The columns of both, as the kernel takes them."""
        return np.hstack([self.near, _FAR * self.linear])

    def kernel(self, prior: Prior) -> Any:
        """What a prior says of such rows."""
        return prior.kernel(self.near.shape[1], _FAR)


def regression(
    inputs: Inputs, rows: np.ndarray, values: Floats, noise: Floats, prior: Prior
) -> tuple[Floats, Floats]:
    """What is expected of all rows of the inputs, where `values` of these `rows` are known, whose
    noise has these variances relative to the best rows'; and the value of each known row less what
    the others predict for it (Rasmussen & Williams, equation 5.12)."""
    from tilewright.predict.covariances import fitted

    process = fitted(inputs.kernel(prior), inputs.joined[rows], values, prior.noise, noise)
    factor: Floats = process.L_
    inverse = np.linalg.inv(factor @ factor.T)
    return process.predict(inputs.joined), process.alpha_.ravel() / np.diag(inverse)


def most_telling(
    covariance: Floats, noise: Floats, weights: Floats, count: int, first: Sequence[int] = ()
) -> list[int]:
    """`count` rows to measure: the `first` ones, then one after the other the row that would lessen
    the expected squared error of all, by these weights, the most (Cohn, Ghahramani & Jordan,
    "Active learning with statistical models", 1996). `covariance` is that of all rows' values,
    `noise` the variance of each row's."""
    taken: list[int] = []
    while len(taken) < min(count, len(covariance)):
        gain = weights @ covariance**2 / (np.diag(covariance) + noise)
        gain[taken] = -1
        best = int(first[len(taken)]) if len(taken) < len(first) else int(np.argmax(gain))
        shared = covariance[best]
        covariance = covariance - np.outer(shared, shared) / (shared[best] + noise[best])
        taken.append(best)
    return taken


FEATURES = 8
"""So many features, those by which the known class's trees gain most, say how alike kernels are."""

_POOL = 1500
_SAID = 2.0
"""How much what the known model says counts beside one feature."""


def informative(model: FamilyModel, features: Features, count: int, seed: int = 0) -> Integers:
    """The numbers of `count` rows, the most telling first; `model` is that of a known device class.
    Of many rows a part is drawn that is chosen from."""
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
