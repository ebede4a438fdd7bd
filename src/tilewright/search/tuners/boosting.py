# pyright: basic
"""Gradient-boosted trees for small data, by regression or by rank.

Chen & Guestrin, "XGBoost", KDD 2016. The library is loaded when a model is first fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tilewright.core.forks import calls_native
from tilewright.kernels.search_space import Floats

Objective = Literal["reg", "rank"]

_ROUNDS = 80
_BUCKETS = 31
_PARAMETERS: dict[str, Any] = {
    "max_depth": 4,
    "eta": 0.15,
    "gamma": 1e-4,
    "min_child_weight": 1e-3,
    "lambda": 1.0,
    "tree_method": "exact",
    "nthread": 1,
    "verbosity": 0,
    "disable_default_eval_metric": 1,
}
_OBJECTIVES: dict[Objective, dict[str, Any]] = {
    "reg": {"objective": "reg:squarederror"},
    "rank": {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
    },
}


class BoostedTrees:
    """A model of how good settings are; larger predictions are better.

    Under `rank` predictions are margins: their order counts, their sign and scale mean nothing.
    """

    def __init__(self, objective: Objective, seed: int) -> None:
        self._objective: Objective = objective
        self._seed = seed
        self._booster: Any = None

    @calls_native
    def fit(self, groups: Sequence[tuple[Floats, Floats, float]]) -> None:
        """Learn from groups of (features, goodness, weight per row); goodness is comparable within
        a group only. Groups whose goodness is all the same say nothing about rank."""
        import xgboost

        ranking = self._objective == "rank"
        used = [g for g in groups if len(g[0]) and (not ranking or np.ptp(g[1]) > 0)]
        if not used:
            self._booster = None
            return
        values = [_bucketed(g[1]) if ranking else g[1] for g in used]
        data = xgboost.DMatrix(
            np.concatenate([g[0] for g in used]), np.concatenate(values), nthread=1
        )
        if ranking:
            data.set_group([len(g[0]) for g in used])
            data.set_weight([g[2] for g in used])
        else:
            data.set_weight(np.concatenate([np.full(len(g[0]), g[2]) for g in used]))
        parameters = {**_PARAMETERS, **_OBJECTIVES[self._objective], "seed": self._seed}
        self._booster = xgboost.train(parameters, data, num_boost_round=_ROUNDS)

    @calls_native
    def predict(self, features: Floats) -> Floats:
        """One value per row; zeros while nothing is learnt."""
        if self._booster is None or not len(features):
            return np.zeros(len(features))
        found = self._booster.inplace_predict(np.ascontiguousarray(features))
        return np.asarray(found, dtype=np.float64)


def _bucketed(values: Floats) -> Floats:
    """Labels 0 … 31 by rank, equal ones alike; what all rank objectives accept."""
    order = np.unique(values, return_inverse=True)[1].astype(np.float64)
    return np.floor(order * _BUCKETS / max(1.0, order.max()))
