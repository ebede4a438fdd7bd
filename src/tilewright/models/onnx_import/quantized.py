"""Convolutions and products of 8-bit codes, and the steps between numbers and their codes.

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
from tilewright.models.onnx_import.pairs import OURS
from tilewright.models.onnx_import.windows import (
    average,
    convolved,
    read_window,
    transposed_images,
    transposed_padding,
)
from tilewright.models.onnx_model import dtype_name

_CODES = ("int8", "uint8", "int16", "uint16")
_BYTES = ("int8", "uint8")
_SIGNED = np.iinfo(np.int8)
_MIDDLE = 128
_EXACT_DEPTH = 2**24 // 255
"""Codes whose sum single precision holds; with it kernels are faster than with integers."""


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


@translates("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul")
def requantized_pair(node: OnnxNode) -> Translated:
    """QLinearAdd, QLinearMul → the operator on what the codes stand for, quantized."""
    a, b = (_meaning(node, first) for first in (0, 3))
    value = a + b if node.operator == "QLinearAdd" else a * b
    return _coded(node, value, 6)


@translates("com.microsoft.QLinearConcat")
def requantized_parts(node: OnnxNode) -> Translated:
    """QLinearConcat → concat of codes, which are quantized anew where scales or zero points
    differ."""
    parts: list[Tensor] = []
    for first in range(2, len(node.inputs), 3):
        codes, *given = (node.input(first + place) for place in range(3))
        wanted = node.several(2)
        pairs = [(a.value, b.value) for a, b in zip(given, wanted, strict=True)]
        alike = all(a is not None and b is not None and np.array_equal(a, b) for a, b in pairs)
        parts.append(codes if alike else _coded(node, _meaning(node, first), 0))
    axis = node.axis(parts[0].rank, 0)
    return parts[0].emit("concat", *parts[1:], axis=axis) if parts[1:] else parts[0]


@translates("com.microsoft.QLinearAveragePool")
def requantized_average(node: OnnxNode) -> Translated:
    """QLinearAveragePool → avg_pool2d of what the codes stand for, quantized."""
    x = _meaning(node, 0)
    only_if(x.rank == 4 and not node.integer("channels_last", 0))
    window = read_window(node, x.shape[2:], node.integers("kernel_shape"))
    only_if(min(window.padding) >= 0)
    return _coded(node, average(node, x, window), 3)


@translates("com.microsoft.QLinearGlobalAveragePool")
def requantized_mean(node: OnnxNode) -> Translated:
    """QLinearGlobalAveragePool → reduce_mean of what the codes stand for, quantized."""
    x = _meaning(node, 0)
    axes = range(1, x.rank - 1) if node.integer("channels_last", 0) else range(2, x.rank)
    return _coded(node, x.emit("reduce_mean", axes=tuple(axes), keepdims=True), 3)


def _meaning(node: OnnxNode, first: int) -> Tensor:
    """What codes stand for: input number `first`, with its scale and zero point behind it."""
    codes, scale = node.input(first), node.input(first + 1)
    only_if(scale.type.elements == 1 and scale.dtype == "float32" and codes.dtype in _CODES)
    zero, value = node.given(first + 2), codes.cast("float32")
    if zero and not _all_zero(zero):
        value = value - zero.cast("float32").reshape(())
    return value * scale.reshape(())


def _coded(node: OnnxNode, value: Tensor, first: int) -> Tensor:
    """Codes of numbers, by the scale in input number `first` and the zero point behind it."""
    scale, zero = node.input(first), node.given(first + 1)
    only_if(scale.type.elements == 1)
    dtype = zero.dtype if zero else "uint8"
    return _saturated(node, (value / scale.reshape(())).emit("round"), zero, dtype)


@translates("ConvInteger")
def integer_convolution(node: OnnxNode) -> Translated:
    """ConvInteger → conv2d of bytes with sums of 32 bits; a constant zero point becomes an add."""
    return _sums(node, node.several(2), (node.given(2), node.given(3)), None)


@translates("MatMulInteger")
def integer_product(node: OnnxNode) -> Translated:
    """MatMulInteger → dense or batch_matmul of bytes with sums of 32 bits, and what their zero
    points add to those."""
    return _products(node, node.several(2), (node.given(2), node.given(3))).cast("int32")


@translates("QLinearMatMul")
def requantized_product(node: OnnxNode) -> Translated:
    """QLinearMatMul → sums of 32 bits, cast, multiply, round, add the zero point, clip, cast."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.several(8)
    only_if(zero.dtype in _CODES and zero.type.elements == scale.type.elements == 1)
    only_if(max(a_scale.rank, b_scale.rank) <= 1)
    sums = _products(node, (a, b), (a_zero, b_zero))
    factor = _spread(a_scale.cast("float32"), 2) * _spread(b_scale.cast("float32"), 1)
    factor = factor / _spread(scale.cast("float32"), 1)
    return _saturated(node, (sums.cast("float32") * factor).emit("round"), zero, zero.dtype)


