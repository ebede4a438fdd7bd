"""Resize and Upsample: nearest neighbours, and interpolation axis by axis.

An element of the result lies at a position between elements of the input. A kernel, a function of
the distance, weighs those around it: `linear` reaches one element to either side, `cubic` two.
Shrinking with `antialias` widens it by the factor.

Source: the ONNX operator specification, Resize; R. Keys, "Cubic convolution interpolation for
digital image processing" (1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isclose
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.element_types import element_type
from tilewright.core.errors import ModelError, NotCompilable, quoted
from tilewright.graph.operators.movement import rounded, source_position
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    axis_of,
    shortest,
    translates,
)

MOST_TAPS = 16
"""A longer sum is a product with a matrix."""

Floats = npt.NDArray[np.float64]
_CROP = "tf_crop_and_resize"
_CORNERS = ("align_corners", _CROP)
"""Transformations that match the corners of the input to those of the result."""
_FRACTION = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis: its extents before and after, the factor, and, where only a part of it is taken,
    the corners of the part, 0 and 1 being those of the axis."""

    before: int
    after: int
    scale: float
    part: tuple[float, float] | None

    @property
    def same(self) -> bool:
        """Whether nothing happens along it."""
        whole = self.part is None or self.part == (0.0, 1.0)
        return whole and self.before == self.after and isclose(self.scale, 1.0)

    def positions(self, coordinate: str) -> list[float]:
        """Where in the input each element of the result lies."""
        if self.part is None:
            extents = (self.before, self.after)
            return [source_position(i, extents, self.scale, coordinate) for i in range(self.after)]
        start, end = ((self.before - 1) * corner for corner in self.part)
        if self.after == 1:
            return [(start + end) / 2]
        step = (end - start) / (self.after - 1)
        return [start + index * step for index in range(self.after)]


@translates("Resize", "Upsample")
def resize(node: OnnxNode) -> Translated:
    """Nearest → resize_nearest; linear, cubic → interpolate along every axis that changes."""
    x, mode = node.input(0), node.text("mode", "nearest")
    coordinate, rounding = _conventions(node)
    axes = _axes(node, x.shape, coordinate)
    if mode not in ("nearest", "linear", "cubic"):
        raise NotCompilable(f"mode {quoted(mode)} is not supported")
    if mode != "nearest":
        result = _interpolated(node, axes, coordinate)
    elif node.integer("antialias", 0):
        raise ModelError("antialias has no meaning for nearest neighbours")
    elif coordinate == _CROP:
        result = _picked(x, axes, rounding)
    else:
        usual = "ceil" if min(axis.scale for axis in axes) < 1 else "floor"
        return x.emit(
            "resize_nearest",
            shape=tuple(axis.after for axis in axes),
            coordinate=coordinate,
            rounding=rounding or usual,
            scales=tuple(axis.scale for axis in axes),
        )
    return _extrapolated(node, result, axes) if coordinate == _CROP else result


def _conventions(node: OnnxNode) -> tuple[str, str]:
    """Coordinate transformation and rounding; the latter is empty where it follows the scales."""
    if node.operator == "Upsample" or node.opset < 11:
        return "asymmetric", ""
    coordinate = node.text("coordinate_transformation_mode", "half_pixel")
    return coordinate, node.text("nearest_mode", "round_prefer_floor")


def _interpolated(node: OnnxNode, axes: list[_Axis], coordinate: str) -> Tensor:
    """In single precision at least; what shrinks first, for the rest is then less work."""
    x = node.input(0)
    kind = element_type(x.dtype)
    if not kind.is_float:
        raise NotCompilable(f"interpolating between elements of type {x.dtype} is not supported")
    result = x.cast("float32") if kind.is_half else x
    for place, axis in sorted(enumerate(axes), key=lambda item: item[1].after / item[1].before):
        if not axis.same:
            indices, weights = _taps(node, axis, axis.positions(coordinate))
            result = _weighted(result, place, indices, weights.astype(result.dtype))
    return result.cast(x.dtype)


