"""Nodes outside the vocabulary: carried along as a small ONNX model of one node, which says what of
its inputs holds indices."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.errors import ModelError, NotCompilable, quoted
from tilewright.graph.inputs import IndexRange, IndexUse, indices_text
from tilewright.graph.network import TensorType
from tilewright.graph.operators import results_text
from tilewright.models.onnx_import.node import OnnxNode, Tensor, indexed_shape, require_indices
from tilewright.models.onnx_model import read_inside, static_type

EMBEDDED_ELEMENTS = 64
"""Constants of at most so many elements lie inside a model that is carried along."""
_NEVER_EMBEDDED = ("Scatter", "ScatterElements")
"""TVM does not compile these where an operand is a constant of the model."""
_HALF, _SINGLE = "bfloat16", "float32"
_NAMES_OF_TYPES = ("to", "dtype", "output_dtype")
"""Attributes that say of which type a result is."""
_SORTED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")

Shapes = Sequence[tuple[int, ...]]
Rule = Callable[[OnnxNode, Shapes], Sequence[IndexUse]]
"""Node and the shapes of its inputs (empty where one is left out), then of its results."""


def opaque(
    node: OnnxNode, opsets: Sequence[onnx.OperatorSetIdProto], known: Mapping[str, TensorType]
) -> tuple[Tensor | None, ...]:
    """Emit an opaque node; the tensors of all outputs, None where one is not asked for.

    Integer constants and small ones lie inside most models, for importers want to see them; tensors
    inside are called i0, i1, … and o0, o1, …, so equal nodes are equal tasks.
    What computes in bfloat16 does so in single precision between casts, for TVM cannot do it all.
    Raises ModelError when a result has no static shape, or TVM has no kernel for the types.
    """
    if any(tensor and tensor.items is not None for tensor in node.inputs):
        raise NotCompilable(
            f"node {quoted(node.name)}: what operator {quoted(node.full_name)} makes of a sequence "
            "depends on the data"
        )
    _refuse_types(node)
    half = any(tensor and tensor.dtype == _HALF for tensor in node.inputs)
    if half and not any(name in node.attributes for name in _NAMES_OF_TYPES):
        wide = replace(node, inputs=tuple(map(_widened, node.inputs)))
        halves = {name for name, kind in known.items() if kind.dtype == _HALF}
        kinds = {**known, **{name: TensorType(known[name].shape, _SINGLE) for name in halves}}
        results = opaque(wide, opsets, kinds)
        return tuple(
            result.cast(_HALF) if result and name in halves and result.dtype == _SINGLE else result
            for name, result in zip(node.proto.output, results, strict=True)
        )
    model, inputs = _single_node_model(node, opsets)
    if not inputs:
        raise ModelError(
            f"node {quoted(node.name)}: the result of operator {quoted(node.full_name)} depends "
            "on no input of the network, and could not be computed in advance",
            hint="Random numbers are not supported. If the result is constant, put it into the "
            "model.",
        )
    kinds = _result_types(node, model, known)
    outputs = [index for index, name in enumerate(node.proto.output) if name]
    model.graph.output.extend(map(value_info, (f"o{index}" for index in outputs), kinds))
    uses = _checked_uses(node, inputs, kinds)
    results = node.builder.emit_several(
        "opaque",
        inputs,
        kinds,
        **({"indices": indices_text(uses)} if uses else {}),
        model=b64encode(model.SerializeToString(deterministic=True)).decode("ascii"),
        results=results_text(kinds),
    )
    found = dict(zip(outputs, results, strict=True))
    return tuple(found.get(index) for index in range(len(node.proto.output)))


def _widened(tensor: Tensor | None) -> Tensor | None:
    """A tensor in single precision if it has half of it; others, and inputs left out, as is."""
    return tensor.cast(_SINGLE) if tensor and tensor.dtype == _HALF else tensor


def _refuse_types(node: OnnxNode) -> None:
    """TVM says only when the kernel runs that it cannot sort some types."""
    first = node.given(0)
    if node.operator == "TopK" and first and first.dtype not in _SORTED:
        raise NotCompilable(
            f"node {quoted(node.name)}: operator {quoted(node.full_name)} of {first.dtype} "
            f"is not supported",
            hint="Supported: " + ", ".join(_SORTED),
        )


def _single_node_model(
    node: OnnxNode, opsets: Sequence[onnx.OperatorSetIdProto]
) -> tuple[onnx.ModelProto, list[Tensor]]:
    _refuse_captures(node)
    proto = onnx.NodeProto.FromString(node.proto.SerializeToString())
    proto.name, proto.doc_string = "", ""
    del proto.metadata_props[:]
    graph = onnx.GraphProto(name="opaque")
    inputs: list[Tensor] = []
    labels: dict[Tensor, str] = {}
    for index, tensor in enumerate(node.inputs):
        if tensor is None:
            continue
        known = tensor in labels
        label = proto.input[index] = labels.setdefault(tensor, f"i{index}")
        if known:
            continue
        array = tensor.value if node.operator not in _NEVER_EMBEDDED else None
        if array is not None and (array.size <= EMBEDDED_ELEMENTS or array.dtype.kind in "iub"):
            graph.initializer.append(numpy_helper.from_array(array, label))
        else:
            graph.input.append(value_info(label, tensor.type))
            inputs.append(tensor)
    del proto.output[:]
    proto.output.extend(f"o{i}" if name else "" for i, name in enumerate(node.proto.output))
    graph.node.append(proto)
    model = onnx.ModelProto(ir_version=8, graph=graph)
    domain = node.proto.domain or "ai.onnx"
    used = [entry for entry in opsets if (entry.domain or "ai.onnx") == domain]
    model.opset_import.extend(used or opsets)
    return model, inputs


def value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    """An input or output of an ONNX model."""
    dtype = np.dtype(kind.dtype)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), kind.shape)


def _result_types(
    node: OnnxNode, model: onnx.ModelProto, known: Mapping[str, TensorType]
) -> tuple[TensorType, ...]:
    """The static types of the outputs that are asked for."""
    wanted = [(f"o{index}", name) for index, name in enumerate(node.proto.output) if name]
    found: dict[str, TensorType | None] = {}
    if any(name not in known for _, name in wanted):
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
        found = {value.name: static_type(value) for value in inferred}
    kinds: list[TensorType] = []
    for label, name in wanted:
        kind = known.get(name) or found.get(label)
        if kind is None:
            raise NotCompilable(
                f"node {quoted(node.name)}: operator {quoted(node.full_name)} is not known here "
                f"and the shape of its result {quoted(name)} depends on the data",
                hint="Cut the network before this node, or export it with static shapes.",
            )
        kinds.append(kind)
    return tuple(kinds)


def _refuse_captures(node: OnnxNode) -> None:
    """A subgraph that reads tensors around it cannot stand alone."""
    for outside in read_inside(node.proto):
        raise NotCompilable(
            f"node {quoted(node.name)}: the body of {quoted(node.operator)} reads "
            f"{quoted(outside)} from outside, which is not supported",
            hint="Export the network with its conditions and loops decided, as tracing does.",
        )


def _along_axis(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """One index per element, along one axis of the first input."""
    shape = indexed_shape(node, shapes[0])
    return (IndexUse(port=1, ranges=(IndexRange.of_axis(shape[node.axis(len(shape), 0)]),)),)


def _positions(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """The last axis of the indices holds a position in the first input, behind its batch axes."""
    batch, length = node.integer("batch_dims", 0), indexed_shape(node, shapes[1])[-1]
    extents = shapes[0][batch : batch + length]
    if len(extents) < length or not length:
        raise ModelError(
            f"node {quoted(node.name)} has indices of {length} numbers for a tensor of shape "
            f"{[*shapes[0]]} and {batch} batch axes"
        )
    return (IndexUse(port=1, ranges=tuple(IndexRange.of_axis(n) for n in extents)),)


def _counted(port: int, extent: int) -> IndexUse:
    """Indices that do not count from the end."""
    return IndexUse(port=port, ranges=(IndexRange(lowest=0, highest=extent - 1),))


def _embedded(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Words, segments and positions, each with a table of its own."""
    return [
        _counted(port, indexed_shape(node, shapes[table])[0])
        for port, table in ((0, 2), (1, 4), (8, 3))
        if node.given(port) and node.given(table)
    ]


