"""Splits that do not leak: equal configurations stay on one side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewright.predict.base import Columns

Integers = npt.NDArray[np.int64]


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