def _taps(
    node: OnnxNode, axis: _Axis, positions: Sequence[float]
) -> tuple[npt.NDArray[np.int32], Floats]:
    """Which elements make those of the result at `positions`, and how much each: both have a column
    for every element of the result, whose weights add up to one.

    With `exclude_outside`, elements that an edge would repeat count nothing.
    """
    cubic = node.text("mode", "nearest") == "cubic"
    width = min(axis.scale, 1.0) if node.integer("antialias", 0) else 1.0
    start = floor(-(2 if cubic else 1) / width) + 1
    place = np.asarray(positions, np.float64)
    # an element that is hit exactly is the right one of the two in the middle
    left = np.ceil(place) - 1
    offsets = np.arange(start, 2 - start)[:, None]
    distance = np.abs((offsets - (place - left)) * width)
    weights = (
        _cubic(distance, node.number("cubic_coeff_a", -0.75))
        if cubic
        else np.clip(1 - distance, 0, 1)
    )
    indices = left.astype(np.int64) + offsets
    if node.integer("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= axis.before), 0.0, weights)
    sums = weights.sum(axis=0)
    weights = weights / np.where(sums == 0, 1.0, sums)
    # rows that count nothing anywhere are those that an integer factor never reaches
    used = np.any(weights != 0, axis=1)
    used[0] |= not used.any()
    return np.clip(indices, 0, axis.before - 1)[used].astype(np.int32), weights[used]


def _cubic(x: Floats, a: float) -> Floats:
    """The kernel of Keys with coefficient `a`, for distances from zero on."""
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _weighted(
    x: Tensor, axis: int, indices: npt.NDArray[np.int32], weights: npt.NDArray[np.floating]
) -> Tensor:
    """One axis interpolated: `interpolate`, or a product with a matrix."""
    constant = x.builder.constant
    if len(weights) <= MOST_TAPS:
        return x.emit("interpolate", constant(indices), constant(weights), axis=axis)
    matrix = np.zeros((x.shape[axis], weights.shape[1]), weights.dtype)
    columns = np.arange(weights.shape[1], dtype=np.int64)
    np.add.at(matrix, (indices, columns), weights)
    order = [*(place for place in range(x.rank) if place != axis), axis]
    product = x.transpose(order).emit("dense", constant(matrix))
    return product.transpose(np.argsort(order).tolist())


def _picked(x: Tensor, axes: list[_Axis], rounding: str) -> Tensor:
    """The nearest elements of a part of the tensor."""
    for place, axis in enumerate(axes):
        if not axis.same:
            chosen = [rounded(position, rounding) for position in axis.positions(_CROP)]
            x = x.take(np.clip(chosen, 0, axis.before - 1).astype(np.int64), place)
    return x


def _extrapolated(node: OnnxNode, x: Tensor, axes: list[_Axis]) -> Tensor:
    """What lies outside the input, along any axis, has the value for extrapolation."""
    outside = np.zeros((1,) * len(axes), np.bool_)
    for place, axis in enumerate(axes):
        if not axis.same:
            positions = np.array(axis.positions(_CROP))
            beyond = (positions < 0) | (positions > axis.before - 1)
            if beyond.any():
                outside = outside | beyond.reshape((-1, *(1 for _ in axes[place + 1 :])))
    if not outside.any():
        return x
    value = x.filled(node.number("extrapolation_value", 0.0))
    return node.constant(outside).emit("where", value, x)


def _axes(node: OnnxNode, shape: tuple[int, ...], coordinate: str) -> list[_Axis]:
    """What happens along each axis, from `scales` or `sizes`, `axes` and `roi`."""
    rank = len(shape)
    places = [axis_of(axis, rank, node.name) for axis in node.integers("axes") or range(rank)]
    scales, sizes = [1.0] * rank, list(shape)
    late = node.operator == "Resize" and node.opset >= 11
    given = node.value(2 if late else 1)
    scaled: Any = node.attributes.get("scales", ()) if given is None else given.reshape(-1)
    named = [shortest(scale) for scale in scaled]
    wanted: Sequence[float] = named
    if not named and node.given(3):
        wanted = _known_sizes(node, places)
    if not wanted:
        raise NotCompilable("neither its scales nor its sizes are constant")
    for place, size in zip(places, wanted, strict=True):
        whole = floor(size * shape[place]) if named else int(size)
        scales[place], sizes[place] = size if named else size / shape[place], whole
    if not named:
        _keep_ratio(node, shape, places, scales, sizes)
    parts = _parts(node, places, rank) if coordinate == _CROP else [None] * rank
    if coordinate in _CORNERS:
        _refuse_fractions(shape, sizes, scales)
    return [
        _Axis(before=before, after=after, scale=scale, part=part)
        for before, after, scale, part in zip(shape, sizes, scales, parts, strict=True)
    ]


def _known_sizes(node: OnnxNode, places: Sequence[int]) -> Sequence[int]:
    """Sizes that are given, or those that the model tells of the result, unless they are wishes."""
    if node.value(3) is None and node.text("keep_aspect_ratio_policy", "stretch") == "stretch":
        return node.implied(3, [node.declared()[place] for place in places])
    return node.known_integers(3)


def _refuse_fractions(shape: tuple[int, ...], sizes: list[int], scales: list[float]) -> None:
    """Where corners are matched, engines do not agree on where the last element of 2.4 lies."""
    for before, after, scale in zip(shape, sizes, scales, strict=True):
        if abs(scale * before - after) > _FRACTION:
            raise ModelError(
                f"{before} elements times {shortest(scale)} is no whole number, for which engines "
                "disagree if corners are aligned",
                hint="Give sizes in place of scales.",
            )


def _keep_ratio(
    node: OnnxNode, shape: tuple[int, ...], places: list[int], scales: list[float], sizes: list[int]
) -> None:
    """With a policy, sizes are only wishes: one factor for all axes that are named."""
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return
    if policy not in ("not_larger", "not_smaller"):
        raise ModelError(f"keep_aspect_ratio_policy {quoted(policy)} is not known")
    wanted = [scales[place] for place in places]
    scale = min(wanted) if policy == "not_larger" else max(wanted)
    for place in places:
        scales[place], sizes[place] = scale, floor(scale * shape[place] + 0.5)


def _parts(node: OnnxNode, places: list[int], rank: int) -> list[tuple[float, float] | None]:
    """The part of each axis that is taken: `roi` holds all starts, then all ends."""
    region = node.value(1)
    if region is None or region.size != 2 * len(places):
        raise NotCompilable("its region of interest is not constant")
    starts, ends = ([shortest(value) for value in half] for half in region.reshape(2, len(places)))
    parts: list[tuple[float, float] | None] = [(0.0, 1.0)] * rank
    for place, start, end in zip(places, starts, ends, strict=True):
        parts[place] = (start, end)
    return parts
