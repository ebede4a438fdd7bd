"""Integer convolutions and the steps between numbers and their 8-bit codes.

A zero point z of the data goes into a constant: conv(x - z, w) = conv(x, w) - z Σw, with the border
filled with z. Rounding is half to even, as ONNX has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from tilewright.graph.clean.edit import only_if
from tilewright.graph.network import Array
from tilewright.models.onnx_import.node import OnnxNode, Tensor, Translated, translates
from tilewright.models.onnx_import.windows import convolved, read_window
from tilewright.models.onnx_model import dtype_name

_CODES = ("int8", "uint8", "int16", "uint16")
_BYTE = np.iinfo(np.int8)


@translates("QuantizeLinear")
def quantize(node: OnnxNode) -> Translated:
    """QuantizeLinear → divide, round, add the zero point, clip, cast."""
    (x, scale), zero = node.several(2), node.given(2)
    wanted = node.integer("output_dtype", 0) or onnx.TensorProto.UINT8
    dtype = zero.dtype if zero else dtype_name(wanted, "a quantized tensor")
    only_if(_simple(node, x, scale) and dtype in _CODES)
    x = x.cast("float32")
    return _saturated(node, (x / _along(node, scale, x)).emit("round"), zero, dtype)


@translates("DequantizeLinear")
def dequantize(node: OnnxNode) -> Translated:
    """DequantizeLinear → cast, subtract the zero point, multiply."""
    (x, scale), zero = node.several(2), node.given(2)
    only_if(_simple(node, x, scale) and x.dtype in (*_CODES, "int32"))
    value = x.cast("float32")
    if zero and not _all_zero(zero):
        value = value - _along(node, zero.cast("float32"), value)
    return value * _along(node, scale, value)


@translates("ConvInteger")
def integer_convolution(node: OnnxNode) -> Translated:
    """ConvInteger → conv2d of bytes with sums of 32 bits; a constant zero point becomes an add."""
    return _sums(node, node.several(2), (node.given(2), node.given(3)), None)


@translates("QLinearConv")
def requantized_convolution(node: OnnxNode) -> Translated:
    """QLinearConv → conv2d, add, cast, multiply, round, add the zero point, clip, cast."""
    scales = [node.known(index).astype(np.float32).reshape(-1) for index in (1, 4, 6)]
    (x_scale, w_scale, y_scale), zero = scales, node.input(7)
    bias = node.known(8) if node.given(8) else None
    only_if(zero.dtype in _CODES)
    operands, zeros = (node.input(0), node.input(3)), (node.given(2), node.given(5))
    sums = _sums(node, operands, zeros, bias)
    scale = np.broadcast_to(x_scale * w_scale / y_scale, (sums.shape[1],)).reshape(-1, 1, 1)
    factor = node.constant(np.ascontiguousarray(scale, np.float32))
    codes = (sums.emit("cast", dtype="float32") * factor).emit("round")
    return _saturated(node, codes, zero, zero.dtype)


def _saturated(node: OnnxNode, rounded: Tensor, zero: Tensor | None, dtype: str) -> Tensor:
    """Codes of rounded numbers."""
    if zero and not _all_zero(zero):
        rounded = rounded + _along(node, zero.cast("float32"), rounded)
    limits = np.iinfo(dtype)
    kept = rounded.emit("clip", minimum=float(limits.min), maximum=float(limits.max))
    return kept.emit("cast", dtype=dtype)


def _simple(node: OnnxNode, x: Tensor, scale: Tensor) -> bool:
    """Whether there is one scale, or one per index of an axis, in single precision."""
    return (
        not node.integer("block_size", 0)
        and scale.rank <= 1
        and scale.dtype == "float32"
        and x.dtype not in ("float16", "bfloat16", "float64")
    )


def _along(node: OnnxNode, parameter: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point in a shape that broadcasts over `x`."""
    count = parameter.type.elements
    if count == 1:
        return parameter.reshape(())
    return parameter.reshape((count, *(1 for _ in range(x.rank - node.axis(x.rank, 1) - 1))))


def _all_zero(x: Tensor) -> bool:
    return x.value is not None and not np.any(x.value)


def _sums(
    node: OnnxNode,
    operands: tuple[Tensor, ...],
    zeros: tuple[Tensor | None, Tensor | None],
    bias: Array | None,
) -> Tensor:
    """Sums of (x - x_zero) (w - w_zero) in 32 bits, over two spatial axes."""
    x, w = operands
    only_if(x.rank == 4)
    window = read_window(node, x.shape[2:], w.shape[2:])
    only_if(min(window.padding) >= 0)
    zero = zeros[0].value if zeros[0] else np.zeros((), x.dtype)
    weights = _signed_weights(w, zeros[1])
    added: Any = np.zeros((), np.int64)
    if weights is None or zero is None or zero.size != 1:
        sums = convolved(node, _shifted(x, zeros[0], 0), _shifted(w, zeros[1], 4), window)
    else:
        point = int(np.asarray(zero, np.int64).reshape(-1)[0])
        if point and any(window.padding):
            top, left, bottom, right = window.padding
            x = x.padded((0, 0, top, left), (0, 0, bottom, right), float(point), "constant")
            window = replace(window, before=(0, 0), after=(0, 0), extra=(0, 0))
        sums = convolved(node, x, node.constant(weights), window)
        if point:
            added = -point * weights.astype(np.int64).sum(axis=(1, 2, 3))
    if bias is not None:
        added = added + np.asarray(bias, np.int64).reshape(-1)
    if added.ndim == 0:
        return sums
    return sums + node.constant(added.astype(np.int32).reshape(-1, 1, 1))


def _signed_weights(weights: Tensor, zero: Tensor | None) -> Array | None:
    """Constant weights less their zero point, where that fits signed bytes."""
    value: Any = weights.value
    point: Any = zero.value if zero else np.zeros((), np.int32)
    if value is None or point is None:
        return None
    column = point.astype(np.int32).reshape(-1, *(1,) * (value.ndim - 1))
    moved = value.astype(np.int32) - column
    fits = moved.min(initial=0) >= _BYTE.min and moved.max(initial=0) <= _BYTE.max
    return moved.astype(np.int8) if fits else None


def _shifted(x: Tensor, zero: Tensor | None, rank: int) -> Tensor:
    """An operand in 32 bits, less its zero point, which has `rank` axes where it is no number."""
    wide = x.cast("int32")
    if zero is None or _all_zero(zero):
        return wide
    point, count = zero.cast("int32"), zero.type.elements
    return wide - point.reshape(() if count == 1 else (count, *(1,) * (rank - 1)))
