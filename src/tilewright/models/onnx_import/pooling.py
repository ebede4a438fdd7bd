"""Window pooling and pooling over the whole extent."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.indices import IndexRange
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.elementwise import scalar
from tilewright.models.onnx_import.index_ports import require_indices
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.windows import Window, read_window, two


@translates("MaxPool", "AveragePool")
def pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """MaxPool, AveragePool → max_pool2d, avg_pool2d; `ceil_mode` becomes padding."""
    x = node.input(0)
    shape = builder.shape(x)
    if node.uses_output(1):
        raise ModelError(
            "the second output, where the largest elements lie, is not supported",
            hint="Cut the network before the node that reads it, or export it without.",
        )
    window = read_window(node, shape[2:], node.integers("kernel_shape"))
    if len(shape) not in (3, 4):
        return _resolved(node, window, shape[2:])
    if min(window.padding) < 0:
        return None
    data = builder.reshape(x, (*shape[:2], *two(shape[2:], 1)))
    if node.operator == "MaxPool":
        result = _emit(builder, "max_pool2d", data, window, window.padding)
    else:
        result = _average(node, builder, data, window)
    extents = builder.shape(result)
    return result if len(shape) == 4 else builder.reshape(result, (*extents[:2], extents[3]))


def _resolved(node: OnnxNode, window: Window, extent: tuple[int, ...]) -> OnnxNode:
    """A pooling over another number of axes is carried along, its padding written out.

    TVM keeps a last window that starts in the padding, and pads sums of powers in `ceil_mode` by
    more than nothing.
    """
    same = node.text("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    disputed = window.drops_last(extent) or (node.operator == "LpPool" and any(window.extra))
    if disputed and node.integer("ceil_mode", 0) and not same:
        raise ModelError(f"ceil_mode over {len(window.kernel)} axes is not supported in this form")
    pads = [*window.before, *window.after]
    ceiling = int(any(window.extra))
    return node.altered(node.inputs, auto_pad=None, pads=pads, ceil_mode=ceiling)


@translates("LpPool")
def norm_pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """LpPool → the root of a sum of powers, which is an average that counts all times the window's
    size."""
    x, p = node.input(0), node.integer("p", 2)
    shape = builder.shape(x)
    window = read_window(node, shape[2:], node.integers("kernel_shape"))
    if len(shape) not in (3, 4):
        return _resolved(node, window, shape[2:])
    if min(window.padding) < 0:
        return None
    size = builder.emit("abs", x)
    power = size
    for _ in range(p - 1):
        power = builder.emit("multiply", power, size)
    data = builder.reshape(power, (*shape[:2], *two(shape[2:], 1)))
    average = _emit(builder, "avg_pool2d", data, window, window.padding, count_include_pad=True)
    total = builder.emit("multiply", average, scalar(builder, prod(window.kernel), average))
    if p == 2:
        total = builder.emit("sqrt", total)
    elif p != 1:
        total = builder.emit("power", total, scalar(builder, 1 / p, total))
    extents = builder.shape(total)
    return total if len(shape) == 4 else builder.reshape(total, (*extents[:2], extents[3]))


def _average(node: OnnxNode, builder: GraphBuilder, data: str, window: Window) -> str:
    counted = bool(node.integer("count_include_pad", 0)) and any(window.before + window.after)
    padding = window.padding
    if counted and any(window.extra):
        data = builder.emit(
            "pad",
            data,
            before=(0, 0, *two(window.before, 0)),
            after=(0, 0, *two(window.after, 0)),
            value=0.0,
            mode="constant",
        )
        padding, counted = (0, 0, *two(window.extra, 0)), False
    return _emit(builder, "avg_pool2d", data, window, padding, count_include_pad=counted)


def _emit(
    builder: GraphBuilder,
    operator: str,
    data: str,
    window: Window,
    padding: tuple[int, ...],
    **named: bool,
) -> str:
    return builder.emit(
        operator,
        data,
        kernel=two(window.kernel, 1),
        strides=two(window.strides, 1),
        padding=padding,
        dilation=two(window.dilation, 1),
        **named,
    )


@translates("RoiAlign")
def region_pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """RoiAlign is carried along, its regions scaled ahead: TVM shifts them by half an element
    before it scales them, ONNX after it. The largest of weighted elements, `max`, is refused."""
    if node.text("mode", "avg") == "max":
        raise ModelError("mode 'max' is not supported, only 'avg' is")
    scale = node.number("spatial_scale", 1.0)
    if scale == 1:
        return None
    x, regions, batch = node.inputs[:3]
    scaled = builder.emit("multiply", regions, scalar(builder, scale, regions))
    return node.altered((x, scaled, batch), spatial_scale=1.0)


@translates("MaxRoiPool")
def max_region_pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """MaxRoiPool is carried along. Its regions, rows of (image, x1, y1, x2, y2), name an image by a
    float, which no kernel checks: image → table[int(image)], and indices of tables are checked.

    Negative ones do not count from the end here; they become the first that the table lacks.
    """
    x, regions = node.inputs[:2]
    images, (rows, width) = builder.shape(x)[0], builder.shape(regions)
    known = builder.value(regions)
    if known is not None:
        last = IndexRange(lowest=0, highest=images - 1)
        require_indices(known[:, :1].astype(np.int64), (last,))
        return None
    named = _columns(builder, regions, rows, 0, 1)
    number = builder.emit("cast", named, dtype="int64")
    negative = builder.emit("less", number, scalar(builder, 0, number))
    number = builder.emit("where", negative, scalar(builder, images, number), number)
    table = builder.constant(np.arange(images, dtype=builder.dtype(regions)))
    image = builder.emit("gather", table, number, axis=0)
    corners = _columns(builder, regions, rows, 1, width)
    return node.altered((x, builder.emit("concat", image, corners, axis=1)))


def _columns(builder: GraphBuilder, x: str, rows: int, start: int, stop: int) -> str:
    return builder.emit("slice", x, starts=(0, start), stops=(rows, stop), steps=(1, 1))


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Global pooling → a reduction over all spatial axes."""
    x = node.input(0)
    operator = "reduce_mean" if node.operator == "GlobalAveragePool" else "reduce_max"
    axes = tuple(range(2, len(builder.shape(x))))
    return builder.emit(operator, x, axes=axes, keepdims=True)
