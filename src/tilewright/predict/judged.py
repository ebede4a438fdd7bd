"""Predictions beside measurements, row by row: what scores and plots are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.predictions import EvaluateResult
from tilewright.predict.base import Floats
from tilewright.predict.metrics import Score, score

Names = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Rows of one target that a predictor had not seen.

    `measured` and `predicted` are in SI units (`unit`: s, J, W); an interval is predicted ÷
    e^reach to predicted × e^reach. `groups` is a name per row: its implementation, or its device.
    """

    family: str
    target: str
    unit: str
    measured: Floats
    predicted: Floats
    reach: Floats
    groups: Names

    def part(self, rows: npt.NDArray[np.bool_]) -> Judged:
        """These rows only."""
        return replace(
            self,
            measured=self.measured[rows],
            predicted=self.predicted[rows],
            reach=self.reach[rows],
            groups=self.groups[rows],
        )

    def score(self) -> Score:
        """How good the predictions are. Raises ValueError for no rows."""
        return score(self.predicted, self.measured, self.reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` answers, and the rows it rests on, one `Judged` per card of the answer."""

    result: EvaluateResult
    judged: tuple[Judged, ...]
