"""Resize and Upsample: nearest neighbours, and interpolation axis by axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isclose

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import ModelError
from tilewright.graph.operators.movement import rounded, source_position
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.interpolation import Filter, interpolated, taps_of
from tilewright.models.onnx_import.node import OnnxNode, shortest
from tilewright.models.onnx_import.registry import Translated, translates

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
def resize(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Nearest → resize_nearest; linear, cubic → interpolate along every axis that changes."""
    x = node.input(0)
    mode = node.text("mode", "nearest")
    coordinate, rounding = _conventions(node)
    axes = _axes(node, builder, builder.shape(x), coordinate)
    if mode == "nearest" and node.integer("antialias", 0):
        raise ModelError("antialias of nearest neighbours means nothing")
    if mode == "nearest" and coordinate != _CROP:
        if not rounding:
            rounding = "ceil" if min(axis.scale for axis in axes) < 1 else "floor"
        return builder.emit(
            "resize_nearest",
            x,
            shape=tuple(axis.after for axis in axes),
            coordinate=coordinate,
            rounding=rounding,
            scales=tuple(axis.scale for axis in axes),
        )
    if mode == "nearest":
        result = _picked(builder, x, axes, rounding)
    elif mode in ("linear", "cubic"):
        result = _interpolated(node, builder, axes, coordinate)
    else:
        raise ModelError(f"mode {quoted(mode)} is not supported")
    return _extrapolated(node, builder, result, axes) if coordinate == _CROP else result


def _conventions(node: OnnxNode) -> tuple[str, str]:
    """Coordinate transformation and rounding; the latter is empty where it follows the scales."""
    if node.operator == "Upsample" or node.opset < 11:
        return "asymmetric", ""
    coordinate = node.text("coordinate_transformation_mode", "half_pixel")
    return coordinate, node.text("nearest_mode", "round_prefer_floor")


def _interpolated(node: OnnxNode, builder: GraphBuilder, axes: list[_Axis], coordinate: str) -> str:
    """In single precision at least; what shrinks first, for the rest is then less work."""
    x, dtype = node.input(0), builder.dtype(node.input(0))
    if not element_type(dtype).is_float:
        raise ModelError(f"interpolating between elements of type {dtype} is not supported")
    cubic = node.text("mode", "nearest") == "cubic"
    rule = Filter(
        cubic=node.number("cubic_coeff_a", -0.75) if cubic else None,
        antialias=bool(node.integer("antialias", 0)),
        exclude_outside=bool(node.integer("exclude_outside", 0)),
    )
    half = element_type(dtype).is_half
    result = builder.emit("cast", x, dtype="float32") if half else x
    for place, axis in sorted(enumerate(axes), key=lambda item: item[1].after / item[1].before):
        if not axis.same:
            taps = taps_of(axis.positions(coordinate), axis.before, axis.scale, rule)
            result = interpolated(builder, result, place, taps)
    return builder.emit("cast", result, dtype=dtype) if half else result


def _picked(builder: GraphBuilder, x: str, axes: list[_Axis], rounding: str) -> str:
    """The nearest elements of a part of the tensor."""
    for place, axis in enumerate(axes):
        if not axis.same:
            chosen = [rounded(position, rounding) for position in axis.positions(_CROP)]
            indices = np.clip(chosen, 0, axis.before - 1).astype(np.int64)
            x = builder.emit("gather", x, builder.constant(indices), axis=place)
    return x


def _extrapolated(node: OnnxNode, builder: GraphBuilder, x: str, axes: list[_Axis]) -> str:
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
    value = builder.full((), node.number("extrapolation_value", 0.0), builder.dtype(x))
    return builder.emit("where", builder.constant(outside), value, x)


def _axes(
    node: OnnxNode, builder: GraphBuilder, shape: tuple[int, ...], coordinate: str
) -> list[_Axis]:
    """What happens along each axis, from `scales` or `sizes`, `axes` and `roi`."""
    rank = len(shape)
    places = [axis_of(axis, rank, node.name) for axis in node.integers("axes") or range(rank)]
    scales, sizes = [1.0] * rank, list(shape)
    named, wanted = _given_scales(node, builder), _given_sizes(node, builder)
    if named:
        for place, scale in zip(places, named, strict=True):
            scales[place], sizes[place] = scale, floor(scale * shape[place])
    elif wanted:
        for place, size in zip(places, wanted, strict=True):
            scales[place], sizes[place] = size / shape[place], size
        _keep_ratio(node, shape, places, scales, sizes)
    else:
        raise ModelError("neither its scales nor its sizes are known ahead")
    parts: list[tuple[float, float] | None] = [None] * rank
    if coordinate == _CROP:
        parts = _parts(node, builder, places, rank)
    if coordinate in _CORNERS:
        _refuse_fractions(shape, sizes, scales)
    return [
        _Axis(before=before, after=after, scale=scale, part=part)
        for before, after, scale, part in zip(shape, sizes, scales, parts, strict=True)
    ]


def _refuse_fractions(shape: tuple[int, ...], sizes: list[int], scales: list[float]) -> None:
    """Where corners are matched, engines do not agree on where the last element of 2.4 lies."""
    for before, after, scale in zip(shape, sizes, scales, strict=True):
        if abs(scale * before - after) > _FRACTION:
            raise ModelError(
                f"{before} elements times {shortest(scale)} are no whole number, and what is "
                "matched are the corners: engines do not agree what that means",
                hint="Give sizes in place of scales.",
            )


def _given_scales(node: OnnxNode, builder: GraphBuilder) -> tuple[float, ...]:
    late = node.operator == "Resize" and node.opset >= 11
    given = builder.value(node.input(2 if late else 1))
    if given is None:
        return node.numbers("scales")
    return tuple(shortest(scale) for scale in given.reshape(-1))


def _given_sizes(node: OnnxNode, builder: GraphBuilder) -> tuple[int, ...]:
    return (builder.integers(node.input(3)) or ()) if node.input(3) else ()


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


def _parts(
    node: OnnxNode, builder: GraphBuilder, places: list[int], rank: int
) -> list[tuple[float, float] | None]:
    """The part of each axis that is taken: `roi` holds all starts, then all ends."""
    region = builder.value(node.input(1))
    if region is None or region.size != 2 * len(places):
        raise ModelError("its region of interest is not known ahead")
    starts, ends = ([shortest(value) for value in half] for half in region.reshape(2, len(places)))
    parts: list[tuple[float, float] | None] = [(0.0, 1.0)] * rank
    for place, start, end in zip(places, starts, ends, strict=True):
        parts[place] = (start, end)
    return parts
