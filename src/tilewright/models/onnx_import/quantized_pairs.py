"""Operators between DequantizeLinear and QuantizeLinear, put on the codes themselves.

before: DequantizeLinear (x, w, bias) → Conv → (Relu) → QuantizeLinear
after:  QLinearConv

before: DequantizeLinear (x, w, bias) → Gemm → (Relu) → QuantizeLinear
after:  Reshape → QLinearConv (1×1) → Reshape

before: DequantizeLinear → MaxPool → QuantizeLinear, with one scale and zero point
after:  MaxPool

before: QuantizeLinear (uint8, zero point 128) → QLinearConv
after:  QuantizeLinear (int8, zero point 0) → QLinearConv, whose border is 0 then

What is written in between rounds each sum of single precision a little differently from the sum of
integers, as in any runtime that does this. An activation goes where saturation does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tilewright.graph.network import Array, TensorType

_BYTES = ("int8", "uint8")
_INDIFFERENT = frozenset(
    {"MaxPool", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity"}
)
"""Operators that only pick or move values of their first input."""
_BIAS_TOLERANCE = 1e-5
_MIDDLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codes:
    """A quantized tensor: the tensor of codes, the tensors of its scale and zero point, and the
    node that quantizes or dequantizes it."""

    codes: str
    scale: str
    zero: str
    axis: int
    node: onnx.NodeProto


def on_codes(
    graph: onnx.GraphProto, weights: Mapping[str, Array], types: Mapping[str, TensorType]
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """The nodes of a graph after the rewrite, and the constants that came with it.

    The constants of the graph are `weights`; it stays as it is.
    """
    if all(node.op_type != "QuantizeLinear" for node in graph.node):
        return list(graph.node), {}
    rewrite = _Rewrite(graph, weights, types)
    return rewrite.rewritten(), rewrite.constants


def _read_inside(graph: onnx.GraphProto) -> set[str]:
    """Tensors that the branches and bodies inside nodes may read."""
    inner = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    own = {name for g in inner for node in g.node for name in node.input}
    returned = {value.name for g in inner for value in g.output}
    return own.union(returned, *(_read_inside(g) for g in inner))


class _Rewrite:
    def __init__(
        self,
        graph: onnx.GraphProto,
        weights: Mapping[str, Array],
        types: Mapping[str, TensorType],
    ) -> None:
        self.nodes = [deepcopy(node) for node in graph.node]
        self.weights = weights
        self.types = types
        self.outputs = {value.name for value in graph.output} | _read_inside(graph)
        self.constants: dict[str, Array] = {}
        self.producers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def rewritten(self) -> list[onnx.NodeProto]:
        """Replace what is between pairs; drop the DequantizeLinear that nobody reads then."""
        replaced: dict[str, list[onnx.NodeProto]] = {}
        gone: set[str] = set()
        for node in self.nodes:
            between = self._follow(node)
            new = self._replacement(node, between[-1]) if between else []
            if new:
                gone.update(n.output[0] for n in (node, *between[:-1]))
                replaced[between[-1].output[0]] = new
        if not replaced:
            return self.nodes
        kept: list[onnx.NodeProto] = []
        for node in self.nodes:
            output = node.output[0] if node.output else ""
            if output not in gone:
                kept.extend(replaced.get(output, [node]))
        read = {name for node in kept for name in node.input} | self.outputs
        nodes = [n for n in kept if n.op_type != "DequantizeLinear" or n.output[0] in read]
        for node in nodes:
            self._center(node, nodes)
        return nodes

    def _center(self, node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> None:
        """Write codes around 128 as signed ones where only convolutions read them."""
        written = self._written(node)
        if written is None or written.codes in self.outputs:
            return
        zero: Any = self.weights[written.zero]
        readers = [reader for reader in nodes if written.codes in reader.input]
        only = all(
            n.op_type == "QLinearConv" and list(n.input).count(written.codes) == 1 for n in readers
        )
        if only and zero.dtype == np.uint8 and int(zero.reshape(-1)[0]) == _MIDDLE:
            point = self._new("zero_point", node, np.zeros((), np.int8))
            node.input[2] = point
            node.output[0] = f"{written.codes}/signed"
            for reader in readers:
                reader.input[0], reader.input[2] = node.output[0], point

    def _follow(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The sole readers from `node` to a QuantizeLinear of bytes, with at most an activation
        between that saturation makes needless; none where it is not like that."""
        first = self._only_reader(node) if node.domain in ("", "ai.onnx") else None
        if first is None or self._written(first):
            return [first] if first is not None else []
        written, limits = self._written(self._only_reader(first)), self._limits(first)
        if written is None or limits is None:
            return []
        zero: Any = self.weights[written.zero]
        bounds, point = np.iinfo(zero.dtype), int(zero.reshape(-1)[0])
        scale = float(self.weights[written.scale].reshape(-1)[0])
        low, high = (bounds.min - point) * scale, (bounds.max - point) * scale
        return [first, written.node] if limits[0] <= low and high <= limits[1] else []

    def _only_reader(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        readers = [r for name in node.output[:1] for r in self.readers.get(name, ())]
        alone = len(readers) == 1 and node.output[0] not in self.outputs
        return readers[0] if alone else None

    def _limits(self, node: onnx.NodeProto) -> tuple[float, float] | None:
        """Between which values an activation hands its input on."""
        if node.op_type not in ("Relu", "Clip"):
            return None
        limits = [0.0 if node.op_type == "Relu" else -np.inf, np.inf]
        for index, name in enumerate(node.input[1:3]):
            value: Any = self.weights.get(name)
            if name and value is None:
                return None
            if name:
                limits[index] = float(value)
        for attribute in node.attribute:
            if attribute.name in ("min", "max"):
                limits[attribute.name == "max"] = float(attribute.f)
        return limits[0], limits[1]

    def _read(self, tensor: str) -> _Codes | None:
        """The codes of a dequantized tensor with constant scale and zero point."""
        return self._coded(self.producers.get(tensor), "DequantizeLinear")

    def _read_bytes(self, tensor: str) -> _Codes | None:
        """The same where they are bytes of one scale and zero point."""
        return self._bytes(self._read(tensor))

    def _written(self, node: onnx.NodeProto | None) -> _Codes | None:
        """The codes that a QuantizeLinear writes, where they are bytes of one scale; None for other
        nodes."""
        return self._bytes(self._coded(node, "QuantizeLinear"))

    def _coded(self, node: onnx.NodeProto | None, operator: str) -> _Codes | None:
        """The codes that a node of an operator reads or writes, None for other nodes."""
        if node is None or node.op_type != operator:
            return None
        codes = node.output[0] if operator == "QuantizeLinear" else node.input[0]
        scale, zero = node.input[1], node.input[2] if len(node.input) > 2 else ""
        given = self.weights.get(scale)
        named = {a.name: a.i for a in node.attribute}
        if given is None or given.dtype != np.float32 or given.ndim > 1 or named.get("block_size"):
            return None
        if zero and zero not in self.weights:
            return None
        return _Codes(codes=codes, scale=scale, zero=zero, axis=named.get("axis", 1), node=node)

    def _bytes(self, codes: _Codes | None) -> _Codes | None:
        """Codes, if they are bytes of one scale and zero point."""
        zero = None if codes is None else self.weights.get(codes.zero)
        if codes is None or zero is None or zero.size != 1 or zero.dtype.name not in _BYTES:
            return None
        return codes if self.weights[codes.scale].size == 1 else None

    def _replacement(self, node: onnx.NodeProto, quantize: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that do the same on codes; none where there are none."""
        if node.op_type in _INDIFFERENT:
            return self._moved(node, quantize) if len(node.output) == 1 else []
        if node.op_type not in ("Conv", "Gemm"):
            return []
        return (self._convolution if node.op_type == "Conv" else self._product)(node, quantize)

    def _operands(self, node: onnx.NodeProto, axis: int) -> tuple[_Codes, list[str]] | None:
        """Data, and [weights, their scale, their zero point, bias or nothing]."""
        data, weight = self._read_bytes(node.input[0]), self._read(node.input[1])
        if data is None or weight is None:
            return None
        values = self.weights.get(weight.codes)
        if values is None or values.dtype.name not in _BYTES:
            return None
        scale: Any = self.weights[weight.scale]
        if scale.size > 1 and weight.axis % values.ndim != axis:
            return None
        zero = weight.zero or self._new("zero_point", node, np.zeros((), values.dtype))
        operands = [weight.codes, weight.scale, zero]
        if len(node.input) > 2 and node.input[2]:
            operands.append(self._bias(node.input[2], self.weights[data.scale].reshape(-1) * scale))
        return (data, operands) if all(operands) else None

    def _bias(self, tensor: str, sums_scale: Any) -> str:
        """The codes of a bias at the scale of the sums; empty where it is not like that."""
        bias = self._read(tensor)
        codes = None if bias is None else self.weights.get(bias.codes)
        if bias is None or codes is None or codes.dtype != np.int32 or codes.ndim != 1:
            return ""
        centred = not bias.zero or not np.any(self.weights[bias.zero])
        scale = self.weights[bias.scale]
        near = centred and np.allclose(scale, sums_scale, rtol=_BIAS_TOLERANCE, atol=0)
        return bias.codes if near else ""

    def _convolution(self, node: onnx.NodeProto, quantize: onnx.NodeProto) -> list[onnx.NodeProto]:
        operands = self._operands(node, 0)
        if operands is None or self.weights[operands[1][0]].ndim != 4:
            return []
        new = _linear_convolution(node, *operands, quantize)
        new.attribute.extend(node.attribute)
        return [new]

    def _product(self, node: onnx.NodeProto, quantize: onnx.NodeProto) -> list[onnx.NodeProto]:
        named = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        transposed = bool(named.get("transB", 0))
        plain = named.get("alpha", 1.0) == named.get("beta", 1.0) == 1 and not named.get("transA")
        operands = self._operands(node, 0 if transposed else 1) if plain else None
        kind = self.types.get(node.input[0])
        if operands is None or kind is None or len(kind.shape) != 2:
            return []
        data, (weight, *rest) = operands
        matrix: Any = self.weights[weight]
        matrix = np.ascontiguousarray(matrix if transposed else matrix.T)
        filters = self._new("filters", node, matrix.reshape(*matrix.shape, 1, 1))
        rows, columns = kind.shape
        apart = self._new("apart", node, np.asarray([rows, columns, 1, 1], np.int64))
        joined = self._new("joined", node, np.asarray([rows, matrix.shape[0]], np.int64))
        image, result = f"{node.output[0]}/image", f"{node.output[0]}/result"
        inner = _linear_convolution(node, replace(data, codes=image), [filters, *rest], quantize)
        inner.output[0] = result
        return [
            helper.make_node("Reshape", [data.codes, apart], [image], name=f"{node.name}/image"),
            inner,
            helper.make_node(
                "Reshape", [result, joined], [quantize.output[0]], name=f"{node.name}/result"
            ),
        ]

    def _moved(self, node: onnx.NodeProto, quantize: onnx.NodeProto) -> list[onnx.NodeProto]:
        read, written = self._read_bytes(node.input[0]), self._written(quantize)
        if read is None or written is None or self._only_reader(node) is not quantize:
            return []
        for one, other in ((read.scale, written.scale), (read.zero, written.zero)):
            a, b = self.weights[one].reshape(-1), self.weights[other].reshape(-1)
            if a.dtype != b.dtype or not np.array_equal(a, b):
                return []
        new = deepcopy(node)
        new.input[0] = read.codes
        new.output[0] = quantize.output[0]
        return [new]

    def _new(self, role: str, node: onnx.NodeProto, array: Array) -> str:
        name = f"{node.output[0]}/{role}"
        self.constants[name] = array
        return name


def _linear_convolution(
    node: onnx.NodeProto, data: _Codes, operands: Sequence[str], quantize: onnx.NodeProto
) -> onnx.NodeProto:
    """QLinearConv in place of `node`; `operands` as `_operands` gives them."""
    inputs = [data.codes, data.scale, data.zero, *operands[:3], *quantize.input[1:3]]
    outputs = [quantize.output[0]]
    return helper.make_node("QLinearConv", [*inputs, *operands[3:]], outputs, name=node.name)
