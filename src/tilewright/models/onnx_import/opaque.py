"""Nodes outside the vocabulary: carried along as a small ONNX model of one node."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.errors import ModelError
from tilewright.graph.operators.opaque import results_text
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.weights import static_type

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
    kinds = _result_types(node, model, known)
    for name, kind in kinds.items():
        index = list(node.outputs).index(name)
        model.graph.output.append(_value(f"o{index}", kind))
    results = builder.emit_opaque(
        inputs,
        tuple(kinds.values()),
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
    for attribute in node.proto.attribute:
        if not attribute.HasField("g"):
            continue
        body = attribute.g
        own = {value.name for value in (*body.input, *body.initializer)}
        for inner in body.node:
            for name in inner.input:
                if name and name not in own:
                    raise ModelError(
                        f"node {quoted(node.name)}: the body of {quoted(node.operator)} reads "
                        f"{quoted(name)} from outside, which is not supported"
                    )
            own.update(inner.output)