@translates("com.microsoft.QGemm")
def requantized_layer(node: OnnxNode) -> Translated:
    """QGemm → sums of 32 bits, add (bias), cast, multiply; then as QLinearMatMul where the result
    has a scale."""
    (a, a_scale, a_zero, b, b_scale, b_zero), bias = node.several(6), node.given(6)
    only_if(node.number("alpha", 1.0) == 1)
    only_if(max(a_scale.type.elements, a_zero.type.elements) == 1 and b_scale.rank <= 1)
    if node.integer("transA", 0):
        a = a.transpose((1, 0))
    if node.integer("transB", 0):
        b = b.transpose((1, 0))
    sums = _products(node, (a, b), (a_zero, b_zero)).cast("int32")
    if bias is not None:
        sums = sums + bias.plain(sums)
    factor = _spread(a_scale, 1) * _spread(b_scale, 1)
    if node.given(7) is None:
        return sums.cast("float32") * factor
    scale, zero = node.input(7), node.input(8)
    only_if(zero.dtype in _CODES and zero.type.elements == scale.type.elements == 1)
    codes = (sums.cast("float32") * (factor / _spread(scale, 1))).emit("round")
    return _saturated(node, codes, zero, zero.dtype)


@translates("DynamicQuantizeLinear")
def quantize_by_range(node: OnnxNode) -> Translated:
    """DynamicQuantizeLinear → the range of the data and of zero, the scale and zero point that
    spread it over a byte, and what QuantizeLinear is with them."""
    x = node.input(0)
    only_if(x.dtype == "float32" and x.rank > 0)
    axes, zero = tuple(range(x.rank)), x.filled(0)
    low, high = (
        x.emit(f"reduce_{name}", axes=axes, keepdims=False).emit(f"{name}imum", zero)
        for name in ("min", "max")
    )
    scale = (high - low) / x.filled(255)
    # data of zeros alone has no range: its scale is 1
    scale = scale.emit("equal", 0).emit("where", x.filled(1), scale)
    point = (zero - low) / scale
    point = point.emit("clip", minimum=0.0, maximum=255.0).emit("round")
    codes = (x / scale).emit("round") + point
    codes = codes.emit("clip", minimum=0.0, maximum=255.0).cast("uint8")
    return codes, scale, point.cast("uint8")


def _products(
    node: OnnxNode, operands: tuple[Tensor, ...], zeros: tuple[Tensor | None, Tensor | None]
) -> Tensor:
    """Sums of (a - a_zero) (b - b_zero), which are whole numbers, in a type of 32 bits."""
    (a, b), (a_zero, b_zero) = operands, zeros
    only_if(min(a.rank, b.rank) >= 2 and all(zero is None or zero.rank <= 1 for zero in zeros))
    point: Any = b_zero.value if b_zero else np.zeros((), np.int32)
    if b.rank > 2 or b.value is None or point is None or a.dtype not in _BYTES:
        if {a.dtype, b.dtype} <= {*_BYTES}:
            return _computed_products((a, b), zeros)
        right = _shifted(b, b_zero, 1)
        return _shifted(a, a_zero, 2).emit("batch_matmul", right, transpose_b=False)
    weights, rest = _signed_matrix(b.value, point.astype(np.int32))
    sums = a.emit("dense", node.constant(weights))
    if a_zero and not _all_zero(a_zero):
        columns = node.constant(weights.sum(axis=0, dtype=np.int32))
        sums = sums - _spread(a_zero.cast("int32"), 2) * columns
    if not rest.any():
        return sums
    rows = _shifted(a, a_zero, 2).emit("reduce_sum", axes=(a.rank - 1,), keepdims=True)
    return sums - rows * node.constant(rest)


def _computed_products(
    operands: tuple[Tensor, Tensor], zeros: tuple[Tensor | None, Tensor | None]
) -> Tensor:
    """Sums of (a - a_zero) (b - b_zero) of bytes that both come with the data:

    Σ a s - a_zero Σ s - rest Σ (a - a_zero), where s is b and rest is b_zero, both less 128 if b
    is unsigned.
    """
    (a, b), (a_zero, b_zero) = operands, zeros
    depth, middle = a.shape[-1], _MIDDLE if b.dtype == "uint8" else 0
    signed = (b.cast("int32") - b.filled(middle).cast("int32")).cast("int8") if middle else b
    sums = a.emit("batch_matmul", signed, transpose_b=False)
    if a_zero and not _all_zero(a_zero):
        columns = _added_up(b, b.rank - 2)
        columns = columns - columns.filled(depth * middle) if middle else columns
        sums = sums - _spread(a_zero.cast("int32"), 2) * columns
    rest = (b_zero or b.filled(0)).cast("int32")
    rest = rest - rest.filled(middle) if middle else rest
    if _all_zero(rest):
        return sums
    rows = _added_up(a, a.rank - 1)
    if a_zero and not _all_zero(a_zero):
        rows = rows - _spread(a_zero.cast("int32"), 2) * rows.filled(depth)
    return sums - rows * _spread(rest, 1)


