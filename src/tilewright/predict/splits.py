"""What an evaluation keeps aside, and splits that do not leak: equal configurations stay on one
side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tilewright.core.errors import UsageError, close_matches
from tilewright.predict.base import Columns, Integers

ALL = "all"
"""Every family, or every row."""

Split = Literal["configuration", "network", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which predictors are judged, `all` or one family's, and what they have not seen. `folds` is
    for splits by configuration and network; `shots` for the one by device: samples of the device
    left out that may be learnt from. Raises UsageError for an unknown split, fewer than two
    folds, and samples of something else than a device."""

    family: str = ALL
    split: Split = "configuration"
    folds: int = 5
    seed: int = 0
    shots: int = 0

    def __post_init__(self) -> None:
        splits = get_args(Split)
        if self.split not in splits:
            raise UsageError(
                f"There is no split {self.split!r}.", hint=close_matches(self.split, splits)
            )
        if self.folds < 2:
            raise UsageError(f"--folds must be at least 2, not {self.folds}.")
        if self.shots and self.split != "device":
            raise UsageError("--shots goes with --split device: samples of the device left out.")

    def require_shots(self, least: int) -> None:
        """Raise UsageError for samples that are too few to say anything."""
        if 0 < self.shots < least:
            raise UsageError(f"--shots must be 0 or at least {least}, not {self.shots}.")


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
