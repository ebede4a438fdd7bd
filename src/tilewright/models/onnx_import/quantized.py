"""Integer convolutions and the steps between numbers and their 8-bit codes; and, before anything is
translated, operators between such steps put on the codes themselves.

A zero point z of the data goes into a constant: conv(x - z, w) = conv(x, w) - z Σw, with the border
filled with z. Rounding is half to even, as ONNX has it.

before: DequantizeLinear (x, w, bias) → Conv → (Relu) → QuantizeLinear
after:  QLinearConv

before: DequantizeLinear (x, w, bias) → Gemm → (Relu) → QuantizeLinear
after:  QGemm

before: DequantizeLinear (x, y) → MatMul → QuantizeLinear
after:  QLinearMatMul

before: DequantizeLinear → MaxPool → QuantizeLinear, with one scale and zero point
after:  MaxPool

before: DequantizeLinear (x, y) → Concat → QuantizeLinear
after:  Concat, behind QuantizeLinear where scales differ

before: DequantizeLinear → AveragePool → QuantizeLinear
after:  QLinearConv (depthwise, of ones)

before: QuantizeLinear (uint8, zero point 128) → QLinearConv
after:  QuantizeLinear (int8, zero point 0) → QLinearConv, whose border is 0 then

What is written in between rounds each sum of single precision a little differently from the sum of
integers, as in any runtime that does this. An activation goes where saturation does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from tilewright.core.grouping import grouped
from tilewright.graph.clean.edit import NotApplicable, found, only_if
from tilewright.graph.network import Array, TensorType
from tilewright.models.onnx_import.node import OnnxNode, Tensor, Translated, translates
from tilewright.models.onnx_import.windows import convolved, read_window
from tilewright.models.onnx_model import dtype_name, read_inside

_CODES = ("int8", "uint8", "int16", "uint16")
_SIGNED = np.iinfo(np.int8)


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
        exact = a.shape[-1] <= _EXACT_DEPTH and {a.dtype, b.dtype} <= {*_BYTES}
        wide = "float32" if exact else "int32"
        right = _shifted(b, b_zero, 1, wide)
        return _shifted(a, a_zero, 2, wide).emit("batch_matmul", right, transpose_b=False)
    weights, rest = _signed_matrix(b.value, point.astype(np.int32))
    sums = a.emit("dense", node.constant(weights))
    if a_zero and not _all_zero(a_zero):
        columns = node.constant(weights.sum(axis=0, dtype=np.int32))
        sums = sums - _spread(a_zero.cast("int32"), 2) * columns
    if not rest.any():
        return sums
    rows = _shifted(a, a_zero, 2).emit("reduce_sum", axes=(a.rank - 1,), keepdims=True)
    return sums - rows * node.constant(rest)


def _signed_matrix(matrix: Any, point: Any) -> tuple[Array, Any]:
    """A constant matrix less its zero point where that fits signed bytes, else less 128; and what
    is still to be subtracted from it."""
    middle = _MIDDLE if matrix.dtype == np.uint8 else 0
    moved = matrix.astype(np.int32) - point
    if moved.min(initial=0) >= _SIGNED.min and moved.max(initial=0) <= _SIGNED.max:
        return moved.astype(np.int8), np.zeros_like(point)
    return (matrix.astype(np.int32) - middle).astype(np.int8), point - middle


@translates("QLinearConv")
def requantized_convolution(node: OnnxNode) -> Translated:
    """QLinearConv → conv2d, add, cast, multiply, round, add the zero point, clip, cast."""
    x_scale, w_scale, y_scale = (_spread(node.input(index), 3) for index in (1, 4, 6))
    zero = node.input(7)
    bias = node.known(8) if node.given(8) else None
    only_if(zero.dtype in _CODES)
    operands, zeros = (node.input(0), node.input(3)), (node.given(2), node.given(5))
    sums = _sums(node, operands, zeros, bias)
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


_BYTES = ("int8", "uint8")
_EXACT_DEPTH = 2**24 // 255**2
"""Products of two codes less their zero points whose sum single precision holds; with it kernels
are faster than with integers of 32 bits."""
_INDIFFERENT = ("MaxPool", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity")
"""Operators that only pick or move values of their first input."""
_BIAS_TOLERANCE = 1e-5
_MIDDLE = 128
_CONTRIBUTED = "com.microsoft"
"""The domain of ONNX Runtime's own operators, one of which is the layer on codes."""


