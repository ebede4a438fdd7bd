"""Models that are each blind to one part of the training data, and what that is worth.

Together they predict; each one's errors on the part it did not see say how far off predictions
are. Barber, Candès, Ramdas & Tibshirani, "Predictive inference with the jackknife+", 2021, with
the median of the models in place of their spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Facts, Family, Floats
from tilewright.predict.gaussian import GaussianProcess, Inputs, Prior
from tilewright.predict.locally import Likeness, relative_median, strength
from tilewright.predict.metrics import conformal_reach
from tilewright.predict.splits import Integers, folds_of
from tilewright.predict.trees import fit_trees

_SMOOTH_PRIOR = Prior(
    near=0.3, linear=0.5, constant=0.05, noise=0.01, length=8.0, length_spread=1.0, one_length=False
)
_SMOOTH_MOST = 1500
_SMOOTH_SHARES = (0.0, 0.25, 0.5, 0.75)
_SMOOTH_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Predictions for new rows, and the half width of their intervals in the logarithm."""

    predicted: Floats
    reach: float


def part_of(facts: Facts, rows: Integers) -> Facts:
    """These rows only."""
    return Facts(names=facts.names, values=facts.values[rows], scale=facts.scale[rows])


def cross_fit(
    family: Family, facts: Facts, target: Floats, groups: Integers, split: tuple[Integers, Integers]
) -> Fitted:
    """Learn from the rows `split[0]`, predict the rows `split[1]`; `groups` never lie on both sides
    of an inner split."""
    train, test = split
    inner = np.unique(groups[train], return_inverse=True)[1].ravel()
    parts = folds_of(inner, family.trees.members, seed=1)
    known, asked = part_of(facts, train), part_of(facts, test)
    smooth = _Smooth(known, target[train]) if _is_smooth(family, len(train)) else None
    answers: list[list[Floats]] = []
    blind = np.zeros((1 if smooth is None else 2, len(train)))
    for member in range(family.trees.members):
        seen, unseen = np.flatnonzero(parts != member), np.flatnonzero(parts == member)
        if not len(seen) or not len(unseen):
            continue
        both = [part_of(known, unseen), asked]
        trees = fit_trees(part_of(known, seen), target[train][seen], family.trees, member)
        views = [[trees.margin(facts.values) for facts in both]]
        if smooth is not None:
            views.append(smooth.margins(seen, both))
        blind[:, unseen] = [view[0] for view in views]
        answers.append([view[1] for view in views])
    truth = np.log(known.scale) - np.log(target[train])
    shares = _shares(blind, truth)
    margin = np.median(np.tensordot(answers, shares, (1, 0)), axis=0)
    missed = truth - shares @ blind
    if smooth is not None:
        more = _locally(known, asked, truth, missed, parts)
        margin, missed = margin + more[0], missed - more[1]
    reach = conformal_reach(missed)
    return Fitted(predicted=asked.scale * np.exp(-margin), reach=reach)


def _locally(
    known: Facts, asked: Facts, truth: Floats, missed: Floats, parts: Integers
) -> tuple[Floats, Floats]:
    """What the margins of asked and of known rows grow by, from what known rows that are alike
    were missed by, where that makes relative errors less."""
    likeness, ratios = Likeness(known.values, truth), np.exp(-missed)
    factors = relative_median(likeness.among_known(parts), ratios)
    share = strength(factors, ratios)
    asked_factors = relative_median(likeness.weights(asked.values), ratios)
    return -share * np.log(asked_factors), -share * np.log(factors)


def _shares(blind: Floats, truth: Floats) -> Floats:
    """How much of the trees and of the process: what errs least on parts that neither saw."""
    if len(blind) == 1:
        return np.ones(1)
    tried = [np.array([1 - smooth, smooth]) for smooth in _SMOOTH_SHARES]
    return min(tried, key=lambda shares: float(np.abs(np.expm1(truth - shares @ blind)).mean()))


def _is_smooth(family: Family, rows: int) -> bool:
    return family.smooth and rows <= _SMOOTH_MOST


class _Smooth:
    """A Gaussian process on all facts; its lengths are learnt once from all training rows."""

    def __init__(self, known: Facts, target: Floats) -> None:
        self._centre = known.values.mean(0)
        self._spread = known.values.std(0) + 1e-9
        self._known = self._inputs(known)
        margin = np.log(known.scale / target)
        self._mean = float(margin.mean())
        self._margin = margin - self._mean
        self._process = GaussianProcess(_SMOOTH_PRIOR, known.values.shape[1])
        self._process.fit([(self._known, self._margin)], steps=_SMOOTH_STEPS)

    def margins(self, seen: Integers, asked: Sequence[Facts]) -> list[Floats]:
        self._process.condition(self._known.rows(seen), self._margin[seen])
        return [self._process.predict(self._inputs(facts)) + self._mean for facts in asked]

    def _inputs(self, facts: Facts) -> Inputs:
        scaled = (facts.values - self._centre) / self._spread
        linear = scaled / np.sqrt(scaled.shape[1])
        return Inputs(near=scaled, linear=linear, noise=np.ones(len(scaled)))
