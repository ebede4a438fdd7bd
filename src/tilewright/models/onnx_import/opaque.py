"""Nodes outside the vocabulary: carried along as a small ONNX model of one node."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

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


def opaque(
    node: OnnxNode,
    builder: GraphBuilder,
    opsets: Sequence[onnx.OperatorSetIdProto],
    known: Mapping[str, TensorType],
) -> tuple[str, ...]:
    """Emit an opaque node; the tensors of all outputs, empty where one is not asked for.

    Integer constants and small ones lie inside the model, for importers want to see them; tensors
    inside are called i0, i1, … and o0, o1, …, so equal nodes are equal tasks.
    Raises ModelError when a result has no static shape.
    """
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
        array = builder.value(name)
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
