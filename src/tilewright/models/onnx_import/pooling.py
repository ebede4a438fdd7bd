"""Window pooling and pooling over the whole extent."""

from __future__ import annotations

from tilewright.core.errors import ModelError
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.windows import Window, read_window, two


@translates("MaxPool", "AveragePool")
def pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """MaxPool, AveragePool → max_pool2d, avg_pool2d; `ceil_mode` becomes padding."""
    x = node.input(0)
    shape = builder.shape(x)
    if len(shape) not in (3, 4) or node.uses_output(1):
        return None
    window = read_window(node, shape[2:], node.integers("kernel_shape"))
    if min(window.padding) < 0:
        return None
    data = builder.reshape(x, (*shape[:2], *two(shape[2:], 1)))
    if node.operator == "MaxPool":
        result = _emit(builder, "max_pool2d", data, window, window.padding)
    else:
        result = _average(node, builder, data, window)
    extents = builder.shape(result)
    return result if len(shape) == 4 else builder.reshape(result, (*extents[:2], extents[3]))


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
def region_pool(node: OnnxNode, _builder: GraphBuilder) -> Translated:
    """RoiAlign goes on as it is; the largest of weighted elements, `max`, is computed nowhere."""
    if node.text("mode", "avg") == "max":
        raise ModelError("mode 'max' is not supported, only 'avg' is")
    return None


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Global pooling → a reduction over all spatial axes."""
    x = node.input(0)
    operator = "reduce_mean" if node.operator == "GlobalAveragePool" else "reduce_max"
    axes = tuple(range(2, len(builder.shape(x))))
    return builder.emit(operator, x, axes=axes, keepdims=True)
