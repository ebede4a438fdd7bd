"""Whether a series of a few measured times changes where structure says that it does.

The logarithm of the cost is fitted by a line and one step: level + slope × log(value) + step for
every value from some split on. The split with the least squared residuals is the change point
(Quandt, "The estimation of the parameters of a linear regression system obeying two separate
regimes", 1958, with one slope in common, since half a dozen values cannot tell two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_VALUES = 5
"""Fewer than this leave nothing to judge a line and a step by."""

EACH_SIDE = 2
"""Values on either side of a split: a single one would be fitted whatever it is."""

_LEAST_STEP = 0.03
"""Steps below this, in the logarithm, are what repeated measurements differ by."""

_CLEAR = 3.0
"""A step counts from so many of its standard errors on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A series along a parameter. `value` is the first value after the split that fits best;
    `ratio` is the step at the split that was asked about, as a factor; `clear` says that this step
    stands out of what the line leaves unexplained."""

    value: float
    ratio: float
    clear: bool


def change_at(values: Sequence[float], costs: Sequence[float], place: int) -> Change | None:
    """The step between `values[place - 1]` and `values[place]`, and where the best one is.

    `values` rise and are above zero, as `costs` are. None for fewer than `LEAST_VALUES` values, or
    a place with fewer than two of them on a side.
    """
    count = len(values)
    splits = range(EACH_SIDE, count - EACH_SIDE + 1)
    if count < LEAST_VALUES or place not in splits:
        return None
    fits = {split: _fit(values, costs, split) for split in splits}
    best = min(fits, key=lambda split: (fits[split][1], abs(split - place)))
    step, squares, per_variance = fits[place]
    spread = float(np.sqrt(squares / (count - 3) * per_variance))
    return Change(
        value=float(values[best]),
        ratio=float(np.exp(step)),
        clear=abs(step) >= max(_LEAST_STEP, _CLEAR * spread),
    )


def _fit(values: Sequence[float], costs: Sequence[float], split: int) -> tuple[float, float, float]:
    """The step at a split, the sum of squared residuals, and the step's variance over theirs."""
    places = np.log(np.asarray(values, dtype=np.float64))
    after = (np.arange(len(values)) >= split).astype(np.float64)
    design = np.column_stack([np.ones(len(values)), places - places.mean(), after])
    logs = np.log(np.asarray(costs, dtype=np.float64))
    inverse = np.linalg.pinv(design.T @ design)
    found = inverse @ design.T @ logs
    residuals = logs - design @ found
    return float(found[2]), float(residuals @ residuals), float(inverse[2, 2])
