"""Nodes outside the vocabulary: carried along as a small ONNX model of one node."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.errors import ModelError
from tilewright.graph.indices import indices_text
from tilewright.graph.operators.opaque import results_text
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.index_ports import checked_index_uses
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.weights import static_type
from tilewright.models.well_formed import nested_graphs

_EMBEDDED_ELEMENTS = 64
_NEVER_EMBEDDED = ("Scatter", "ScatterElements")
"""TVM does not compile these where an operand is a constant of the model."""
_HALF, _SINGLE = "bfloat16", "float32"
_NAMES_OF_TYPES = ("to", "dtype", "output_dtype")
_SORTED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")


def opaque(
    node: OnnxNode,
    builder: GraphBuilder,
    opsets: Sequence[onnx.OperatorSetIdProto],
    known: Mapping[str, TensorType],
) -> tuple[str, ...]:
    """Emit an opaque node; the tensors of all outputs, empty where one is not asked for.

    Integer constants and small ones lie inside most models, for importers want to see them; tensors
    inside are called i0, i1, … and o0, o1, …, so equal nodes are equal tasks.
    What computes in bfloat16 does so in single precision between casts, for TVM cannot do it all.
    Raises ModelError when a result has no static shape, or TVM has no kernel for the types.
    """
    _refuse_types(node, builder)
    if _is_bfloat16(node, builder):
        wide = replace(
            node, inputs=tuple(_cast(builder, name, _HALF, _SINGLE) for name in node.inputs)
        )
        kinds = {
            name: TensorType(kind.shape, _SINGLE) if kind.dtype == _HALF else kind
            for name, kind in known.items()
        }
        results = opaque(wide, builder, opsets, kinds)
        return tuple(
            _cast(builder, result, _SINGLE, _HALF)
            if result and name in known and known[name].dtype == _HALF
            else result
            for name, result in zip(node.outputs, results, strict=True)
        )
    model, inputs = _single_node_model(node, builder, opsets)
    if not inputs:
        raise ModelError(
            f"node {quoted(node.name)}: the result of operator {quoted(_full_name(node))} depends "
            "on nothing that the network is given, and could not be computed ahead",
            hint="Random numbers are not supported; a constant result: put it into the model.",
        )
    kinds = _result_types(node, model, known)
    for name, kind in kinds.items():
        index = list(node.outputs).index(name)
        model.graph.output.append(_value(f"o{index}", kind))
    uses = checked_index_uses(node, builder, inputs, tuple(kinds.values()))
    results = builder.emit_opaque(
        inputs,
        tuple(kinds.values()),
        **({"indices": indices_text(uses)} if uses else {}),
        model=b64encode(model.SerializeToString(deterministic=True)).decode("ascii"),
        results=results_text(tuple(kinds.values())),
    )
    named = dict(zip(kinds, results, strict=True))
    return tuple(named.get(name, "") for name in node.outputs)


def _is_bfloat16(node: OnnxNode, builder: GraphBuilder) -> bool:
    """Whether a node computes in bfloat16, and no attribute of it names a type."""
    named = any(node.has(name) for name in _NAMES_OF_TYPES)
    return not named and any(name and builder.dtype(name) == _HALF for name in node.inputs)


def _cast(builder: GraphBuilder, name: str, before: str, after: str) -> str:
    """A tensor of one type in another one; others, and inputs left out, as they are."""
    if not name or builder.dtype(name) != before:
        return name
    return builder.emit("cast", name, dtype=after)


def _refuse_types(node: OnnxNode, builder: GraphBuilder) -> None:
    """TVM says only when the kernel runs that it cannot sort some types."""
    known = _SORTED if node.operator == "TopK" else ()
    dtype = builder.dtype(node.input(0)) if node.input(0) else ""
    if known and dtype not in known:
        raise ModelError(
            f"node {quoted(node.name)}: operator {quoted(_full_name(node))} of {dtype} "
            f"is not supported",
            hint="Supported: " + ", ".join(known),
        )


def _single_node_model(
    node: OnnxNode, builder: GraphBuilder, opsets: Sequence[onnx.OperatorSetIdProto]
) -> tuple[onnx.ModelProto, list[str]]:
    _refuse_captures(node)
    proto = onnx.NodeProto.FromString(node.proto.SerializeToString())
    proto.name, proto.doc_string = "", ""
    del proto.metadata_props[:]
    graph = onnx.GraphProto(name="opaque")
    inputs: list[str] = []
    labels: dict[str, str] = {}
    for index, name in enumerate(node.inputs):
        if not name:
            continue
        if name in labels:
            proto.input[index] = labels[name]
            continue
        label = labels[name] = f"i{index}"
        proto.input[index] = label
        array = builder.value(name) if node.operator not in _NEVER_EMBEDDED else None
        if array is not None and (array.size <= _EMBEDDED_ELEMENTS or array.dtype.kind in "iub"):
            graph.initializer.append(numpy_helper.from_array(array, label))
        else:
            graph.input.append(_value(label, builder.types[name]))
            inputs.append(name)
    for index, name in enumerate(node.outputs):
        proto.output[index] = f"o{index}" if name else ""
    graph.node.append(proto)
    model = onnx.ModelProto(ir_version=8, graph=graph)
    used = [entry for entry in opsets if _same_domain(entry.domain, node.domain)]
    model.opset_import.extend(used or opsets)
    return model, inputs


def _same_domain(a: str, b: str) -> bool:
    return (a or "ai.onnx") == (b or "ai.onnx")


def _value(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    element_type = onnx.TensorProto.BFLOAT16
    if kind.dtype != "bfloat16":
        element_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    return onnx.helper.make_tensor_value_info(name, element_type, kind.shape)


def _result_types(
    node: OnnxNode, model: onnx.ModelProto, known: Mapping[str, TensorType]
) -> dict[str, TensorType]:
    """The static types of the outputs that are asked for."""
    kinds = {name: known[name] for name in node.outputs if name in known}
    wanted = [name for name in node.outputs if name]
    if len(kinds) < len(wanted):
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
        found = {value.name: static_type(value) for value in inferred}
        for index, name in enumerate(node.outputs):
            kind = found.get(f"o{index}")
            if name and name not in kinds and kind is not None:
                kinds[name] = kind
    for name in wanted:
        if name not in kinds:
            raise ModelError(
                f"node {quoted(node.name)}: operator {quoted(_full_name(node))} is not known here "
                f"and the shape of its result {quoted(name)} depends on the data",
                hint="Cut the network before this node, or export it with static shapes.",
            )
    return {name: kinds[name] for name in wanted}


def _full_name(node: OnnxNode) -> str:
    return f"{node.domain}.{node.operator}" if node.domain else node.operator


def _refuse_captures(node: OnnxNode) -> None:
    """A subgraph that reads tensors around it cannot stand alone."""
    for body in nested_graphs(node.proto):
        outside = _read_from_outside(body, frozenset())
        if outside is not None:
            raise ModelError(
                f"node {quoted(node.name)}: the body of {quoted(node.operator)} reads "
                f"{quoted(outside)} from outside, which is not supported",
                hint="Export the network with its conditions and loops decided, as tracing does.",
            )


def _read_from_outside(body: onnx.GraphProto, around: frozenset[str]) -> str | None:
    """A tensor that a body reads and neither it nor a body around it writes, None without any."""
    own = {value.name for value in (*body.input, *body.initializer)} | around | {""}
    for inner in body.node:
        for name in inner.input:
            if name not in own:
                return name
        for nested in nested_graphs(inner):
            found = _read_from_outside(nested, frozenset(own))
            if found is not None:
                return found
        own.update(inner.output)
    return next((value.name for value in body.output if value.name not in own), None)
