"""Interpolation along one axis: which elements make an element of the result, and how much each.

An element of the result lies at a position between elements of the input. A kernel, a function of
the distance, weighs those around it: `linear` reaches one element to either side, `cubic` two.
Shrinking with `antialias` widens it by the factor.

Source: the ONNX operator specification, Resize; R. Keys, "Cubic convolution interpolation for
digital image processing" (1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import numpy as np
import numpy.typing as npt

from tilewright.models.onnx_import.builder import GraphBuilder

MOST_TAPS = 16
"""A longer sum is a product with a matrix."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """How elements are weighed; `cubic` is the kernel's coefficient, None for the linear one.

    `exclude_outside`: elements that an edge would repeat count nothing.
    """

    cubic: float | None
    antialias: bool
    exclude_outside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """For every element of the result, a column: `indices` of elements and their `weights`, both
    [taps, extent]."""

    indices: npt.NDArray[np.int32]
    weights: Floats


def taps_of(positions: Sequence[float], before: int, scale: float, rule: Filter) -> Taps:
    """The taps of elements at `positions` of an axis with `before` elements.

    `scale` is the factor of growth; the columns of the weights add up to one.
    """
    width = min(scale, 1.0) if rule.antialias else 1.0
    reach = 1 if rule.cubic is None else 2
    start = floor(-reach / width) + 1
    place = np.asarray(positions, np.float64)
    # an element that is hit exactly is the right one of the two in the middle
    left = np.ceil(place) - 1
    offsets = np.arange(start, 2 - start)[:, None]
    weights = _kernel((offsets - (place - left)) * width, rule.cubic)
    indices = left.astype(np.int64) + offsets
    if rule.exclude_outside:
        weights = np.where((indices < 0) | (indices >= before), 0.0, weights)
    sums = weights.sum(axis=0)
    weights = weights / np.where(sums == 0, 1.0, sums)
    return _merged(np.clip(indices, 0, before - 1), weights)


def _kernel(distance: Floats, cubic: float | None) -> Floats:
    x = np.abs(distance)
    if cubic is None:
        return np.clip(1 - x, 0, 1)
    near = (cubic + 2) * x**3 - (cubic + 3) * x**2 + 1
    far = cubic * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _merged(indices: npt.NDArray[np.int64], weights: Floats) -> Taps:
    """Without rows that count nothing anywhere: those an integer factor never reaches."""
    used = np.any(weights != 0, axis=1)
    used[0] |= not used.any()
    return Taps(indices=indices[used].astype(np.int32), weights=weights[used])


def interpolated(builder: GraphBuilder, x: str, axis: int, taps: Taps) -> str:
    """A float tensor with one axis interpolated: `interpolate`, or a product with a matrix."""
    weights = taps.weights.astype(builder.dtype(x))
    if len(weights) <= MOST_TAPS:
        indices = builder.constant(taps.indices)
        return builder.emit("interpolate", x, indices, builder.constant(weights), axis=axis)
    before = builder.shape(x)[axis]
    matrix = np.zeros((before, weights.shape[1]), weights.dtype)
    for column in range(weights.shape[1]):
        np.add.at(matrix[:, column], taps.indices[:, column], weights[:, column])
    order = [place for place in range(len(builder.shape(x))) if place != axis] + [axis]
    product = builder.emit("dense", builder.transpose(x, order), builder.constant(matrix))
    return builder.transpose(product, np.argsort(order).tolist())
