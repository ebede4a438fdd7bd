# pyright: basic
"""Gradient-boosted trees for the utilisation of a device: scale ÷ time, beneath a fixed overhead.

The model is time = overhead + scale × e^−margin. The trees learn the margin, the logarithm of the
utilisation; what the overhead hides teaches them nothing, so small operators do not bend it. Chen
& Guestrin, "XGBoost", KDD 2016, with the loss's first two derivatives by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.forks import calls_native
from tilewright.predict.base import Facts, Floats, Trees

_LARGEST = 3.0
_SOFT = 0.05
_SMALL_ERROR = 0.1
"""Tilted: errors of the logarithm below this count by their square, larger ones by their size."""
_TILT = 0.7
"""Tilted: what is too long counts more than what is too short, as in a relative error, up to four
times as much; but what is far too short never stops to count, as it does there."""
_LEAST_HESSIAN = 1e-3
_ROWS_PER_THREAD = 2000
"""With fewer, threads would mostly wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Fitted trees. `overhead` is what every run costs beside its work, in the target's unit."""

    booster: Any
    overhead: float

    @calls_native
    def margin(self, values: Floats) -> Floats:
        """The logarithm of the utilisation for rows of facts."""
        found = self.booster.inplace_predict(np.ascontiguousarray(values))
        return np.asarray(found, dtype=np.float64)


@calls_native
def fit_trees(facts: Facts, target: Floats, trees: Trees, seed: int, overhead: float = 0.0) -> Any:
    """Learn the utilisation from rows whose target, in SI units, is above the overhead mostly."""
    import xgboost

    threads = max(1, min(trees.threads, len(target) // _ROWS_PER_THREAD))
    log_target = np.log(target)
    data = xgboost.QuantileDMatrix(facts.values, log_target, nthread=threads, max_bin=256)
    middle = np.median(np.log(facts.scale / np.maximum(target - overhead, 0.2 * target)))
    parameters = {
        "eta": trees.rate,
        "max_depth": trees.depth,
        "min_child_weight": trees.least_weight,
        "subsample": trees.row_share,
        "colsample_bytree": trees.column_share,
        "tree_method": "hist",
        "nthread": threads,
        "base_score": float(middle),
        "seed": seed,
        "verbosity": 0,
        "disable_default_eval_metric": 1,
    }
    derivatives = _derivatives(facts.scale, log_target, overhead, trees.loss)
    booster = xgboost.train(parameters, data, trees.rounds, obj=derivatives)
    return Utilisation(booster=booster, overhead=overhead)


def times(margin: Floats, scale: Floats, overhead: float) -> Floats:
    """The target that a margin means."""
    return overhead + scale * np.exp(-margin)


def _derivatives(
    scale: Floats, log_target: Floats, overhead: float, loss: str
) -> Callable[[Floats, Any], tuple[Floats, Floats]]:
    log_scale = np.log(scale)
    log_overhead = np.log(overhead) if overhead else -np.inf

    def derivatives(margin: Floats, _data: Any) -> tuple[Floats, Floats]:
        work = log_scale - margin
        total = np.logaddexp(work, log_overhead)
        share = np.exp(work - total)
        missed = np.clip(total - log_target, -_LARGEST, _LARGEST)
        if loss == "square":
            slope, bend = missed, np.ones_like(missed)
        elif loss == "tilted":
            tilt = np.exp(np.clip(missed, -_TILT, _TILT))
            bend = tilt / np.sqrt(1 + (missed / _SMALL_ERROR) ** 2)
            slope = bend * missed
        else:
            ratio = np.exp(missed)
            weight = 1 / np.sqrt((ratio - 1) ** 2 + _SOFT**2)
            slope, bend = (ratio - 1) * ratio * weight * _SOFT, ratio**2 * weight * _SOFT
        return -slope * share, bend * share**2 + _LEAST_HESSIAN

    return derivatives
