"""Rewriting a graph: collect replacements, then build the new graph once.

A replacement keeps the meaning of every tensor name, so rules may match on the original nodes
even after some of them were replaced in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import numpy as np

from tilewright.graph.network import (
    Array,
    AttributeValue,
    Graph,
    Node,
    TensorType,
    attributes,
    fresh_name,
)
from tilewright.graph.operators import OPERATORS

_Value = TypeVar("_Value")


class NotApplicable(Exception):
    """Raised by a rule that does not apply to its node, which then stays as it is."""


def only_if(condition: bool) -> None:
    """Go on with a rule if a condition holds; NotApplicable otherwise."""
    if not condition:
        raise NotApplicable


def found(value: _Value | None) -> _Value:
    """What was looked for; NotApplicable where there is none."""
    if value is None:
        raise NotApplicable
    return value


class Edit:
    """Pending changes to one graph; `copies` are for rules to note what they made of constants."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self.producers = graph.producers()
        self.readers = graph.consumers()
        self.outputs = frozenset(graph.outputs)
        self.copies: dict[str, str] = {}
        self._names = {node.name for node in graph.nodes}
        self._replaced: dict[str, tuple[Node, ...]] = {}
        self._aliases: dict[str, str] = {}

    def producer(self, tensor: str | None, *operators: str) -> Node | None:
        """The node that writes a tensor, if it is one of those operators."""
        node = None if tensor is None else self.producers.get(tensor)
        return node if node is not None and node.operator in operators else None

    def read_once(self, tensor: str) -> bool:
        """Whether exactly one port reads a tensor and it is no graph output."""
        return tensor not in self.outputs and len(self.readers.get(tensor, ())) == 1

    def scalar(self, tensor: str) -> float | None:
        """The value of a constant of one element."""
        array = self.constants.get(tensor)
        if array is None or array.size != 1 or array.dtype.kind not in "fiu":
            return None
        return float(array.reshape(-1).astype(np.float64)[0])

    def constant(self, base: str, array: Array) -> str:
        """Add a constant; returns its name."""
        name = fresh_name(base, self.types)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, str(array.dtype))
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        *,
        name: str,
        output: str | None = None,
        **named: AttributeValue,
    ) -> Node:
        """A new node; without `output` it writes a new tensor, whose type is inferred."""
        target = output or fresh_name(name, self.types)
        if output is None:
            kinds = tuple(self.types[tensor] for tensor in inputs)
            self.types[target] = OPERATORS[operator].infer(kinds, named)
            name = fresh_name(name, self._names)
            self._names.add(name)
        return Node(
            name=name,
            operator=operator,
            inputs=tuple(inputs),
            outputs=(target,),
            attributes=attributes(**named),
        )

    def replace(self, node: Node, *new: Node) -> None:
        """Write `node`'s output by other nodes, the last of which must write it."""
        self._replaced[node.output] = new

    def turn(
        self,
        node: Node,
        operator: str,
        inputs: Sequence[str],
        before: Sequence[Node] = (),
        **named: AttributeValue,
    ) -> None:
        """Write `node`'s output by another operator, behind other new nodes."""
        new = self.node(operator, inputs, name=node.name, output=node.output, **named)
        self._replaced[node.output] = (*before, new)

    def rewire(self, node: Node, inputs: Sequence[str]) -> None:
        """Let a node read other tensors."""
        if tuple(inputs) != node.inputs:
            self.replace(node, replace(node, inputs=tuple(inputs)))

    def rewritten(self, node: Node, inputs: Sequence[str], output: str | None = None) -> Node:
        """The same operator on other inputs; without `output` it writes a new tensor."""
        return self.node(node.operator, inputs, name=node.name, output=output, **node.named)

    def alias(self, node: Node, tensor: str) -> None:
        """Drop a node; its readers read `tensor`, which is the same."""
        self._aliases[node.output] = tensor

    def finish(self) -> Graph:
        """The new graph; the old one itself when nothing changed."""
        if not self._replaced and not self._aliases:
            return self.graph
        nodes = [
            kept
            for node in self.graph.nodes
            if node.outputs[0] not in self._aliases
            for kept in self._replaced.get(node.outputs[0], (node,))
        ]
        names, extra = self._output_names({t for node in nodes for t in node.outputs})
        rebuilt = [
            replace(
                node,
                inputs=tuple(names.get(self._resolve(t), self._resolve(t)) for t in node.inputs),
                outputs=tuple(names.get(t, t) for t in node.outputs),
            )
            for node in nodes
        ]
        return self.graph.rebuilt((*rebuilt, *extra), types=self.types, constants=self.constants)

    def _output_names(self, written: set[str]) -> tuple[dict[str, str], list[Node]]:
        """Keep the names of graph outputs that were aliased: rename the source, or copy it."""
        names: dict[str, str] = {}
        extra: list[Node] = []
        for tensor in dict.fromkeys(self.graph.outputs):
            source = self._resolve(tensor)
            if source in written and source not in self.outputs and source not in names:
                names[source] = tensor
            elif source != tensor:
                origin = names.get(source, source)
                extra.append(
                    Node(name=tensor, operator="identity", inputs=(origin,), outputs=(tensor,))
                )
        return names, extra

    def _resolve(self, tensor: str) -> str:
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor


Rule = Callable[[Edit, Node], None]
Rewrite = Callable[[Graph], Graph]


def rewrite(*operators: str) -> Callable[[Rule], Rewrite]:
    """Make a rewrite of a whole graph of a rule, which is given one node after the other: those of
    some operators, or all of them. A rule changes nothing where it raises NotApplicable."""

    def decorate(rule: Rule) -> Rewrite:
        @wraps(rule)
        def rewritten(graph: Graph) -> Graph:
            edit = Edit(graph)
            for node in graph.nodes:
                if not operators or node.operator in operators:
                    with suppress(NotApplicable):
                        rule(edit, node)
            return edit.finish()

        return rewritten

    return decorate