_RULES: dict[str, Rule] = {
    "GatherElements": _along_axis,
    "ScatterElements": _along_axis,
    "Scatter": _along_axis,
    "GatherND": _positions,
    "ScatterND": _positions,
    # images of a batch
    "RoiAlign": lambda node, shapes: (_counted(2, indexed_shape(node, shapes[0])[0]),),
    # positions in the flattened result, the only one
    "MaxUnpool": lambda _, shapes: (_counted(1, prod(shapes[-1])),),
    "EmbedLayerNormalization": _embedded,
}

_DOMAINS = ("", "ai.onnx", "com.microsoft")


def _checked_uses(
    node: OnnxNode, inputs: Sequence[Tensor], results: Sequence[TensorType]
) -> tuple[IndexUse, ...]:
    """What holds indices among the `inputs` that remain of a node's.

    Raises ModelError where one that is known is out of range.
    """
    rule = _RULES.get(node.operator) if node.proto.domain in _DOMAINS else None
    if rule is None:
        return ()
    shapes = [tensor.shape if tensor else () for tensor in node.inputs]
    found: list[IndexUse] = []
    for use in rule(node, [*shapes, *(kind.shape for kind in results)]):
        tensor = node.input(use.port)
        if tensor in inputs:  # a constant, too: the kernel alone is timed on random numbers
            found.append(IndexUse(port=list(inputs).index(tensor), ranges=use.ranges))
        try:
            require_indices(tensor.value, use.ranges)
        except ModelError as error:
            raise ModelError(f"{node.title}: {error.message}") from error
    return tuple(found)
