"""ONNX → `Graph`: every node translated, types checked against ONNX's own inference."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

import numpy as np
import onnx

from tilewright.core.errors import ModelError, NotCompilable, quoted
from tilewright.graph.clean.edit import NotApplicable
from tilewright.graph.clean.simplify import FoldingAllowance, drop_unused
from tilewright.graph.network import Array, Graph, Node, TensorType
from tilewright.graph.operators import results_text
from tilewright.models.onnx_import import islands
from tilewright.models.onnx_import.node import (
    TRANSLATIONS,
    GraphBuilder,
    OnnxNode,
    Tensor,
)
from tilewright.models.onnx_import.opaque import opaque
from tilewright.models.onnx_import.pairs import on_codes
from tilewright.models.onnx_model import array_of, read_inside

_GROUPS = ("control_flow", "einsum", "elementwise", "fourier", "indexing", "movement", "quantized",
           "recurrent", "reduction", "resize", "sequences", "windows")  # fmt: skip
for _group in _GROUPS:
    import_module(f"tilewright.models.onnx_import.{_group}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredModel:
    """A model without its large weights, the weights, and all static types ONNX can tell."""

    model: onnx.ModelProto
    weights: Mapping[str, Array]
    types: Mapping[str, TensorType]


def translate(source: InferredModel, name: str, judge: islands.Judge | None = None) -> Graph:
    """The model in our vocabulary.

    Inputs and outputs keep their names; unused nodes and tensors are left out. With a `judge`,
    nodes that cannot be taken are cut out as islands for the engine that it asks.
    Raises ModelError naming the node that cannot be taken.
    """
    for value in source.model.graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise _no_tensor(value.name)
    nodes, made = on_codes(source.model.graph, source.weights, source.types)
    beginning = partial(_beginning, source, nodes, {**source.weights, **made}, dict(source.types))
    inputs, outputs = (
        [value.name for value in values]
        for values in (source.model.graph.input, source.model.graph.output)
    )
    whole = beginning(inputs)
    refusals = whole.take(nodes, judge)
    if judge is not None and refusals:
        whole.refuse_sequences(nodes, refusals)
        whole = beginning(inputs)
        whole.take_around(nodes, refusals, outputs, judge)
    builder = whole.builder
    _name_outputs(builder, outputs, whole.tensors)
    graph = Graph(
        name=name,
        nodes=tuple(builder.nodes),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        types=builder.types,
        constants=builder.constants,
        examples={name: a for name, a in builder.examples.items() if name in inputs},
        fixed=frozenset(builder.fixed),
    )
    return graph.rebuilt(drop_unused(graph).nodes)


def _no_tensor(output: str) -> ModelError:
    return ModelError(f"output {quoted(output)} is no tensor, which is not supported")


def _beginning(
    source: InferredModel,
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Array],
    types: dict[str, TensorType],
    inputs: Sequence[str],
) -> _Scope:
    """Inputs and weights, and nothing translated yet."""
    given = source.model.graph
    named = {tensor for node in (*given.node, *nodes) for tensor in (*node.input, *node.output)}
    named.update(inputs, weights, (tensor.name for tensor in given.initializer))
    builder = GraphBuilder(named, FoldingAllowance(source.weights.values()))
    for value in inputs:
        if value not in source.types:
            raise ModelError(f"input {quoted(value)} has elements or axes not supported")
        builder.types[value] = source.types[value]
    for weight, array in weights.items():
        builder.constant(array, weight)
    tensors = {tensor: tensor for tensor in builder.types}
    for value in inputs:  # nobody has to bring what has no elements
        if not (kind := builder.types[value]).elements:
            empty = builder.constant(np.empty(kind.shape, np.dtype(kind.dtype)))
            tensors[value] = empty.name
    return _Scope(source=source, builder=builder, tensors=tensors, types=types)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Nodes of a graph under translation: `tensors` says which of ours stand for the file's,
    `types` what ONNX knows of these. `prefix` comes before the names of nodes inside another one,
    whose tensors do not keep their names: there is one of them for each turn of a loop."""

    source: InferredModel
    builder: GraphBuilder
    tensors: dict[str, str]
    types: dict[str, TensorType]
    prefix: str = ""

    def take(
        self, nodes: Iterable[onnx.NodeProto], judge: islands.Judge | None = None
    ) -> dict[int, islands.Refusal]:
        """Translate nodes in their order. Raises ModelError for the first that cannot be taken;
        with a `judge` those that cannot be compiled are told by index, and what they write is
        there as far as its type is known."""
        refusals: dict[int, islands.Refusal] = {}
        lost: set[str] = set()
        for index, proto in enumerate(nodes):
            label = self.prefix + (proto.name or f"{proto.op_type}_{index}")
            follows = not lost.isdisjoint((*proto.input, *read_inside(proto)) if lost else ())
            try:
                if follows:
                    raise NotCompilable(f"node {quoted(label)} reads what has no known shape")
                for item in (*proto.input, *read_inside(proto)):
                    if item and item not in self.tensors:
                        said = f"reads {quoted(item)}, which nothing writes"
                        raise ModelError(f"node {quoted(label)} {said}")
                self._take(self._node(proto, label))
            except NotCompilable as error:
                if judge is None:
                    raise
                refusals[index] = islands.Refusal(error=error, follows=follows)
                islands.require_trusted(proto, error)
                if not follows and proto.domain not in ("", "ai.onnx"):
                    self._ask_types(proto, judge)
                for output in filter(None, proto.output):
                    if output not in self.types:
                        lost.add(output)
                        continue
                    self.tensors[output] = output
                    self.builder.types[output] = self.types[output]
        return refusals

    def refuse_sequences(
        self, nodes: Sequence[onnx.NodeProto], refusals: dict[int, islands.Refusal]
    ) -> None:
        """Refuse whatever makes or reads a sequence that a refused node makes or reads: only
        tensors lead into islands and out of them."""
        sequences = {name for name, ours in self.tensors.items() if ours in self.builder.sequences}
        touched = [{*n.input, *n.output, *read_inside(n)} & sequences for n in nodes]
        lost, before = set[str](), -1
        while len(lost) > before:
            before = len(lost)
            for index, names in enumerate(touched):
                if index in refusals or not lost.isdisjoint(names):
                    error = NotCompilable(f"node {quoted(nodes[index].name)} is of a sequence")
                    refusals.setdefault(index, islands.Refusal(error=error, follows=True))
                    lost |= names
        for output in (name for index in refusals for name in nodes[index].output if name):
            if (ours := self.tensors.get(output)) in self.builder.types:
                self.types.setdefault(output, self.builder.types[ours])

    def _ask_types(self, proto: onnx.NodeProto, judge: islands.Judge) -> None:
        """Learn from the engine of which types the results of a foreign operator are."""
        results = tuple(filter(None, proto.output))
        island = islands.Island(
            nodes=(proto,), reads=tuple(filter(None, proto.input)), results=results, refusals=()
        )
        model, _ = self._model_of(island)
        with suppress(ModelError):
            for name, kind in zip(results, judge(model), strict=True):
                if kind.is_static and kind.shape:  # without axes: perhaps of an unknown rank
                    self.types.setdefault(name, kind)

    def _model_of(self, island: islands.Island) -> tuple[onnx.ModelProto, list[Tensor]]:
        """An island as a model, and what the network gives it."""
        given = {name: Tensor(self.builder, self.tensors[name]) for name in island.reads}
        return islands.island_model(island, given, self.source.model)

    def take_around(
        self,
        nodes: Sequence[onnx.NodeProto],
        refusals: Mapping[int, islands.Refusal],
        outputs: Sequence[str],
        judge: islands.Judge,
    ) -> None:
        """Translate nodes with those that cannot be compiled in islands."""
        for index, node in enumerate(nodes):
            node.name = node.name or f"{node.op_type}_{index}"
        unknown = {o for index in refusals for o in nodes[index].output if o not in self.types}
        for item in islands.cut(nodes, refusals, unknown, outputs):
            if isinstance(item, islands.Island):
                self.take_island(item, judge)
            else:
                self.take([item])

    def take_island(self, island: islands.Island, judge: islands.Judge) -> None:
        """Emit an island as an opaque node that an engine computes. Raises ModelError, the first
        reason why there is an island, where the engine does not take it."""
        first, self.builder.scope = island.refusals[0], island.nodes[0].name
        try:
            model, inputs = self._model_of(island)
            if not inputs:
                raise ModelError("it reads nothing of the network")
            kinds = tuple(islands.kinds_of_results(island, self.types, judge(model)))
        except ModelError as error:
            raise islands.refused_by_all(first, error) from error
        results = self.builder.emit_several(
            "opaque",
            inputs,
            kinds,
            island=island.text,
            model=b64encode(model.SerializeToString(deterministic=True)).decode("ascii"),
            results=results_text(kinds),
        )
        for name, result in zip(island.results, results, strict=True):
            self.tensors[name] = self.builder.settle(result, name)

    def _node(self, proto: onnx.NodeProto, label: str) -> OnnxNode:
        opsets = self.source.model.opset_import
        domain = proto.domain or "ai.onnx"
        versions = (entry.version for entry in opsets if (entry.domain or "ai.onnx") == domain)
        given = (self.tensors[name] if name else None for name in proto.input)
        return OnnxNode(
            builder=self.builder,
            name=label,
            opset=next(versions, 1),
            inputs=tuple(Tensor(self.builder, name) if name else None for name in given),
            attributes={a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute},
            proto=proto,
            types=self.types,
            carry=partial(opaque, opsets=opsets, known=self.types),
            inside=partial(self._inside, label),
        )

    def _inside(
        self, label: str, body: onnx.GraphProto, inputs: Sequence[Tensor], part: str
    ) -> tuple[Tensor, ...]:
        """The results of a branch or body of the node `label` for these inputs; what is inside has
        names below `part`."""
        prefix = f"{label}/{part}/"
        self.builder.scope = prefix[:-1]
        tensors = dict(self.tensors)
        for constant in body.initializer:
            tensors[constant.name] = self.builder.constant(array_of(constant)).name
        names = (value.name for value in body.input)
        tensors.update((name, given.name) for name, given in zip(names, inputs, strict=False))
        inner = replace(self, tensors=tensors, types={}, prefix=prefix)
        inner.take(body.node)
        self.builder.scope = label
        for value in body.output:
            if value.name not in tensors:
                raise ModelError(f"its body does not write the output {quoted(value.name)}")
        return tuple(Tensor(self.builder, tensors[value.name]) for value in body.output)

    def _take(self, node: OnnxNode) -> None:
        """Emit one node and say in `tensors` where its outputs are."""
        self.builder.scope = node.name
        usual = node.proto.domain in ("", "ai.onnx")
        function = TRANSLATIONS.get(node.operator if usual else node.full_name)
        try:
            results = node if function is None else function(node)
        except NotApplicable:
            results = node
        except ModelError as error:
            kind = NotCompilable if isinstance(error, NotCompilable) else ModelError
            raise kind(f"{node.title}: {error.message}", hint=error.hint) from error
        except (ValueError, LookupError, ArithmeticError) as error:
            raise ModelError(f"{node.title} is malformed: {error}") from error
        if isinstance(results, OnnxNode):
            results = node.carry(results)
        listed = (results,) if isinstance(results, Tensor) else results
        settled: dict[str, str] = {}
        for output, result in zip(node.proto.output, listed, strict=False):
            if not output or not result:
                continue
            result = Tensor(self.builder, settled.get(result.name, result.name))
            if result.items is not None:
                self.tensors[output] = result.name
                continue
            expected = self.types.get(output, result.type)
            if expected != result.type:
                kinds = f"{result.type}, but the model says {expected}"
                raise ModelError(f"{node.title} gives {kinds} for {quoted(output)}")
            name = result.name if self.prefix else self.builder.settle(result, output)
            self.tensors[output] = settled[result.name] = name


def _name_outputs(builder: GraphBuilder, outputs: Sequence[str], tensors: dict[str, str]) -> None:
    """Every output is written by a node of its own, under its own name."""
    written = {name for node in builder.nodes for name in node.outputs}
    for output in outputs:
        if output not in tensors:
            raise ModelError(f"output {quoted(output)} is written by no node")
        tensor = tensors[output]
        if tensor in builder.sequences:
            raise _no_tensor(output)
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
