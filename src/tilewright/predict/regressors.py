# pyright: basic
"""What learns the utilisation of a device: scale ÷ time, as its logarithm, the margin.

Boosted trees are xgboost's (Chen & Guestrin, "XGBoost", KDD 2016) and can be kept in files without
pickles; a forest, for tables of a few hundred rows, and a Gaussian process, for samples of a new
device, are scikit-learn's. Both libraries are loaded on use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.forks import calls_native

Floats = npt.NDArray[np.float64]

_ROWS_PER_THREAD = 2000
"""With fewer, threads would mostly wait for each other."""

_LARGEST, _TILT = 3.0, 0.7
_SMALL_ERROR = 0.1
_LEAST_BEND = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosted:
    """Fitted boosted trees."""

    booster: Any

    @calls_native
    def margin(self, values: Floats) -> Floats:
        """The margin of each row of features."""
        with _threads(len(values) // _ROWS_PER_THREAD):
            found = self.booster.inplace_predict(np.ascontiguousarray(values))
        return np.asarray(found, dtype=np.float64)


def _threads(most: int) -> AbstractContextManager[None]:
    """xgboost with one thread where more would not pay, else with as many as it takes. What it does
    to labels and weights, or with a model from a file, goes by this alone."""
    import xgboost

    return xgboost.config_context(nthread=1) if most < 2 else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Gradient-boosted trees. `members` models, each blind to one part of the training data, make
    one predictor. `threads` fit them."""

    rounds: int = 600
    rate: float = 0.05
    depth: int = 8
    least_weight: float = 5.0
    column_share: float = 0.5
    members: int = 4
    threads: int = 1

    @calls_native
    def fit(self, values: Floats, margin: Floats, seed: int, weight: Floats | None = None) -> Any:
        """Learn the margins of rows of features, each counting by its weight."""
        import xgboost

        threads = max(1, min(self.threads, len(margin) // _ROWS_PER_THREAD))
        parameters = {
            "eta": self.rate,
            "max_depth": self.depth,
            "min_child_weight": self.least_weight,
            "subsample": 0.8,
            "colsample_bytree": self.column_share,
            "tree_method": "hist",
            "nthread": threads,
            "base_score": float(np.median(margin)),
            "seed": seed,
            "verbosity": 0,
            "disable_default_eval_metric": 1,
        }
        with _threads(threads):
            data = xgboost.QuantileDMatrix(
                values, margin, weight=weight, nthread=threads, max_bin=256
            )
            booster = xgboost.train(parameters, data, self.rounds, obj=_tilted(margin, weight))
        return Boosted(booster=booster)


def _tilted(
    margin: Floats, weight: Floats | None
) -> Callable[[Floats, Any], tuple[Floats, Floats]]:
    """A loss that none of xgboost's own is like: errors of the logarithm below 0.1 count by their
    square, larger ones by their size; a time that is too long counts more than one too short, as in
    a relative error, up to four times as much, but what is far too short never stops to count."""
    counts = 1.0 if weight is None else weight

    def derivatives(guess: Floats, _data: Any) -> tuple[Floats, Floats]:
        longer = np.clip(margin - guess, -_LARGEST, _LARGEST)
        tilt = np.exp(np.clip(longer, -_TILT, _TILT))
        bend = counts * tilt / np.sqrt(1 + (longer / _SMALL_ERROR) ** 2)
        return -bend * longer, bend + _LEAST_BEND

    return derivatives


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedForest:
    """A forest, the leaves of the rows that it learnt, and their margins."""

    forest: Any
    leaves: npt.NDArray[np.int64]
    known: Floats

    def margin(self, values: Floats) -> Floats:
        """The margin of each row of features: that of the time whose expected relative error is
        least, where the truth is the known rows' by how often they are in the same leaf
        (Meinshausen, "Quantile regression forests", JMLR 2006)."""
        leaves = self.forest.apply(values)
        alike = np.array([(self.leaves == row).mean(axis=1) for row in leaves])
        return -np.log(relative_median(alike.reshape(len(values), -1), np.exp(-self.known)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Extremely randomised trees; `members` and `threads` as those of boosted trees.

    Where a library takes one of two kernels and the features do not tell which, times have two
    modes, and their middle is no good answer.
    """

    members: int = 8
    threads: int = 1

    def fit(self, values: Floats, margin: Floats, seed: int, weight: Floats | None = None) -> Any:
        """Learn the margins of rows of features, each counting by its weight."""
        from sklearn.ensemble import ExtraTreesRegressor

        forest = ExtraTreesRegressor(
            n_estimators=100, min_samples_leaf=2, random_state=seed, n_jobs=self.threads
        ).fit(values, margin, weight)
        return FittedForest(forest=forest, leaves=forest.apply(values), known=margin)


def relative_median(weights: Floats, truths: Floats) -> Floats:
    """For each row of weights the value that makes the expected relative error to the `truths`
    least: their median weighted by their inverse."""
    order = np.argsort(truths)
    shares = np.cumsum((weights / truths)[:, order], axis=1)
    return truths[order][(shares >= shares[:, -1:] / 2).argmax(axis=1)]
