"""Integer convolutions and the steps between numbers and their 8-bit codes.

A zero point z of the data goes into a constant: conv(x - z, w) = conv(x, w) - z Σw, with the border
filled with z. Rounding is half to even, as ONNX has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.windows import Window, read_window
from tilewright.models.weights import dtype_name

_CODES = ("int8", "uint8", "int16", "uint16")
_BYTE = np.iinfo(np.int8)


@translates("QuantizeLinear")
def quantize(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """QuantizeLinear → divide, round, add the zero point, clip, cast."""
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    dtype = builder.dtype(zero) if zero else "uint8"
    wanted = node.integer("output_dtype", 0)
    if wanted and not zero:
        dtype = dtype_name(wanted, "a quantized tensor")
    if not _simple(node, builder, x, scale) or dtype not in _CODES:
        return None
    x = _converted(builder, x, "float32")
    codes = builder.emit("divide", x, _along(node, builder, scale, x))
    rounded = builder.emit("round", codes)
    return _saturated(node, builder, rounded, zero, dtype)


@translates("DequantizeLinear")
def dequantize(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """DequantizeLinear → cast, subtract the zero point, multiply."""
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    if not _simple(node, builder, x, scale) or builder.dtype(x) not in (*_CODES, "int32"):
        return None
    value = _converted(builder, x, "float32")
    if zero and not _all_zero(builder, zero):
        shift = _along(node, builder, _converted(builder, zero, "float32"), value)
        value = builder.emit("subtract", value, shift)
    return builder.emit("multiply", value, _along(node, builder, scale, value))


@translates("ConvInteger")
def integer_convolution(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """ConvInteger → conv2d of bytes with sums of 32 bits; a constant zero point becomes an add."""
    return _sums(node, builder, node.inputs[:2], (node.input(2), node.input(3)), None)


@translates("QLinearConv")
def requantized_convolution(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """QLinearConv → conv2d, add, cast, multiply, round, add the zero point, clip, cast."""
    scales = [builder.value(node.input(index)) for index in (1, 4, 6)]
    bias = builder.value(node.input(8))
    dtype = builder.dtype(node.input(7))
    if any(s is None for s in scales) or dtype not in _CODES or (node.input(8) and bias is None):
        return None
    zeros = (node.input(2), node.input(5))
    sums = _sums(node, builder, (node.input(0), node.input(3)), zeros, bias)
    if sums is None:
        return None
    channels = builder.shape(sums)[1]
    x_scale, w_scale, y_scale = (np.asarray(s, np.float32).reshape(-1) for s in scales)
    scale = np.broadcast_to(x_scale * w_scale / y_scale, (channels,)).reshape(-1, 1, 1)
    factor = builder.constant(np.ascontiguousarray(scale, np.float32))
    scaled = builder.emit("multiply", builder.emit("cast", sums, dtype="float32"), factor)
    return _saturated(node, builder, builder.emit("round", scaled), node.input(7), dtype)


def _saturated(
    node: OnnxNode, builder: GraphBuilder, rounded: str, zero: str, dtype: str
) -> Translated:
    if zero and not _all_zero(builder, zero):
        shift = _along(node, builder, _converted(builder, zero, "float32"), rounded)
        rounded = builder.emit("add", rounded, shift)
    limits = np.iinfo(dtype)
    kept = builder.emit("clip", rounded, minimum=float(limits.min), maximum=float(limits.max))
    return builder.emit("cast", kept, dtype=dtype)


def _simple(node: OnnxNode, builder: GraphBuilder, x: str, scale: str) -> bool:
    """Whether there is one scale, or one per index of an axis, in single precision."""
    return (
        not node.integer("block_size", 0)
        and len(builder.shape(scale)) <= 1
        and builder.dtype(scale) == "float32"
        and builder.dtype(x) not in ("float16", "bfloat16", "float64")
    )


def _along(node: OnnxNode, builder: GraphBuilder, name: str, x: str) -> str:
    """A scale or zero point in a shape that broadcasts over `x`."""
    rank, count = len(builder.shape(x)), builder.elements(name)
    if count == 1:
        return builder.reshape(name, ())
    axis = axis_of(node.integer("axis", 1), rank, node.name)
    return builder.reshape(name, (count, *(1 for _ in range(rank - axis - 1))))


def _converted(builder: GraphBuilder, name: str, dtype: str) -> str:
    return name if builder.dtype(name) == dtype else builder.emit("cast", name, dtype=dtype)


def _all_zero(builder: GraphBuilder, name: str) -> bool:
    value = builder.value(name)
    return not name or (value is not None and not np.any(value))


def _sums(
    node: OnnxNode,
    builder: GraphBuilder,
    operands: tuple[str, ...],
    zeros: tuple[str, str],
    bias: Array | None,
) -> str | None:
    """Sums of (x - x_zero) (w - w_zero) in 32 bits; None for other than two spatial axes."""
    x, w = operands
    shape = builder.shape(x)
    if len(shape) != 4:
        return None
    window = read_window(node, shape[2:], builder.shape(w)[2:])
    if min(window.padding) < 0:
        return None
    zero = builder.value(zeros[0]) if zeros[0] else np.zeros((), builder.dtype(x))
    weights = _signed_weights(builder, w, zeros[1])
    if weights is None or zero is None or zero.size != 1:
        sums, shift = _convolved(node, builder, _shifted(builder, operands, zeros), window), None
    else:
        point = int(np.asarray(zero, np.int64).reshape(-1)[0])
        padding = window.padding
        if point and any(padding):
            x = _bordered(builder, x, padding, point)
            window = read_window(_unpadded(node), builder.shape(x)[2:], window.kernel)
        sums = _convolved(node, builder, (x, builder.constant(weights)), window)
        totals = weights.astype(np.int64).sum(axis=(1, 2, 3))
        shift = -point * totals if point else None
    added: Any = 0 if shift is None else shift
    if bias is not None:
        added = added + np.asarray(bias, np.int64).reshape(-1)
    if shift is None and bias is None:
        return sums
    column = np.asarray(added, np.int64).astype(np.int32).reshape(-1, 1, 1)
    return builder.emit("add", sums, builder.constant(column))


def _convolved(
    node: OnnxNode, builder: GraphBuilder, operands: tuple[str, str], window: Window
) -> str:
    return builder.emit(
        "conv2d",
        *operands,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )


def _signed_weights(builder: GraphBuilder, name: str, zero: str) -> Array | None:
    """Constant weights less their zero point, where that fits signed bytes."""
    value: Any = builder.value(name)
    point: Any = builder.value(zero) if zero else np.zeros((), np.int32)
    if value is None or point is None:
        return None
    column = point.astype(np.int32).reshape(-1, *(1,) * (value.ndim - 1))
    moved = value.astype(np.int32) - column
    fits = moved.min(initial=0) >= _BYTE.min and moved.max(initial=0) <= _BYTE.max
    return moved.astype(np.int8) if fits else None


def _shifted(
    builder: GraphBuilder, operands: tuple[str, ...], zeros: tuple[str, str]
) -> tuple[str, str]:
    """Both operands in 32 bits, less their zero points."""
    moved: list[str] = []
    for name, zero, rank in zip(operands, zeros, (0, 4), strict=True):
        wide = _converted(builder, name, "int32")
        if zero and not _all_zero(builder, zero):
            point = _converted(builder, zero, "int32")
            count = builder.elements(point)
            point = builder.reshape(point, () if count == 1 else (count, *(1,) * (rank - 1)))
            wide = builder.emit("subtract", wide, point)
        moved.append(wide)
    return moved[0], moved[1]


def _bordered(builder: GraphBuilder, x: str, padding: tuple[int, ...], point: int) -> str:
    top, left, bottom, right = padding
    return builder.emit(
        "pad",
        x,
        before=(0, 0, top, left),
        after=(0, 0, bottom, right),
        value=float(point),
        mode="constant",
    )


def _unpadded(node: OnnxNode) -> OnnxNode:
    """The node without its own padding."""
    kept = {k: v for k, v in node.attributes.items() if k not in ("pads", "auto_pad")}
    return replace(node, attributes=kept)
