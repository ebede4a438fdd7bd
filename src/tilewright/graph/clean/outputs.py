"""Graph outputs that no node writes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tilewright.graph.network import Graph, Node


def produce_outputs(graph: Graph) -> Graph:
    """Let a node write every graph output.

    before: outputs (c, x) where c is a constant and x a graph input
    after:  c = identity(c.value); x.output = identity(x); outputs (c, x.output)

    A constant keeps its name as output; an input that is an output must change it.
    """
    written = {name for node in graph.nodes for name in node.outputs}
    loose = [name for name in dict.fromkeys(graph.outputs) if name not in written]
    if not loose:
        return graph
    types, constants = dict(graph.types), dict(graph.constants)
    renamed: dict[str, str] = {}
    moved: dict[str, str] = {}
    added: list[Node] = []
    for name in loose:
        if name in constants:
            source, target = _fresh(f"{name}.value", types), name
            constants[source] = constants.pop(name)
            types[source] = types[name]
            moved[name] = source
        else:
            source, target = name, _fresh(f"{name}.output", types)
            types[target] = types[name]
            renamed[name] = target
        added.append(Node(name=target, operator="identity", inputs=(source,), outputs=(target,)))
    nodes = [
        replace(node, inputs=tuple(moved.get(name, name) for name in node.inputs))
        for node in graph.nodes
    ]
    outputs = tuple(renamed.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=(*nodes, *added), outputs=outputs, types=types, constants=constants)


def _fresh(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name
