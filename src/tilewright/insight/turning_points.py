"""Turning points: values of a number of an operator from which on the structure of its kernel is
another one, and whether a few measured times change there, too.

The logarithm of the measured cost is fitted by a line and one step: level + slope × log(value) +
step for every value from some split on. The split with the least squared residuals is the change
point (Quandt, "The estimation of the parameters of a linear regression system obeying two separate
regimes", 1958, with one slope in common, since half a dozen values cannot tell two).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.core.predictions import TurningPoint
from tilewright.predict.base import Features, Floats
from tilewright.predict.kernel_features import Kernel

_CACHES = ("_of_l1", "_of_l2", "_of_l3")
_WHOLE = ("balance", "_whole", "threads_over_rows")
_LEAST_DROP = 0.02

_MOST_PLACES = 6
"""So many places, those with the largest predicted steps, are measured."""

_MEASURED = 3
"""Values measured before a place and from it on."""

LEAST_VALUES = 5
"""Fewer than this leave nothing to judge a line and a step by."""

EACH_SIDE = 2
"""Values on either side of a split: a single one would be fitted whatever it is."""

_LEAST_STEP = 0.03
"""Steps below this, in the logarithm, are what repeated measurements differ by."""

_CLEAR = 3.0
"""A step counts from so many of its standard errors on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """An operator's kernels along one of its numbers, rising."""

    values: Sequence[int]
    kernels: Sequence[Kernel]

    @property
    def work(self) -> list[float]:
        """FLOP of each kernel, bytes where there is no arithmetic."""
        return [float(workload.flop or workload.bytes) for workload, _ in self.kernels]


def turning_points(
    parameter: str, sweep: Sweep, features: Features, times_s: Floats
) -> list[TurningPoint]:
    """Where structure changes along a sweep, the largest steps of the predicted time per FLOP
    first: vectors or rounds of threads that are not full any more, a working set that leaves a
    cache."""
    cost = times_s / np.maximum(1.0, np.array(sweep.work))
    found: list[TurningPoint] = []
    for name, column in zip(features.names, features.values.T, strict=True):
        leaves = name.endswith(_CACHES) & (column[:-1] <= 0) & (column[1:] > 0)
        drops = name.endswith(_WHOLE) & (column[1:] < column[:-1] - _LEAST_DROP)
        found += [
            TurningPoint(
                parameter=parameter,
                value=sweep.values[row + 1],
                fact=name,
                before=float(column[row]),
                after=float(column[row + 1]),
                ratio=float(cost[row + 1] / cost[row]),
            )
            for row in np.flatnonzero(leaves | drops).tolist()
        ]
    return sorted(found, key=lambda point: (-abs(np.log(point.ratio)), point.value))


def confirmed(
    points: Sequence[TurningPoint],
    sweeps: Mapping[str, Sweep],
    time: Callable[[Sequence[Kernel]], Sequence[float | None]],
) -> tuple[TurningPoint, ...]:
    """The same points with what was measured around the first few places; `sweeps` are by
    parameter, `time` gives seconds of kernels. Points of one place, of several facts, share its
    measurements; those at the edge of a sweep have too few values beside them."""
    named = dict.fromkeys((point.parameter, point.value) for point in points)
    inside = [(name, value) for name, value in named if _is_inside(sweeps[name], value)]
    places = inside[:_MOST_PLACES]
    kernels = {
        _identity(sweeps[name].kernels[number]): sweeps[name].kernels[number]
        for name, value in places
        for number in _around(sweeps[name], value)
    }
    times_s = dict(zip(kernels, time(list(kernels.values())), strict=True))
    found = {(name, value): _change(sweeps[name], value, times_s) for name, value in places}
    return tuple(_judged(point, found.get((point.parameter, point.value))) for point in points)


def _is_inside(sweep: Sweep, value: int) -> bool:
    place = sweep.values.index(value)
    return len(sweep.values) >= LEAST_VALUES and EACH_SIDE <= place <= len(sweep.values) - EACH_SIDE


def _identity(kernel: Kernel) -> tuple[str, object]:
    return kernel[0].key, kernel[1]


def _around(sweep: Sweep, value: int) -> range:
    """The numbers of the values around one of them."""
    place = sweep.values.index(value)
    return range(max(0, place - _MEASURED), min(len(sweep.values), place + _MEASURED))


def _change(
    sweep: Sweep, value: int, times_s: Mapping[tuple[str, object], float | None]
) -> Change | None:
    """None where too few of the values could be timed."""
    known = {n: times_s[_identity(sweep.kernels[n])] for n in _around(sweep, value)}
    timed = {sweep.values[n]: s / sweep.work[n] for n, s in known.items() if s is not None}
    if value not in timed:
        return None
    return change_at(list(timed), list(timed.values()), list(timed).index(value))


def _judged(point: TurningPoint, change: Change | None) -> TurningPoint:
    if change is None:
        return point
    same_way = (change.ratio > 1) == (point.ratio > 1)
    return replace(
        point,
        measured_ratio=change.ratio,
        confirmed=change.clear and same_way and change.value == point.value,
    )


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
