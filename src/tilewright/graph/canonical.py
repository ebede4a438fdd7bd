"""From a group of nodes to a workload whose text does not depend on where the group stood."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from tilewright.graph.network import Attributes, AttributeValue, Graph, Node
from tilewright.graph.workload import Argument, Step, Workload

_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})


def build_workload(
    graph: Graph, nodes: Sequence[Node], lead: Sequence[Node] = ()
) -> tuple[Workload, tuple[str, ...]]:
    """The workload of a group and the graph tensors behind its arguments.

    `nodes` end with the one that writes the result; `lead` become the first steps. Steps follow in
    the order in which the result needs them; arguments are numbered by first use; operands of
    commutative operators are sorted (steps, then data, then constants; larger ones first).
    """
    inside = {node.output: node for node in nodes}
    ordered: list[Node] = []

    def visit(node: Node) -> None:
        if node in ordered:
            return
        for name in _operands(graph, node, inside):
            if name in inside:
                visit(inside[name])
        ordered.append(node)

    for node in (*lead, nodes[-1]):
        visit(node)
    inputs = tuple(
        dict.fromkeys(
            name
            for node in ordered
            for name in _operands(graph, node, inside)
            if name not in inside
        )
    )
    ids = {name: index for index, name in enumerate(inputs)}
    for index, node in enumerate(ordered):
        ids[node.output] = len(inputs) + index
    steps = tuple(
        Step(
            operator=node.operator,
            inputs=tuple(ids[name] for name in _operands(graph, node, inside)),
            attributes=_canonical(node.attributes),
        )
        for node in ordered
    )
    arguments = tuple(
        Argument(type=graph.types[name], role="constant" if name in graph.constants else "data")
        for name in inputs
    )
    return Workload(arguments=arguments, steps=steps), inputs


def _operands(graph: Graph, node: Node, inside: dict[str, Node]) -> tuple[str, ...]:
    if node.operator not in _COMMUTATIVE:
        return node.inputs

    def rank(name: str) -> tuple[int, int]:
        kind = 0 if name in inside else 2 if name in graph.constants else 1
        return kind, -graph.types[name].elements

    return tuple(sorted(node.inputs, key=rank))


def _canonical(named: Attributes) -> Attributes:
    return tuple(sorted((name, _finite(value)) for name, value in named))


def _finite(value: AttributeValue) -> AttributeValue:
    if isinstance(value, float) and isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