def _added_up(codes: Tensor, axis: int) -> Tensor:
    """Sums along an axis, in 32 bits."""
    wide = codes.cast("float32" if codes.shape[axis] <= _EXACT_DEPTH else "int32")
    return wide.emit("reduce_sum", axes=(axis,), keepdims=True).cast("int32")


def _signed_matrix(matrix: Any, point: Any) -> tuple[Array, Any]:
    """A constant matrix less its zero point where that fits signed bytes, else less 128; and what
    is still to be subtracted from it."""
    middle = _MIDDLE if matrix.dtype == np.uint8 else 0
    moved = matrix.astype(np.int32) - point
    if moved.min(initial=0) >= _SIGNED.min and moved.max(initial=0) <= _SIGNED.max:
        return moved.astype(np.int8), np.zeros_like(point)
    return (matrix.astype(np.int32) - middle).astype(np.int8), point - middle


@translates("QLinearConv", f"{OURS}.QLinearConvTranspose")
def requantized_convolution(node: OnnxNode) -> Translated:
    """QLinearConv → conv2d, add, cast, multiply, round, add the zero point, clip, cast; of a
    transposed one conv2d_transpose, with scales for the channels of one group."""
    x_scale, w_scale, y_scale = (_spread(node.input(index), 3) for index in (1, 4, 6))
    zero = node.input(7)
    bias = node.known(8) if node.given(8) else None
    only_if(zero.dtype in _CODES)
    operands, zeros = (node.input(0), node.input(3)), (node.given(2), node.given(5))
    transposed, groups = node.operator != "QLinearConv", node.integer("group", 1)
    sums = (_transposed_sums if transposed else _sums)(node, operands, zeros, bias)
    if transposed and groups > 1 and w_scale.type.elements > 1:
        w_scale = w_scale.emit("concat", *[w_scale] * (groups - 1), axis=0)
    factor = (x_scale * w_scale / y_scale).emit("expand", shape=(sums.shape[1], 1, 1))
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
    return _with_constant(node, sums, added, bias)


def _transposed_sums(
    node: OnnxNode,
    operands: tuple[Tensor, ...],
    zeros: tuple[Tensor | None, Tensor | None],
    bias: Array | None,
) -> Tensor:
    """The same sums transposed. What x_zero takes from them is a constant image, since at the
    border fewer products meet."""
    x, w = operands
    only_if(x.rank == w.rank == 4)
    extra = node.integers("output_padding") or (0, 0)
    padding = transposed_padding(node, x.shape[2:], w.shape[2:], extra)
    zero = zeros[0].value if zeros[0] else np.zeros((), x.dtype)
    weights = _signed_weights(w, zeros[1], 1)
    if weights is None or zero is None or zero.size != 1:
        wide = (_shifted(x, zeros[0], 0), _shifted(w, zeros[1], 3))
        return _with_constant(node, transposed_images(node, *wide, padding), np.zeros(()), bias)
    sums = transposed_images(node, x, node.constant(weights), padding)
    point = int(np.asarray(zero, np.int64).reshape(-1)[0])
    if point:
        groups = node.integer("group", 1)
        apart: Any = weights.astype(np.int32).reshape(groups, -1, *weights.shape[1:])
        ones = node.constant(np.full((1, groups, *x.shape[2:]), point, np.int32))
        added_up = node.constant(apart.sum(axis=1, dtype=np.int32))
        sums = sums - transposed_images(node, ones, added_up, padding)
    return _with_constant(node, sums, np.zeros(()), bias)


def _with_constant(node: OnnxNode, sums: Tensor, added: Any, bias: Array | None) -> Tensor:
    """Sums, and what is added to each channel of them."""
    if bias is not None:
        added = added + np.asarray(bias, np.int64).reshape(-1)
    if added.ndim == 0:
        return sums
    return sums + node.constant(added.astype(np.int32).reshape(-1, 1, 1))


def _signed_weights(weights: Tensor, zero: Tensor | None, axis: int = 0) -> Array | None:
    """Constant weights less their zero point, a number or one for each place of an axis, where that
    fits signed bytes."""
    value: Any = weights.value
    point: Any = zero.value if zero else np.zeros((), np.int32)
    if value is None or point is None:
        return None
    column = point.astype(np.int32).reshape(-1, *(1,) * (value.ndim - 1 - axis))
    moved = value.astype(np.int32) - column
    fits = moved.min(initial=0) >= _SIGNED.min and moved.max(initial=0) <= _SIGNED.max
    return moved.astype(np.int8) if fits else None


def _shifted(x: Tensor, zero: Tensor | None, rank: int, dtype: str = "int32") -> Tensor:
    """An operand in a wider type, less its zero point, which has `rank` axes where it is no
    number."""
    wide = x.cast(dtype)
    return wide if zero is None or _all_zero(zero) else wide - _spread(zero.cast(dtype), rank)


def _spread(x: Tensor, rank: int) -> Tensor:
    """A number as it is, numbers along the first of so many axes."""
    count = x.type.elements
    return x.reshape(() if count == 1 else (count, *(1,) * (rank - 1)))
