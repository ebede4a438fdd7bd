# pyright: basic
"""What rows that are alike say of a prediction's error.

Where a library takes one of two kernels and the facts do not tell which, errors have two modes, and
the median of their logarithms is no good answer: a relative error is least at the median of the
truths weighted by their inverse. How far the truth may lie from a prediction is read off the errors
of known rows that predictors did not see, each weighted by how often a forest has it in the same
leaf: Meinshausen, "Quantile regression forests", JMLR 2006.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.forks import calls_native
from tilewright.predict.base import Floats
from tilewright.predict.splits import Integers

_FOREST = {
    "num_parallel_tree": 300,
    "max_depth": 12,
    "min_child_weight": 5,
    "subsample": 0.8,
    "colsample_bynode": 0.5,
    "eta": 1.0,
    "lambda": 0.0,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 0,
    "verbosity": 0,
}
_STRENGTHS = (0.0, 0.5, 1.0)


class Likeness:
    """Known rows of facts, and which of them are alike as far as their margins are concerned."""

    @calls_native
    def __init__(self, values: Floats, margin: Floats) -> None:
        import xgboost

        self._forest = xgboost.train(_FOREST, xgboost.DMatrix(values, margin), 1)
        self._leaves = self._leaves_of(values)

    def weights(self, values: Floats) -> Floats:
        """Rows × known rows: the share of the trees in which both end in the same leaf."""
        return _together(self._leaves_of(values), self._leaves)

    def among_known(self, parts: Integers) -> Floats:
        """The same for the known rows; 0 for two of one part."""
        return _together(self._leaves, self._leaves) * (parts[:, None] != parts[None, :])

    @calls_native
    def _leaves_of(self, values: Floats) -> Integers:
        import xgboost

        found = self._forest.predict(xgboost.DMatrix(values), pred_leaf=True)
        return np.asarray(found, dtype=np.int64).reshape(len(values), -1)


def _together(rows: Integers, known: Integers) -> Floats:
    shares = [(leaves == known).mean(axis=1) for leaves in rows]
    return np.array(shares).reshape(len(rows), len(known))


def relative_median(weights: Floats, ratios: Floats) -> Floats:
    """For each row of weights the factor that makes the expected relative error least, where
    `ratios` are truth ÷ prediction of the known rows; 1 for a row that is like none."""
    order = np.argsort(ratios)
    shares = np.cumsum((weights / ratios)[:, order], axis=1)
    reached = shares >= shares[:, -1:] / 2
    found = ratios[order][reached.argmax(axis=1)]
    return np.where(shares[:, -1] > 0, found, 1.0)


def strength(factors: Floats, ratios: Floats) -> float:
    """How much of the logarithm of the known rows' factors is worth taking: what errs least."""

    def error(share: float) -> float:
        return float(np.abs(factors**share / ratios - 1).mean())

    return min(_STRENGTHS, key=error)
