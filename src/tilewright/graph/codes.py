"""What a kernel need not do to values that are whole numbers anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.graph.network import Graph, Node, attributes

_BYTES = ("int8", "uint8")


def drop_round_trips(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Simplify the codes of 8 bits that one kernel makes and reads again; results stay the same.

    before: cast(cast(clip(round(x), -128, 127), int8), float32)
    after:  clip(round(x), -128, 127)

    before: clip(round(x) + z, 0, 255) + (-z)
    after:  clip(round(x), -z, 255 - z)

    `nodes` are in order, and of their results only the last is read elsewhere.
    """
    written = {node.output: node for node in nodes}
    names: dict[str, str] = {}
    for node in nodes:
        if _widens(graph, node, written):
            names[node.output] = written[node.inputs[0]].inputs[0]
    renamed = {
        node.output: replace(node, inputs=tuple(names.get(t, t) for t in node.inputs))
        for node in nodes
        if node.output not in names
    }
    kept = _needed(renamed, nodes[-1].output)
    for output in list(kept):
        kept[output] = _unshifted(graph, kept, output)
    return tuple(_needed(kept, nodes[-1].output).values())


def _widens(graph: Graph, node: Node, written: dict[str, Node]) -> bool:
    """Whether a node makes floats again of bytes that hold its floats exactly."""
    inner = written.get(node.inputs[0])
    if node.operator != "cast" or inner is None or inner.operator != "cast":
        return False
    kinds = [graph.types[t].dtype for t in (inner.inputs[0], inner.output, node.output)]
    clip = written.get(inner.inputs[0])
    if kinds[0] != kinds[2] or kinds[0] != "float32" or kinds[1] not in _BYTES or clip is None:
        return False
    if clip.operator != "clip" or not _whole(graph, clip.inputs[0], written):
        return False
    low, high = _limits(clip)
    bounds = np.iinfo(kinds[1])
    return low.is_integer() and high.is_integer() and bounds.min <= low <= high <= bounds.max


def _whole(graph: Graph, tensor: str, written: dict[str, Node]) -> bool:
    """Whether values are whole numbers: rounded, perhaps with a zero point added."""
    node = written.get(tensor)
    if node is not None and node.operator == "add":
        tensor, point = _shift(graph, node)
        node = written.get(tensor) if float(point).is_integer() else None
    return node is not None and node.operator == "round"


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
    if node.operator != "add":
        return node
    tensor, back = _shift(graph, node)
    clip = written.get(tensor)
    inner = written.get(clip.inputs[0]) if clip is not None and clip.operator == "clip" else None
    if clip is None or inner is None or inner.operator != "add":
        return node
    source, point = _shift(graph, inner)
    if point != -back or not _whole(graph, inner.output, written):
        return node
    low, high = _limits(clip)
    limits = attributes(minimum=low - point, maximum=high - point)
    return replace(clip, inputs=(source,), outputs=node.outputs, attributes=limits)


def _limits(clip: Node) -> tuple[float, float]:
    return clip.number("minimum"), clip.number("maximum")


def _needed(written: dict[str, Node], result: str) -> dict[str, Node]:
    """The nodes that a result depends on, in their order."""
    wanted: set[str] = {result}
    for output in reversed(written):
        if output in wanted:
            wanted.update(written[output].inputs)
    return {output: node for output, node in written.items() if output in wanted}
