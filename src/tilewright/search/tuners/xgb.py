"""AutoTVM's model-based tuners: boosted trees on features, planned by simulated annealing.

    xgb_knob, xgb_rank_knob        features of the knobs
    xgb_itervar, xgb_curve, …      features of the lowered loop nest, which need a compiler

After Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018, and Chen & Guestrin,
"XGBoost", KDD 2016. The library is loaded when a model is first fitted. What differs from AutoTVM:
the model is fitted anew on all samples before each batch; rank margins below zero are as good as
others; duplicates are never proposed; records of similar tasks count however few they are, and less
and less as own ones come in; spaces of moderate size are scored whole; lowering is spent on the
settings that the knob model puts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Literal

import numpy as np

from tilewright.core.forks import calls_native
from tilewright.kernels.search_space import Floats, Numbers
from tilewright.search.tuners.base import NumberTuner, TunerFactory, TuningTask
from tilewright.search.tuners.walking import Mask, anneal

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


_FIRST = 16
"""Outcomes before the model decides, where similar tasks have none."""
_WHOLE = 20_000
"""Spaces of up to so many settings are scored whole, larger ones by annealing."""
_RANDOM_SHARE = 0.1
_SHORTLIST = 4
"""Settings lowered for each one wanted."""
_LOWERED = 256
"""Outcomes that a model of lowered kernels learns from at most, the fastest ones."""
_HALVED_BY = 8
"""So many own outcomes halve the weight of other tasks' records."""
_BORROWED = 64.0
"""Records of one other task weigh no more than so many own ones."""
_NAMES: dict[str, Objective] = {"xgb": "reg", "xgb_rank": "rank"}
_KINDS = ("knob", "itervar", "curve", "store")


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
        xgboost: Any = import_module("xgboost")
        ranking = self._objective == "rank"
        used = [g for g in groups if len(g[0]) and (not ranking or np.ptp(g[1]) > 0)]
        if not used:
            self._booster = None
            return
        features, values, weights = zip(*used, strict=True)
        sizes = [len(rows) for rows in features]
        parameters = {**_PARAMETERS, **_OBJECTIVES[self._objective], "seed": self._seed}
        with xgboost.config_context(nthread=1):  # labels and weights are read by all cores else
            data = xgboost.DMatrix(
                np.concatenate(features),
                np.concatenate([_bucketed(v) for v in values] if ranking else values),
                weight=weights if ranking else np.repeat(weights, sizes),
                group=sizes if ranking else None,
                nthread=1,
            )
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


class XgbTuner(NumberTuner):
    """See the module's docstring.

    `features` is the kind in use, and `problem` says why when it is not the one asked for.
    """

    def __init__(self, task: TuningTask, *, objective: Objective, kind: str) -> None:
        super().__init__(task)
        self.features, self.problem = kind, ""
        if kind != "knob" and task.featurizer is None:
            self.features = "knob"
            self.problem = f"no compiler is there to make {kind} features; knob features are used"
        self._model = BoostedTrees(objective, task.seed)
        self._finer = BoostedTrees(objective, task.seed)
        self._rows: dict[int, Floats] = {}
        self._chains: list[int] = []
        self._broken: set[int] = set()

    def propose(self, count: int) -> list[int]:
        """Settings the model likes best, and a few at random."""
        told = len(self.known.seconds) + len(self.known.failed)
        if told < _FIRST and not self.task.prior_trials:
            return self.unseen(count)
        numbers, goodness = self._outcomes()
        groups = [(self.space.features(numbers), goodness, 1.0)] if len(numbers) else []
        fading = 0.5 ** (len(numbers) / _HALVED_BY)
        for trials in self.task.prior_trials if fading > 0.01 else ():
            weight = fading * min(1.0, _BORROWED / max(1, len(trials.relative)))
            groups.append((trials.features, 1.0 / trials.relative, weight))
        self._model.fit(groups)
        explored = int(self.rng.binomial(count, _RANDOM_SHARE))
        planned = (
            self._ranked(count)
            if self.features == "knob"
            else self._refined(self._ranked(_SHORTLIST * count), count)
        )
        return [*planned[: count - explored], *self.unseen(count)]

    def _outcomes(self) -> tuple[Numbers, Floats]:
        """What is known, fastest first, with best time / time of each; failures have zero."""
        fastest, seconds = self.known.fastest(), self.known.seconds
        failed = sorted(self.known.failed - seconds.keys())
        goodness = [seconds[fastest[0]] / seconds[number] for number in fastest]
        goodness += [0.0] * len(failed)
        return np.array([*fastest, *failed], dtype=np.int64), np.array(goodness)

    @cached_property
    def _whole(self) -> Floats:
        return self.space.features(self.space.listed if self.space.listed is not None else [])

    def _ranked(self, count: int) -> list[int]:
        """Unseen settings by the knob model, equal ones shuffled."""
        listed = self.space.listed
        if listed is not None and len(listed) <= _WHOLE:
            numbers, scores = listed, self._model.predict(self._whole)
        else:
            numbers, scores = anneal(
                self.space,
                lambda some: self._model.predict(self.space.features(some)),
                [*self.known.fastest()[:16], *self._chains],
                self.rng,
            )
            self._chains = numbers[:32].tolist()
        order = np.lexsort((self.rng.random(len(numbers)), -scores))
        fresh = self.known.fresh(numbers[order].tolist())
        return [number for number in fresh if number not in self._broken][:count]

    def _refined(self, shortlist: list[int], count: int) -> list[int]:
        """The shortlist in the order of a model of the lowered kernels; those that do not lower
        are left out."""
        if not shortlist:
            return []
        numbers, goodness = self._outcomes()
        numbers, goodness = numbers[:_LOWERED], goodness[:_LOWERED]
        rows = self._lowered([*map(int, numbers), *shortlist])
        whole: Mask = np.logical_and.reduce(np.isfinite(rows), axis=1)
        own, theirs = whole[: len(numbers)], whole[len(numbers) :]
        builds = [n for n, good in zip(shortlist, theirs, strict=True) if good]
        self._broken.update(set(shortlist) - set(builds))
        if own.sum() >= _FIRST // 2:
            self._finer.fit([(rows[: len(numbers)][own], goodness[own], 1.0)])
            scores = self._finer.predict(rows[len(numbers) :][theirs])
            builds = [builds[int(row)] for row in np.argsort(-scores, kind="stable")]
        return builds[:count]

    def _lowered(self, numbers: list[int]) -> Floats:
        """Features of lowered kernels, each made once."""
        featurizer = self.task.featurizer
        missing = [n for n in dict.fromkeys(numbers) if n not in self._rows]
        if missing and featurizer is not None:
            made = featurizer(self.features, [self.space.candidate(n) for n in missing])
            self._rows.update(zip(missing, made, strict=True))
        return np.stack([self._rows[n] for n in numbers])


XGB_TUNERS: dict[str, TunerFactory] = {
    f"{name}{suffix}": partial(XgbTuner, objective=objective, kind=kind)
    for name, objective in _NAMES.items()
    for suffix, kind in (("", "itervar"), *((f"_{kind}", kind) for kind in _KINDS))
}
"""By AutoTVM's names: `xgb` and `xgb_rank` alone have the features of loops."""
