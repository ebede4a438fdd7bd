"""From a group of nodes to a workload whose text does not depend on where the group stood, without
what a kernel need not do to values that are whole numbers anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isinf

import numpy as np

from tilewright.graph.network import Graph, Node, attributes
from tilewright.graph.workload import Argument, Step, Workload

_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
_BYTES = ("int8", "uint8")


def build_workload(
    graph: Graph, nodes: Sequence[Node], lead: Sequence[Node] = ()
) -> tuple[Workload, tuple[str, ...]]:
    """The workload of a group and the graph tensors behind its arguments.

    `nodes` end with the one that writes the result; `lead` become the first steps. Steps follow in
    the order in which the result needs them; arguments are numbered by first use; operands of
    commutative operators are sorted (steps, then data, then constants; larger ones first).
    """
    inside = {node.output: node for node in nodes}
    ordered: dict[str, tuple[Node, tuple[str, ...]]] = {}

    def visit(node: Node) -> None:
        if node.output not in ordered:
            operands = _operands(graph, node, inside)
            for name in operands:
                if name in inside:
                    visit(inside[name])
            ordered[node.output] = node, operands

    for node in (*lead, nodes[-1]):
        visit(node)
    inputs = tuple(
        dict.fromkeys(n for _, read in ordered.values() for n in read if n not in inside)
    )
    ids = {name: index for index, name in enumerate((*inputs, *ordered))}
    steps = tuple(
        Step(
            operator=node.operator,
            inputs=tuple(ids[name] for name in read),
            attributes=tuple(
                (name, str(value) if isinstance(value, float) and isinf(value) else value)
                for name, value in sorted(node.attributes)
            ),
        )
        for node, read in ordered.values()
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


def drop_round_trips(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Simplify the codes of 8 bits that one kernel makes and reads again; results stay the same.

    before: cast(cast(clip(round(x), -128, 127), int8), float32)
    after:  clip(round(x), -128, 127)

    before: clip(round(x) + z, 0, 255) + (-z)
    after:  clip(round(x), -z, 255 - z)

    `nodes` are in order, and of their results only the last is read elsewhere.
    """
    written, result = {node.output: node for node in nodes}, nodes[-1].output
    inner = [node for node in nodes[:-1] if _widens(graph, node, written)]
    names = {node.output: written[node.inputs[0]].inputs[0] for node in inner}
    renamed = {
        node.output: replace(node, inputs=tuple(names.get(t, t) for t in node.inputs))
        for node in nodes
        if node.output not in names
    }
    kept = _needed(renamed, result)
    for output in list(kept):
        kept[output] = _unshifted(graph, kept, output)
    return tuple(_needed(kept, result).values())


def _widens(graph: Graph, node: Node, written: dict[str, Node]) -> bool:
    """Whether a node makes floats again of bytes that hold its floats exactly."""
    inner = _written(written, node.inputs[0], "cast")
    clip = None if inner is None else _written(written, inner.inputs[0], "clip")
    if node.operator != "cast" or inner is None or clip is None:
        return False
    before, codes, after = (graph.types[t].dtype for t in (clip.output, inner.output, node.output))
    if before != after or after != "float32" or codes not in _BYTES:
        return False
    low, high, bounds = clip.number("minimum"), clip.number("maximum"), np.iinfo(codes)
    whole = low.is_integer() and high.is_integer() and _whole(graph, clip.inputs[0], written)
    return whole and bounds.min <= low <= high <= bounds.max


def _written(written: dict[str, Node], tensor: str, operator: str) -> Node | None:
    """The node that writes a tensor, if it is that operator."""
    node = written.get(tensor)
    return node if node is not None and node.operator == operator else None


def _whole(graph: Graph, tensor: str, written: dict[str, Node]) -> bool:
    """Whether values are whole numbers: rounded, perhaps with a zero point added."""
    shifted = _written(written, tensor, "add")
    if shifted is not None:
        tensor, point = _shift(graph, shifted)
        if not point.is_integer():
            return False
    return _written(written, tensor, "round") is not None


def _shift(graph: Graph, node: Node) -> tuple[str, float]:
    """(x, c) of x + c with one constant number, else ("", 0)."""
    for x, c in (node.inputs, node.inputs[::-1]):
        value = graph.constants.get(c)
        if value is not None and value.size == 1 and x not in graph.constants:
            return x, float(value.reshape(-1)[0])
    return "", 0.0


def _unshifted(graph: Graph, written: dict[str, Node], output: str) -> Node:
    """A zero point that is taken off again moves into the limits between."""
    node = written[output]
    tensor, back = _shift(graph, node) if node.operator == "add" else ("", 0.0)
    clip = _written(written, tensor, "clip")
    inner = None if clip is None else _written(written, clip.inputs[0], "add")
    if clip is None or inner is None or not _whole(graph, inner.output, written):
        return node
    source, point = _shift(graph, inner)
    if point != -back:
        return node
    low, high = (clip.number(name) - point for name in ("minimum", "maximum"))
    return replace(
        clip,
        inputs=(source,),
        outputs=node.outputs,
        attributes=attributes(minimum=low, maximum=high),
    )


def _needed(written: dict[str, Node], result: str) -> dict[str, Node]:
    """The nodes that a result depends on, in their order."""
    wanted: set[str] = {result}
    for output in reversed(written):
        if output in wanted:
            wanted.update(written[output].inputs)
    return {output: node for output, node in written.items() if output in wanted}
