"""How good predictions are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Floats

COVERAGE = 0.9
"""The share of rows that an interval is made to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors are |predicted ÷ measured − 1|, as fractions.

    `mape` is their mean, `within_5`, `within_10` and `within_20` the shares of at most 0.05, 0.1
    and 0.2. `spearman` is None where all predictions or all measurements are equal; `coverage_90`
    is the share inside their interval.
    """

    n: int
    mape: float
    median_ape: float
    p90_ape: float
    within_5: float
    within_10: float
    within_20: float
    spearman: float | None
    coverage_90: float | None


def score(predicted: Floats, measured: Floats, reach: Floats | None = None) -> Score:
    """Compare predictions with measurements, both above zero and of one length.

    `reach` is each interval's half width in the logarithm: [predicted ÷ e^reach, predicted ×
    e^reach]. Raises ValueError for nothing to compare.
    """
    if not len(measured):
        raise ValueError("nothing to compare")
    errors = np.abs(predicted / measured - 1)
    covered = None
    if reach is not None:
        covered = float(np.mean(np.abs(np.log(predicted / measured)) <= reach))
    return Score(
        n=len(measured),
        mape=float(errors.mean()),
        median_ape=float(np.median(errors)),
        p90_ape=float(np.quantile(errors, 0.9)),
        within_5=float(np.mean(errors <= 0.05)),
        within_10=float(np.mean(errors <= 0.1)),
        within_20=float(np.mean(errors <= 0.2)),
        spearman=rank_correlation(predicted, measured),
        coverage_90=covered,
    )


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Spearman's, ties sharing their mean rank; None where one side is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place.ravel()]


def conformal_reach(residuals: Floats, share: float = COVERAGE) -> float:
    """The half width that holds `share` of new residuals drawn like these; infinite when there are
    too few to tell.

    Split conformal prediction: Vovk, Gammerman & Shafer 2005, "Algorithmic Learning in a Random
    World", chapter 2.
    """
    count = len(residuals)
    place = int(np.ceil((count + 1) * share))
    if place > count:
        return float("inf")
    return float(np.sort(np.abs(residuals))[place - 1])
