# pyright: basic
"""How good predictions are, and how wide intervals must be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.predictions import EvaluateResult, EvaluateRow
from tilewright.predict.base import Floats

COVERAGE = 0.9
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
    place = int(np.ceil((len(residuals) + 1) * COVERAGE))
    if place > len(residuals):
        return float("inf")
    return float(np.sort(np.abs(residuals))[place - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows of one target that a predictor had not seen, with what it said of them.

    `measured` and `predicted` are in SI units (`unit`: s, J, W); an interval is predicted ÷
    e^reach to predicted × e^reach. `groups` is a name per row: its implementation, or its device.
    """

    family: str
    target: str
    unit: str
    measured: Floats
    predicted: Floats
    reach: Floats
    groups: npt.NDArray[Any]

    def part(self, rows: npt.NDArray[Any]) -> HeldOut:
        """These rows only, given as numbers or as a mask."""
        return replace(
            self,
            measured=self.measured[rows],
            predicted=self.predicted[rows],
            reach=self.reach[rows],
            groups=self.groups[rows],
        )

    def by_group(self, names: Iterable[str]) -> dict[str, HeldOut]:
        """The rows of each of these groups."""
        return {name: self.part(self.groups == name) for name in names}

    def row(self, group: str) -> EvaluateRow:
        """How good the predictions are, as a row of an answer. Raises ValueError for no rows."""
        if not len(self.measured):
            raise ValueError("nothing to compare")
        errors = np.abs(self.predicted / self.measured - 1)
        away = np.abs(np.log(self.predicted / self.measured))
        return EvaluateRow(
            family=self.family,
            target=self.target,
            group=group,
            n=len(self.measured),
            mape=float(errors.mean()),
            median_ape=float(np.median(errors)),
            p90_ape=float(np.quantile(errors, 0.9)),
            within_5=float(np.mean(errors <= 0.05)),
            within_10=float(np.mean(errors <= 0.1)),
            within_20=float(np.mean(errors <= 0.2)),
            spearman=rank_correlation(self.predicted, self.measured),
            coverage_90=float(np.mean(away <= self.reach)),
        )


def together(parts: Sequence[HeldOut]) -> HeldOut:
    """The rows of all parts, at least one, in their order."""
    return replace(
        parts[0],
        measured=np.concatenate([part.measured for part in parts]),
        predicted=np.concatenate([part.predicted for part in parts]),
        reach=np.concatenate([part.reach for part in parts]),
        groups=np.concatenate([part.groups for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` answers, and the rows it rests on, one `HeldOut` per card of the answer."""

    result: EvaluateResult
    held_out: tuple[HeldOut, ...]
