"""ONNX → `Graph`: every node translated, types checked against ONNX's own inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from tilewright.core.errors import ModelError
from tilewright.graph.network import Array, Graph, Node
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted
from tilewright.models.onnx_import import (
    constants,
    convolution,
    elementwise,
    linear,
    movement,
    normalization,
    pooling,
    quantized,
    reduction,
    resize,
    shape,
)
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode, read_node
from tilewright.models.onnx_import.opaque import opaque
from tilewright.models.onnx_import.quantized_pairs import on_codes
from tilewright.models.onnx_import.registry import TRANSLATIONS, Carried

GROUPS = (
    constants,
    convolution,
    elementwise,
    linear,
    movement,
    normalization,
    pooling,
    quantized,
    reduction,
    resize,
    shape,
)
"""The modules whose functions are registered by being imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredModel:
    """A model without its large weights, the weights, and all static types ONNX can tell."""

    model: onnx.ModelProto
    weights: Mapping[str, Array]
    types: Mapping[str, TensorType]


def translate(source: InferredModel, name: str) -> Graph:
    """The model in our vocabulary.

    Inputs and outputs keep their names; unused nodes and tensors are left out.
    Raises ModelError naming the node that cannot be taken.
    """
    graph = source.model.graph
    rewritten = on_codes(graph, source.weights, source.types)
    nodes = rewritten.nodes
    builder = GraphBuilder(_all_names(graph) | {t for node in nodes for t in node.output})
    for value in graph.input:
        kind = source.types.get(value.name)
        if kind is None:
            raise ModelError(f"input {quoted(value.name)} has elements or axes not supported")
        builder.declare(value.name, kind)
    for weight, array in {**source.weights, **rewritten.constants}.items():
        builder.declare_constant(weight, array)
    builder.allow_folding(source.weights.values())
    tensors = {tensor: tensor for tensor in builder.types}
    opsets = {entry.domain or "ai.onnx": entry.version for entry in source.model.opset_import}
    for index, proto in enumerate(nodes):
        label = proto.name or f"{proto.op_type}_{index}"
        node = read_node(
            proto,
            label,
            opsets.get(proto.domain or "ai.onnx", 1),
            tuple(_resolved(item, tensors, label) for item in proto.input),
        )
        _translate_node(node, builder, source, tensors)
    outputs = tuple(value.name for value in graph.output)
    _name_outputs(builder, outputs, tensors)
    return _finished(builder, name, tuple(value.name for value in graph.input), outputs)


def _resolved(name: str, tensors: Mapping[str, str], node: str) -> str:
    if name and name not in tensors:
        raise ModelError(f"node {quoted(node)} reads {quoted(name)}, which nothing writes")
    return tensors[name] if name else ""


def _translate_node(
    node: OnnxNode, builder: GraphBuilder, source: InferredModel, tensors: dict[str, str]
) -> None:
    """Emit one node and say in `tensors` where its outputs are."""
    builder.enter(node.name)
    usual = node.domain in ("", "ai.onnx")
    function = TRANSLATIONS.get(node.operator if usual else f"{node.domain}.{node.operator}")
    try:
        results = None if function is None else function(node, builder)
    except ModelError as error:
        text = f"node {quoted(node.name)} ({quoted(node.operator)}): {error.message}"
        raise ModelError(text, hint=error.hint) from error
    except ValueError as error:
        text = f"node {quoted(node.name)} ({quoted(node.operator)}) is malformed: {error}"
        raise ModelError(text) from error
    if isinstance(results, Carried):
        (result,) = opaque(results.node, builder, source.model.opset_import, source.types)
        results = results.then(result)
    elif results is None or isinstance(results, OnnxNode):
        results = opaque(results or node, builder, source.model.opset_import, source.types)
    listed: Sequence[str] = (results,) if isinstance(results, str) else results
    for output, result in zip(node.outputs, listed, strict=False):
        if not output:
            continue
        _check(node, output, builder.types[result], source.types)
        tensors[output] = builder.settle(result, output)


def _check(
    node: OnnxNode, output: str, kind: TensorType, inferred: Mapping[str, TensorType]
) -> None:
    expected = inferred.get(output)
    if expected is not None and expected != kind:
        raise ModelError(
            f"node {quoted(node.name)} ({quoted(node.operator)}) gives {kind}, "
            f"but the model says {expected} for {quoted(output)}"
        )


def _name_outputs(builder: GraphBuilder, outputs: Sequence[str], tensors: dict[str, str]) -> None:
    """Every output is written by a node of its own, under its own name."""
    written = {name for node in builder.nodes for name in node.outputs}
    for output in outputs:
        if output not in tensors:
            raise ModelError(f"output {quoted(output)} is written by no node")
        tensor = tensors[output]
        if tensor == output and output in written:
            continue
        if tensor in written and tensor not in outputs:
            builder.rename(tensor, output)
            written.add(output)
            tensors.update({old: output for old, new in tensors.items() if new == tensor})
            continue
        if tensor == output and output in builder.constants:
            kept = f"{output}/constant"
            builder.rename(output, kept)
            tensor = kept
        elif tensor == output:
            raise ModelError(f"output {quoted(output)} is an input under the same name")
        builder.types[output] = builder.types[tensor]
        builder.nodes.append(
            Node(name=output, operator="identity", inputs=(tensor,), outputs=(output,))
        )


def _finished(
    builder: GraphBuilder, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Graph:
    """The graph without what no output needs."""
    needed, kept = set(outputs), list[Node]()
    for node in reversed(builder.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    whole = Graph(
        name=name,
        nodes=(),
        inputs=inputs,
        outputs=outputs,
        types=builder.types,
        constants=builder.constants,
    )
    return whole.rebuilt(reversed(kept))


def _all_names(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        names.update(node.input, node.output)
    return names
