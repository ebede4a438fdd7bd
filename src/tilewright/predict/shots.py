# pyright: basic
"""A few measurements of a new device: which ones, and what they change.

What the forecast misses is a Gaussian process over what the known devices say, the operands and
the family's trend, with a linear part in the known devices, so that samples also correct how much
of each the new one is, and in the trend. The rows are those that leave the least of its variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Columns, Facts, Family, Floats
from tilewright.predict.gaussian import (
    GaussianProcess,
    Inputs,
    Prior,
    most_telling,
    squares,
)
from tilewright.predict.metrics import conformal_reach
from tilewright.predict.splits import Integers
from tilewright.predict.transfer import Forecast

_POOL = 4000
_CANDIDATES = 1000
_STEPS = 20
_OPERANDS_COUNT = 0.35
_TREND_COUNTS = 0.3
_TREND_SLOPE = 0.2
_LEAST_SHARE = 0.05
_LEAST_WORK = 0.02
_BELOW = 0.975
_PROMISING = 0.05
_SMALLEST = (0.0, 0.005)
_PRIOR = Prior()
_SEARCH_PRIOR = Prior(near=0.3, linear=0.3, constant=1.0, noise=0.005)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """Predictions for all rows after the samples, and the half width of their intervals."""

    predicted: Floats
    reach: float


def coordinates(family: Family, columns: Columns, facts: Facts, forecast: Forecast) -> Inputs:
    """Where rows lie: by the known devices, the forecast, the operands, and the trend."""
    own = forecast.margins - forecast.margins.mean(1, keepdims=True)
    near = [own, forecast.margin[:, None]]
    for operand in family.operands:
        values = columns[operand.name]
        if operand.text or np.ptp(values) == 0:
            continue
        if family.roofed:
            sizes = values + 1 if operand.signed else values
            near.append(_OPERANDS_COUNT * np.log2(sizes)[:, None])
        else:
            near.append((values - values.mean())[:, None] / (2 * values.std()))
    if family.roofed:
        near += [2 * _work_share(forecast)[:, None]]
        near += [_OPERANDS_COUNT * np.log2(forecast.scale)[:, None]]
    linear = [forecast.margins]
    for name in family.trend:
        trend = np.log2(facts.values[:, [facts.names.index(name)]])
        near.append(_TREND_COUNTS * trend)
        linear.append(_TREND_SLOPE * trend)
    return Inputs(near=_centred(near), linear=_centred(linear), noise=np.ones(len(linear[0])))


def _centred(columns: Sequence[Floats]) -> Floats:
    stacked = np.column_stack(columns)
    return stacked - stacked.mean(0)


def choose(family: Family, inputs: Inputs, forecast: Forecast, count: int, seed: int) -> Integers:
    """The rows to measure, `count` or a few less."""
    random = np.random.default_rng(seed)
    rows = np.arange(len(inputs.near))
    if not family.verified:
        smallest = np.argsort(forecast.scale, kind="stable")
        fixed = smallest[[int(share * (len(rows) - 1)) for share in _SMALLEST]]
        drawn = np.concatenate([fixed, random.permutation(rows)[:_CANDIDATES]])
        return _informative(inputs, forecast, fixed, _distinct(inputs.near, drawn), count)
    promising = _promising(forecast)
    half = _medoids(inputs.near, promising, count // 2, random)
    rest = np.setdiff1d(rows, half)
    return np.unique([*half, *_medoids(inputs.near, rest, count - len(half), random)])


def _informative(
    inputs: Inputs, forecast: Forecast, fixed: Integers, rows: Integers, count: int
) -> Integers:
    """The fixed rows, then those that tell most of all; what is overhead is no error."""
    if len(rows) <= count:
        return np.unique(rows)
    share = _work_share(forecast)[rows]
    process = GaussianProcess(_PRIOR, inputs.near.shape[1])
    covariance, noise = process.covariance(_noisy(inputs.rows(rows), share))
    first = [int(row) for row in np.flatnonzero(np.isin(rows, fixed))]
    return np.unique(rows[most_telling(covariance, noise, share**2, count, first)])


def _noisy(inputs: Inputs, share: Floats) -> Inputs:
    """Work is known the worse the smaller its share of the time."""
    noise = 1 / np.maximum(share, _LEAST_SHARE) ** 2
    return Inputs(near=inputs.near, linear=inputs.linear, noise=noise)


def _distinct(near: Floats, rows: Integers) -> Integers:
    """The first of the rows in each place."""
    return rows[np.unique(near[rows].round(9), axis=0, return_index=True)[1]]


def _promising(forecast: Forecast) -> Integers:
    """Rows that some known device, or all together, would count among the fastest."""
    count = max(1, int(_PROMISING * len(forecast.margin)))
    views = [forecast.margin, *forecast.margins.T]
    return np.unique(np.concatenate([np.argsort(-view, kind="stable")[:count] for view in views]))


def _medoids(near: Floats, rows: Integers, count: int, random: np.random.Generator) -> Integers:
    """The rows closest to the centres of `count` clusters."""
    pool = _distinct(near, random.permutation(rows)[:_POOL])
    if len(pool) <= count:
        return pool
    points = near[pool]
    closest = np.argmin(squares(points, _centres(points, count, random)), axis=0)
    return np.unique(pool[closest])


def _centres(points: Floats, count: int, random: np.random.Generator) -> Floats:
    """k-means, begun far apart: Arthur & Vassilvitskii, "k-means++", SODA 2007."""
    centres = points[[random.integers(len(points))]]
    for _ in range(count - 1):
        away = squares(points, centres).min(1)
        if not away.any():
            break
        centres = np.vstack([centres, points[random.choice(len(points), p=away / away.sum())]])
    for _ in range(_STEPS):
        owner = np.argmin(squares(points, centres), axis=1)
        centres = np.array(
            [
                points[owner == number].mean(0) if (owner == number).any() else centre
                for number, centre in enumerate(centres)
            ]
        )
    return centres


def _work_share(forecast: Forecast) -> Floats:
    """The part of each time that is not overhead."""
    return 1 - forecast.overhead / forecast.times()


def correct(
    family: Family,
    inputs: Inputs,
    forecast: Forecast,
    samples: Mapping[int, float],
) -> Corrected:
    """Predict all rows again, knowing the targets of some; a target that is NaN says nothing."""
    rows = np.array([row for row, value in samples.items() if np.isfinite(value)], dtype=np.int64)
    if not len(rows):
        return Corrected(predicted=forecast.times(), reach=float("inf"))
    target = np.array([samples[int(row)] for row in rows])
    overhead = float(target.min()) * _BELOW if family.roofed else 0.0
    work = np.maximum(target - overhead, _LEAST_WORK * target)
    share = work / target
    missed = np.log(forecast.scale[rows] / work) - forecast.margin[rows]
    mean = float(np.average(missed, weights=share**2))
    known = _noisy(inputs.rows(rows), share)
    prior = _PRIOR if family.roofed else _SEARCH_PRIOR
    process = GaussianProcess(prior, inputs.near.shape[1])
    process.fit([(known, missed - mean)])
    margin = forecast.margin + mean + process.predict(inputs)
    residuals = process.left_out() * share
    return Corrected(predicted=forecast.times(margin, overhead), reach=conformal_reach(residuals))


def regret(predicted: Floats, target: Floats, sampled: Integers, verified: int) -> float:
    """How much slower the best of the samples and of the `verified` best guesses is than the best
    row there is: 0.15 is 15 %. Rows whose target is NaN failed."""
    guesses = np.setdiff1d(np.arange(len(predicted)), sampled)
    order = guesses[np.argsort(predicted[guesses], kind="stable")][:verified]
    tried = target[np.concatenate([sampled, order])]
    best = np.nanmin(tried) if np.isfinite(tried).any() else np.inf
    return float(best / np.nanmin(target) - 1)
