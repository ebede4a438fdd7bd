# pyright: basic
"""A device that nobody measured, from others that were and from datasheets, and what a few
measurements of its own change.

Each known device has a model of its own, so that nothing is learnt from device numbers that a
handful of devices cannot teach. A new device is a weighted sum of them, in the logarithm of the
utilisation: the weights add up to 1 and reproduce its datasheet from theirs, as the weights of a
synthetic control do (Abadie, Diamond & Hainmueller, JASA 2010), shrunk towards equal ones.

What that misses is a Gaussian process over what the known devices say, the operands and the
family's trend, with a linear part in the known devices, so that samples of the new one also
correct how much of each it is, and in the trend. The samples are those that leave the least of its
variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.predict.base import (
    Columns,
    Datasheet,
    Family,
    Features,
    Floats,
    Integers,
    conformal_reach,
)
from tilewright.predict.processes import Inputs, Prior, most_telling, regression

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
    overhead = float(np.quantile(target, _LEAST_TIMES)) * _BELOW if family.roofed else 0.0
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
    sheets = [device.sheet for device in known]
    weights = device_weights(new, sheets) if family.roofed else np.full(len(known), 1 / len(known))
    most = 0.0 if family.roofed else _MOST_MARGIN
    return Forecast(
        margins=margins,
        margin=np.clip(margins @ weights, -_MOST_MARGIN, most),
        scale=scale,
        overhead=likely_overhead([device.overhead for device in known]),
    )


_POOL = 4000
_CANDIDATES = 1000
_OPERANDS_COUNT = 0.35
_TREND_COUNTS = 0.3
_TREND_SLOPE = 0.2
_LEAST_SHARE = 0.05
_BELOW_SAMPLES = 0.975
_PROMISING = 0.05
_SMALLEST = (0.0, 0.005)


def coordinates(family: Family, columns: Columns, features: Features, forecast: Forecast) -> Inputs:
    """Where rows lie: by the known devices, the forecast, the operands, and the trend."""
    own = forecast.margins - forecast.margins.mean(1, keepdims=True)
    near = [own, forecast.margin]
    varied = [o for o in family.operands if not o.text and np.ptp(columns[o.name]) != 0]
    if family.roofed:
        near += [_OPERANDS_COUNT * np.log2(columns[o.name] + o.signed) for o in varied]
        near += [2 * _work_share(forecast), _OPERANDS_COUNT * np.log2(forecast.scale)]
    else:
        values = [columns[operand.name] for operand in varied]
        near += [(each - each.mean()) / (2 * each.std()) for each in values]
    trend = np.log2(features.aligned(family.trend)) if family.trend else np.empty((len(own), 0))
    near = np.column_stack([*near, _TREND_COUNTS * trend])
    linear = np.column_stack([forecast.margins, _TREND_SLOPE * trend])
    return Inputs(near=near - near.mean(0), linear=linear - linear.mean(0))


def choose(family: Family, inputs: Inputs, forecast: Forecast, count: int, seed: int) -> Integers:
    """The rows to measure, `count` or a few less."""
    random = np.random.default_rng(seed)
    rows = np.arange(len(inputs.near))
    if family.verified:
        half = _medoids(inputs.near, _promising(forecast), count // 2, seed)
        rest = np.setdiff1d(rows, half)
        return np.unique([*half, *_medoids(inputs.near, rest, count - len(half), seed)])
    smallest = np.argsort(forecast.scale, kind="stable")
    fixed = smallest[[int(share * (len(rows) - 1)) for share in _SMALLEST]]
    drawn = np.concatenate([fixed, random.permutation(rows)[:_CANDIDATES]])
    rows = _distinct(inputs.near, drawn)
    if len(rows) <= count:
        return np.unique(rows)
    # The fixed rows, then those that tell most of all; what is overhead is no error.
    share, prior = _work_share(forecast)[rows], Prior()
    covariance = inputs.kernel(prior)(inputs.joined[rows])
    first = [int(row) for row in np.flatnonzero(np.isin(rows, fixed))]
    noise = prior.noise * _noise(share)
    return np.unique(rows[most_telling(covariance, noise, share**2, count, first)])


def _noise(share: Floats) -> Floats:
    """Work is known the worse the smaller its share of the time: variances."""
    return 1 / np.maximum(share, _LEAST_SHARE) ** 2


def _distinct(near: Floats, rows: Integers) -> Integers:
    """The first of the rows in each place."""
    return rows[np.unique(near[rows].round(9), axis=0, return_index=True)[1]]


def _promising(forecast: Forecast) -> Integers:
    """Rows that some known device, or all together, would count among the fastest."""
    count = max(1, int(_PROMISING * len(forecast.margin)))
    views = [forecast.margin, *forecast.margins.T]
    return np.unique(np.concatenate([np.argsort(-view, kind="stable")[:count] for view in views]))


def _medoids(near: Floats, rows: Integers, count: int, seed: int) -> Integers:
    """The rows closest to the centres of `count` clusters."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import pairwise_distances_argmin

    random = np.random.default_rng(seed)
    pool = _distinct(near, random.permutation(rows)[:_POOL])
    if len(pool) <= count:
        return pool
    clusters = KMeans(count, n_init="auto", random_state=seed).fit(near[pool])
    return np.unique(pool[pairwise_distances_argmin(clusters.cluster_centers_, near[pool])])


def _work_share(forecast: Forecast) -> Floats:
    """The part of each time that is not overhead."""
    return 1 - forecast.overhead / forecast.times()


def calibrated(
    family: Family, inputs: Inputs, forecast: Forecast, sampled: Integers, target: Floats
) -> tuple[Floats, float]:
    """Predict all rows again, knowing the `target` of those that were sampled, and the half width
    of the intervals in the logarithm; a target that is NaN says nothing."""
    rows = sampled[np.isfinite(target[sampled])]
    if not len(rows):
        return forecast.times(), float("inf")
    overhead = float(target[rows].min()) * _BELOW_SAMPLES if family.roofed else 0.0
    work, share = work_of(target[rows], overhead)
    missed = np.log(forecast.scale[rows] / work) - forecast.margin[rows]
    mean = float(np.average(missed, weights=share**2))
    prior = Prior() if family.roofed else Prior(near=0.3, linear=0.3, constant=1.0, noise=0.005)
    more, left_out = regression(inputs, rows, missed - mean, _noise(share), prior)
    predicted = forecast.times(forecast.margin + mean + more, overhead)
    return predicted, conformal_reach(left_out * share)


def regret(predicted: Floats, target: Floats, sampled: Integers, verified: int) -> float:
    """How much slower the best of the samples and of the `verified` best guesses is than the best
    row there is: 0.15 is 15 %. Rows whose target is NaN failed."""
    guesses = np.setdiff1d(np.arange(len(predicted)), sampled)
    order = guesses[np.argsort(predicted[guesses], kind="stable")][:verified]
    tried = target[np.concatenate([sampled, order])]
    best = np.nanmin(tried) if np.isfinite(tried).any() else np.inf
    return float(best / np.nanmin(target) - 1)
