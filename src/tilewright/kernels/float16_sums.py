"""Sums of products of float16, in runs.

    halves   run of 32 products  s += x · w        32 lanes, twice the rate of single precision
    singles  once for each run   total += s        16 lanes

Halves have eleven bits, so what is added to a long sum is lost. A run is short enough that its own
rounding is like that of the factors; it is then widened and added up in single precision. Where
there is no arithmetic on halves, and where weights are streamed, factors are widened instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.records import Settings
from tilewright.core.targets import Target
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.columns import Floats, column
from tilewright.kernels.halves import has_half_arithmetic, rounding_error

RUNS = (32, 16)
"""Products that are added up in halves."""
LONGEST_RUN = 48
"""Where a run is the channels of a few taps."""
WIDENED = 0
"""A run of none: factors are widened."""
_SUMS = element_type(FLOAT16).accumulator
_ADDED = 7.4
"""What widening and adding a run takes, in products (Xeon of the fourth generation)."""
_DEVIATIONS = 1.2
"""Five standard deviations of what additions in runs of positive numbers are off by."""


def runs(target: Target, rows: int) -> tuple[int, ...]:
    """Lengths of runs for so many rows, the usual one first: one row streams its weights."""
    return (*RUNS, WIDENED) if rows > 1 and has_half_arithmetic(target) else (WIDENED,)


def lanes(target: Target, settings: Sequence[Settings]) -> Floats:
    """Elements in a register of sums."""
    single, half = target.lanes(_SUMS), target.lanes(FLOAT16)
    return np.where(column(settings, "run") > 0, float(half), float(single))


def rate_of_runs(target: Target, run: Floats, rows: Floats | float = 1.0) -> Floats:
    """Operations per cycle of full registers, in runs of so many products; of none in singles,
    where each weight is widened for so many `rows`."""
    halves = target.operations_per_cycle(FLOAT16, tiles=False) / (1.0 + _ADDED / np.maximum(run, 1))
    singles = target.operations_per_cycle(_SUMS, tiles=False) / (1.0 + 1.0 / np.asarray(rows))
    return np.where(run > 0, halves, singles)


def error_of_runs(length: int, run: int = RUNS[0]) -> float:
    """Error of a sum of so many products, relative to the sum of their sizes: roundings of the
    factors, and of each addition in a run, are independent of each other."""
    return rounding_error(length, FLOAT16) + error_of_additions(length, run)


def error_of_additions(length: int, run: int) -> float:
    """That of the additions alone. No more than that of as many additions of a run."""
    roundoff = element_type(FLOAT16).unit_roundoff or 0.0
    return roundoff * min(run, length) * min(1.0, _DEVIATIONS / length**0.5)
