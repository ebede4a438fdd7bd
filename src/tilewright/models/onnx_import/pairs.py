"""Operators between DequantizeLinear and QuantizeLinear put on the codes themselves, before
anything is translated.

before: DequantizeLinear (x, w, bias) → Conv → (Relu) → QuantizeLinear
after:  QLinearConv

before: DequantizeLinear (x, w, bias) → ConvTranspose → (Relu) → QuantizeLinear
after:  QLinearConvTranspose (of ours: ONNX has none)

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
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from tilewright.core.grouping import grouped
from tilewright.graph.clean.edit import NotApplicable, found, only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.graph.network import Array, TensorType
from tilewright.models.onnx_model import read_inside

_BYTES = ("int8", "uint8")
_INDIFFERENT = ("MaxPool", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity")
"""Operators that only pick or move values of their first input."""
_BIAS_TOLERANCE = 1e-5
_LARGEST_BIAS = 1 << 30
"""Half of what 32 bits hold; the other half is for products."""
_MIDDLE = 128
_CONTRIBUTED = "com.microsoft"
"""The domain of ONNX Runtime's own operators, one of which is the layer on codes."""
OURS = "tilewright"
"""The domain of an operator that nobody else has, which no file holds."""
_LINEAR = ("QLinearConv", "QLinearConvTranspose")


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
            "ConvTranspose": self._transposed,
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
        only = all(n.op_type in _LINEAR and [*n.input].count(codes) == 1 for n in readers)
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
            groups = _attributes(node).get("group", 1) if scale.size > 1 and axis else 1
            sums_scale = np.tile(self.weights[data.input[1]].reshape(-1) * scale, groups)
            operands.append(self._bias(node, sums_scale))
        return operands

    def _bias(self, node: NodeProto, sums_scale: Any) -> str:
        """The codes of a bias at the scale of the sums, to which one in single precision is
        rounded."""
        tensor = node.input[2]
        single = self.weights.get(tensor)
        if single is not None:
            only_if(single.dtype == np.float32 and single.ndim == 1)
            only_if(sums_scale.size in (1, single.size) and bool(np.all(sums_scale > 0)))
            rounded = np.rint(single.astype(np.float64) / sums_scale)
            only_if(bool(np.all(np.abs(rounded) <= _LARGEST_BIAS)))
            return self._new("bias", node, rounded.astype(np.int32))
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

    def _transposed(self, node: NodeProto, quantize: NodeProto) -> list[NodeProto]:
        operands = self._operands(node, 1)
        only_if(self.weights[operands[3]].ndim == 4)
        # what other zero points take from the sums is a constant as large as these
        small = self.types[node.output[0]].bytes <= FOLDED_BYTES
        only_if(self.weights[operands[2]].item() in (0, _MIDDLE) or small)
        new = _linear_convolution(node, operands, quantize, "QLinearConvTranspose", OURS)
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


def _linear_convolution(
    node: NodeProto,
    operands: list[str],
    quantize: NodeProto,
    operator: str = "QLinearConv",
    domain: str = "",
) -> NodeProto:
    """QLinearConv, or what it is called, in place of `node`; `operands` as `_operands` gives
    them."""
    inputs, outputs = [*operands[:6], *quantize.input[1:3], *operands[6:]], [quantize.output[0]]
    return helper.make_node(operator, inputs, outputs, name=node.name, domain=domain)
