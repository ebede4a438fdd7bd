"""Nearest-neighbour resizing; interpolating forms are not in the vocabulary."""

from __future__ import annotations

from math import floor

from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates

_COORDINATES = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn",
}  # fmt: skip


@translates("Resize", "Upsample")
def resize(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Resize, Upsample with `mode` nearest → resize_nearest."""
    if node.text("mode", "nearest") != "nearest":
        return None
    x = node.input(0)
    shape = builder.shape(x)
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    found = _scales(node, builder, shape)
    if found is None:
        return None
    scales, result = found
    if node.operator == "Upsample" or node.opset < 11:
        coordinate = "asymmetric"
        rounding = "ceil" if min(scales) < 1 else "floor"
    else:
        coordinate = node.text("coordinate_transformation_mode", "half_pixel")
        rounding = node.text("nearest_mode", "round_prefer_floor")
    if coordinate not in _COORDINATES:
        return None
    return builder.emit(
        "resize_nearest", x, shape=result, coordinate=coordinate, rounding=rounding, scales=scales
    )


def _scales(
    node: OnnxNode, builder: GraphBuilder, shape: tuple[int, ...]
) -> tuple[tuple[float, ...], tuple[int, ...]] | None:
    """Scale and result size of every axis, from `scales` or `sizes`."""
    late = node.operator == "Resize" and node.opset >= 11
    rank = len(shape)
    axes = node.integers("axes") or tuple(range(rank))
    places = [axis_of(axis, rank, node.name) for axis in axes]
    scales, sizes = [1.0] * rank, list(shape)
    given = builder.value(node.input(2 if late else 1))
    wanted = builder.integers(node.input(3)) if late and node.input(3) else None
    if given is not None and given.size:
        for place, scale in zip(places, given.reshape(-1), strict=True):
            scales[place] = float(str(scale))
            sizes[place] = floor(float(scale) * shape[place])
    elif node.has("scales"):
        scales = list(node.numbers("scales"))
        sizes = [floor(scale * size) for scale, size in zip(scales, shape, strict=True)]
    elif wanted:
        for place, size in zip(places, wanted, strict=True):
            scales[place], sizes[place] = size / shape[place], size
    else:
        return None
    return tuple(scales), tuple(sizes)
