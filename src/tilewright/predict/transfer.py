"""A device that nobody measured, from others that were and from datasheets.

Each known device has a model of its own, so that nothing is learnt from device numbers that a
handful of devices cannot teach. A new device is a weighted sum of them, in the logarithm of the
utilisation: the weights add up to 1 and reproduce its datasheet from theirs, as the weights of a
synthetic control do (Abadie, Diamond & Hainmueller, JASA 2010), shrunk towards equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.predict.base import Family, Features, Floats
from tilewright.predict.datasheets import Datasheet

_SEEDS = 2
_SHRINK = 0.5
_TENSOR_CAPABILITY = 7.0
_GENERATION = 2.0
_LEAST_TIMES = 0.005
_BELOW = 0.97
_LEAST_WORK = 0.02
_MOST_MARGIN = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """A measured device: its datasheet, what every run costs beside its work, and its models."""

    sheet: Datasheet
    overhead: float
    models: Sequence[Any]

    def margin(self, values: Floats) -> Floats:
        """What this device's behaviour says of rows of features, of whatever device."""
        return np.mean([model.margin(values) for model in self.models], axis=0)


def learn(family: Family, sheet: Datasheet, features: Features, target: Floats) -> MeasuredDevice:
    """Fit a device's models; what the overhead hides teaches them nothing."""
    overhead = 0.0
    if family.roofed:
        overhead = float(np.quantile(target, _LEAST_TIMES)) * _BELOW
    work, share = work_of(target, overhead)
    margin = np.log(features.scale / work)
    models = [
        family.regressor.fit(features.values, margin, seed, share**2) for seed in range(_SEEDS)
    ]
    return MeasuredDevice(sheet=sheet, overhead=overhead, models=models)


def work_of(target: Floats, overhead: float) -> tuple[Floats, Floats]:
    """What is left of each target beneath the overhead, a little of it at least, and its share."""
    work = np.maximum(target - overhead, _LEAST_WORK * target)
    return work, work / target


def device_weights(new: Datasheet, known: Sequence[Datasheet]) -> Floats:
    """How much of each known device the new one is; they add up to 1 and may be negative.

    What counts is the ridge point, FLOP per byte, and whether the device's generation has NVIDIA's
    tensor cores, since libraries carry other kernels from there on.
    """
    points = np.array([_point(sheet) for sheet in known])
    count = len(known)
    system = np.ones((count + 1, count + 1))
    system[:count, :count] = points @ points.T + _SHRINK * np.eye(count)
    system[count, count] = 0
    weights = np.linalg.solve(system, np.append(points @ _point(new), 1.0))[:count]
    return np.asarray(weights, dtype=np.float64)


def _point(sheet: Datasheet) -> Floats:
    return np.array([np.log2(sheet.ridge), _GENERATION * (sheet.capability >= _TENSOR_CAPABILITY)])


def likely_overhead(known: Sequence[float]) -> float:
    """The overhead with the least mean relative error against the known devices'."""
    measured = np.array(known)
    if not measured.all():
        return 0.0
    guesses = np.linspace(min(known), max(known), 200)
    return float(guesses[np.argmin(np.abs(guesses[:, None] / measured - 1).mean(1))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What known devices say of a new one's rows.

    `margins` is rows × devices, `margin` their weighted sum; times follow with `overhead`.
    """

    margins: Floats
    margin: Floats
    scale: Floats
    overhead: float

    def times(self, margin: Floats | None = None, overhead: float | None = None) -> Floats:
        """The target, with another margin or overhead where given."""
        work = self.scale * np.exp(-(self.margin if margin is None else margin))
        return work + (self.overhead if overhead is None else overhead)


def forecast(
    family: Family,
    new: Datasheet,
    scale: Floats,
    known: Sequence[MeasuredDevice],
    margins: Floats,
) -> Forecast:
    """Predict the rows of a device from other devices; `margins` is what each of these says of each
    row, rows × devices."""
    weights = np.full(len(known), 1 / len(known))
    if family.roofed:
        weights = device_weights(new, [device.sheet for device in known])
    most = 0.0 if family.roofed else _MOST_MARGIN
    return Forecast(
        margins=margins,
        margin=np.clip(margins @ weights, -_MOST_MARGIN, most),
        scale=scale,
        overhead=likely_overhead([device.overhead for device in known]),
    )
