# pyright: basic
"""What judging predictors rests on: splits that do not leak, rank correlation, and how wide
intervals must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.predict.base import Columns, Floats, Integers

_COVERAGE = 0.9
"""The share of rows that an interval is made to hold."""


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Spearman's, ties sharing their mean rank; None where one side is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def conformal_reach(residuals: Floats) -> float:
    """The half width that holds 90 % of new residuals drawn like these; infinite when there are
    too few to tell.

    Split conformal prediction: Vovk, Gammerman & Shafer 2005, "Algorithmic Learning in a Random
    World", chapter 2.
    """
    place = int(np.ceil((len(residuals) + 1) * _COVERAGE))
    if place > len(residuals):
        return float("inf")
    return float(np.sort(np.abs(residuals))[place - 1])


def configuration_groups(columns: Columns, names: Sequence[str]) -> Integers:
    """A number per row, the same for rows that agree in all these columns, from 0 without gaps."""
    codes = [np.unique(columns[name], return_inverse=True)[1].ravel() for name in names]
    table = np.column_stack(codes)
    return np.unique(table, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def folds_of(groups: Integers, folds: int, seed: int) -> Integers:
    """A fold per row: groups are dealt out at random, so that each fold has as many as the others
    or one more."""
    count = int(groups.max()) + 1 if len(groups) else 0
    dealt = np.random.default_rng(seed).permutation(count) % folds
    return dealt[groups].astype(np.int64)