def on_codes(
    graph: onnx.GraphProto, weights: Mapping[str, Array], types: Mapping[str, TensorType]
) -> tuple[list[NodeProto], dict[str, Array]]:
    """The nodes of a graph after the rewrite, and the constants that came with it.

    The constants of the graph are `weights`; it stays as it is.
    """
    if all(node.op_type != "QuantizeLinear" for node in graph.node):
        return list(graph.node), {}
    rewrite = _Rewrite(graph, weights, types)
    return rewrite.rewritten(), rewrite.constants


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


class _Rewrite:
    """A QuantizeLinear or DequantizeLinear stands for its tensor of codes: its second and third
    inputs are their scale and zero point. Methods raise NotApplicable where nodes are others than
    they ask for."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        weights: Mapping[str, Array],
        types: Mapping[str, TensorType],
    ) -> None:
        self.nodes = [deepcopy(node) for node in graph.node]
        self.weights: Mapping[str, Any] = weights
        self.types = types
        self.outputs = {value.name for value in graph.output}
        self.outputs.update(*map(read_inside, graph.node))
        self.constants: dict[str, Array] = {}
        self.producers = {name: node for node in self.nodes for name in node.output}
        self.readers = grouped([(name, node) for node in self.nodes for name in node.input])

    def rewritten(self) -> list[NodeProto]:
        """Replace what is between pairs; drop the DequantizeLinear that nobody reads then."""
        makers = {
            "Conv": self._convolution,
            "Gemm": self._layer,
            "MatMul": self._product,
            "Concat": self._joined,
            "AveragePool": self._averaged,
        }
        makers |= dict.fromkeys(_INDIFFERENT, self._moved)
        replaced: dict[str, list[NodeProto]] = {}
        gone: set[str] = set()
        for node in self.nodes:
            with suppress(NotApplicable):
                make = found(makers.get(node.op_type))
                between = self._follow(node)
                replaced[between[-1].output[0]] = make(node, between[-1])
                gone.update(n.output[0] for n in (node, *between[:-1]))
        if not replaced:
            return self.nodes
        kept: list[NodeProto] = []
        for node in self.nodes:
            output = node.output[0] if node.output else ""
            if output not in gone:
                kept.extend(replaced.get(output, [node]))
        read = {name for node in kept for name in node.input} | self.outputs
        nodes = [n for n in kept if n.op_type != "DequantizeLinear" or n.output[0] in read]
        for node in nodes:
            self._center(node, nodes)
        return nodes

    def _center(self, node: NodeProto, nodes: list[NodeProto]) -> None:
        """Write codes around 128 as signed ones where only convolutions read them."""
        if not self._written(node) or node.output[0] in self.outputs:
            return
        codes, zero = node.output[0], self.weights[node.input[2]]
        readers = [reader for reader in nodes if codes in reader.input]
        only = all(n.op_type == "QLinearConv" and [*n.input].count(codes) == 1 for n in readers)
        if only and zero.dtype == np.uint8 and zero.item() == _MIDDLE:
            node.input[2] = self._new("zero_point", node, np.zeros((), np.int8))
            node.output[0] = f"{codes}/signed"
            for reader in readers:
                reader.input[0], reader.input[2] = node.output[0], node.input[2]

    def _follow(self, node: NodeProto) -> list[NodeProto]:
        """The sole readers from `node` to a QuantizeLinear of bytes, with at most an activation
        between that saturation makes needless."""
        only_if(node.domain in ("", "ai.onnx"))
        first = found(self._only_reader(node))
        if self._written(first):
            return [first]
        last = found(self._written(self._only_reader(first)))
        limits = self._limits(first)
        scale, zero = (self.weights[name].reshape(-1)[0] for name in last.input[1:3])
        bounds = np.iinfo(zero.dtype)
        low, high = ((bound - int(zero)) * float(scale) for bound in (bounds.min, bounds.max))
        only_if(limits[0] <= low and high <= limits[1])
        return [first, last]

    def _only_reader(self, node: NodeProto) -> NodeProto | None:
        readers = [r for name in node.output[:1] for r in self.readers.get(name, ())]
        alone = len(readers) == 1 and node.output[0] not in self.outputs
        return readers[0] if alone else None

    def _limits(self, node: NodeProto) -> tuple[float, float]:
        """Between which values an activation hands its input on."""
        pairs = zip(("min", "max"), node.input[1:3], strict=False)
        given: dict[str, Any] = {name: self.weights.get(limit) for name, limit in pairs if limit}
        named = _attributes(node) | given
        only_if(node.op_type in ("Relu", "Clip"))
        only_if(all(value is not None for value in named.values()))
        lowest = 0.0 if node.op_type == "Relu" else -np.inf
        return float(named.get("min", lowest)), float(named.get("max", np.inf))

    def _coded(self, node: NodeProto | None, operator: str) -> NodeProto | None:
        """A node, if it is that operator with a constant scale and zero point."""
        if node is None or node.op_type != operator:
            return None
        scale, zero = self.weights.get(node.input[1]), "".join(node.input[2:3])
        plain = scale is not None and scale.dtype == np.float32 and scale.ndim <= 1
        whole = plain and not _attributes(node).get("block_size")
        return node if whole and (not zero or zero in self.weights) else None

    def _bytes(self, node: NodeProto | None) -> NodeProto | None:
        """Codes, if they are bytes of one scale and zero point."""
        zero = None if node is None else self.weights.get("".join(node.input[2:3]))
        if node is None or zero is None or zero.size != 1 or zero.dtype.name not in _BYTES:
            return None
        return node if self.weights[node.input[1]].size == 1 else None

    def _read(self, tensor: str) -> NodeProto | None:
        """What dequantizes a tensor."""
        return self._coded(self.producers.get(tensor), "DequantizeLinear")

    def _written(self, node: NodeProto | None) -> NodeProto | None:
        """A node, if it quantizes to bytes of one scale."""
        return self._bytes(self._coded(node, "QuantizeLinear"))

    def _operands(self, node: NodeProto, axis: int) -> list[str]:
        """Data and weights, each with scale and zero point, and the bias if there is one."""
        data = found(self._bytes(self._read(node.input[0])))
        weight = found(self._read(node.input[1]))
        values: Any = found(self.weights.get(weight.input[0]))
        scale = self.weights[weight.input[1]]
        only_if(values.dtype.name in _BYTES)
        only_if(scale.size == 1 or _attributes(weight).get("axis", 1) % values.ndim == axis)
        zero = "".join(weight.input[2:3])
        zero = zero or self._new("zero_point", node, np.zeros((), str(values.dtype)))
        operands = [*data.input[:3], *weight.input[:2], zero]
        if len(node.input) > 2 and node.input[2]:
            sums_scale = self.weights[data.input[1]].reshape(-1) * scale
            operands.append(self._bias(node.input[2], sums_scale))
        return operands

    def _bias(self, tensor: str, sums_scale: Any) -> str:
        """The codes of a bias at the scale of the sums."""
        bias = found(self._read(tensor))
        codes = found(self.weights.get(bias.input[0]))
        only_if(codes.dtype == np.int32 and codes.ndim == 1)
        centred = not any(self.weights[zero].any() for zero in bias.input[2:3] if zero)
        scale = self.weights[bias.input[1]]
        only_if(centred and np.allclose(scale, sums_scale, rtol=_BIAS_TOLERANCE, atol=0))
        return bias.input[0]

    def _convolution(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        operands = self._operands(node, 0)
        only_if(self.weights[operands[3]].ndim == 4)
        new = _linear_convolution(node, operands, quantize)
        new.attribute.extend(node.attribute)
        return [new]

    def _layer(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        """Gemm with constant weights."""
        named = _attributes(node)
        plain = named.get("alpha", 1.0) == named.get("beta", 1.0) == 1 and not named.get("transA")
        only_if(plain)
        axis = 0 if named.get("transB") else 1
        operands = self._operands(node, axis)
        inputs = [*operands[:6], *(operands[6:] or [""]), *quantize.input[1:3]]
        new = helper.make_node(
            "QGemm", inputs, [quantize.output[0]], name=node.name, domain=_CONTRIBUTED
        )
        new.attribute.append(helper.make_attribute("transB", 1 - axis))
        return [new]

    def _product(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        """MatMul of two tensors of codes, or of one and constant weights."""
        a, b = (found(self._read(name)) for name in node.input)
        known = self.weights.get(b.input[0])
        if known is None:
            found(self._bytes(a))
            operands = [*a.input[:3], *found(self._bytes(b)).input[:3]]
        else:
            only_if(known.ndim == 2)
            operands = self._operands(node, 1)
        inputs = [*operands, *quantize.input[1:3]]
        return [helper.make_node("QLinearMatMul", inputs, [quantize.output[0]], name=node.name)]

    def _joined(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        """Concat of codes; those of another scale or zero point are quantized anew before."""
        new, parameters = deepcopy(node), quantize.input[1:3]
        before: list[NodeProto] = []
        for index, name in enumerate(node.input):
            read = found(self._bytes(self._read(name)))
            if self._alike(read, quantize):
                new.input[index] = read.input[0]
                continue
            codes = new.input[index] = f"{node.output[0]}/part{index}"
            before.append(
                helper.make_node("QuantizeLinear", [name, *parameters], [codes], name=codes)
            )
        new.output[0] = quantize.output[0]
        return [*before, new]

    def _averaged(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        """AveragePool as a depthwise convolution, all of whose weights are one over their number.
        Not where a border is left out of the count."""
        named, kind = _attributes(node), found(self.types.get(node.input[0]))
        only_if(len(kind.shape) == 4 and not named.get("ceil_mode"))
        inside = named.get("count_include_pad") or not any(named.get("pads", ()))
        only_if(bool(inside) and named.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"))
        kernel, channels = tuple(named["kernel_shape"]), kind.shape[1]
        ones = np.ones((channels, 1, *kernel), np.int8)
        scale = np.asarray(1 / np.prod(kernel), np.float32)
        weights = [
            self._new(role, node, array)
            for role, array in (("w", ones), ("scale", scale), ("zero", np.zeros((), np.int8)))
        ]
        read = found(self._bytes(self._read(node.input[0])))
        new = _linear_convolution(node, [*read.input[:3], *weights], quantize)
        kept = ("kernel_shape", "strides", "pads", "dilations", "auto_pad")
        new.attribute.extend(each for each in node.attribute if each.name in kept)
        new.attribute.append(helper.make_attribute("group", channels))
        return [new]

    def _alike(self, read: NodeProto, quantize: NodeProto) -> bool:
        """Whether codes that are read and written have one scale and zero point."""
        pairs = [
            (self.weights[one], self.weights[other])
            for one, other in zip(read.input[1:3], quantize.input[1:3], strict=True)
        ]
        return all(a.dtype == b.dtype and a.item() == b.item() for a, b in pairs)

    def _moved(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        read = found(self._bytes(self._read(node.input[0])))
        only_if(len(node.output) == 1 and self._only_reader(node) is quantize)
        only_if(self._alike(read, quantize))
        new = deepcopy(node)
        new.input[0] = read.input[0]
        new.output[0] = quantize.output[0]
        return [new]

    def _new(self, role: str, node: NodeProto, array: Array) -> str:
        name = f"{node.output[0]}/{role}"
        self.constants[name] = array
        return name


def _linear_convolution(node: NodeProto, operands: list[str], quantize: NodeProto) -> NodeProto:
    """QLinearConv in place of `node`; `operands` as `_operands` gives them."""
    inputs = [*operands[:6], *quantize.input[1:3], *operands[6:]]
    return helper.make_node("QLinearConv", inputs, [quantize.output[0]], name=node.name)
