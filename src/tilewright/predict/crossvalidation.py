"""How well a family's model does on configurations that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Floats, Trees
from tilewright.predict.kernel_models import DEFAULT_TREES, TrainingSet, fit_kernel_model
from tilewright.predict.splits import folds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Predictions of every row by a model that saw no row of its configuration: seconds, and the
    half width of the interval in the logarithm."""

    predicted_s: Floats
    reach: Floats


def unseen(
    data: TrainingSet,
    *,
    folds: int = 5,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    trees: Trees = DEFAULT_TREES,
) -> Unseen:
    """Leave out one part of the configurations after the other; with these columns only where some
    are given. Raises ModelError where a part leaves too few rows to learn from."""
    parts = folds_of(data.configurations, folds, seed)
    predicted_s, reach = np.full(len(data), np.nan), np.full(len(data), np.nan)
    for part in range(folds):
        test = np.flatnonzero(parts == part)
        if not len(test):
            continue
        model = fit_kernel_model(
            data.part(np.flatnonzero(parts != part)), trees=trees, columns=columns
        )
        times = model.times(data.part(test).table)
        predicted_s[test] = times.latency_s
        reach[test] = np.log(times.high_s / times.latency_s)
    return Unseen(predicted_s=predicted_s, reach=reach)


def operator_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that tell of the operator alone, not of what computes it."""
    return tuple(name for name in names if name.startswith("op."))
