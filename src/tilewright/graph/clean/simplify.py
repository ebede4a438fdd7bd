"""Dropping what does nothing, computing what is known, and writing graph outputs.

Constants are folded while that makes the network smaller or little larger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tilewright.graph.clean.edit import Edit, rewrite
from tilewright.graph.network import Array, Graph, Node, TensorType, fresh_name
from tilewright.graph.operators import OPERATORS

FOLDED_BYTES = 16 << 20
"""A result of more is folded only where what it comes from is as large."""
MOST_FOLDED_BYTES = 256 << 20
"""All results together, beside twice the constants that were there before."""
MOST_FOLDED_FLOP = 4 << 30
"""Work that is done for folding in all."""


class FoldingAllowance:
    """What folding the constants of one network may still create and cost."""

    def __init__(self, constants: Iterable[Array]) -> None:
        self._bytes = MOST_FOLDED_BYTES + 2 * sum(array.nbytes for array in constants)
        self._flop = MOST_FOLDED_FLOP

    def grants(self, result: TensorType, sources: Iterable[Array], flop: int) -> bool:
        """Whether a result may be computed; if so, it counts as created."""
        largest = max(FOLDED_BYTES, sum(array.nbytes for array in sources))
        if result.bytes > min(largest, self._bytes) or flop > self._flop:
            return False
        self._bytes -= result.bytes
        self._flop -= flop
        return True


_SMALL_BYTES = 64 << 10
_NEUTRAL = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0, "power": 1.0}


def drop_unused(graph: Graph) -> Graph:
    """Drop nodes nobody needs.

    before: a = relu(x); b = tanh(x); outputs (a,)
    after:  a = relu(x); outputs (a,)
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return graph if len(kept) == len(graph.nodes) else graph.rebuilt(reversed(kept))


def produce_outputs(graph: Graph) -> Graph:
    """Let a node write every graph output.

    before: outputs (c, x) where c is a constant and x a graph input
    after:  c = identity(c.value); x.output = identity(x); outputs (c, x.output)

    A constant keeps its name as output; an input that is an output must change it.
    """
    written = {name for node in graph.nodes for name in node.outputs}
    loose = [name for name in dict.fromkeys(graph.outputs) if name not in written]
    types, constants = dict(graph.types), dict(graph.constants)
    renamed, moved, added = dict[str, str](), dict[str, str](), list[Node]()
    for name in loose:
        if name in constants:
            source, target = fresh_name(f"{name}.value", types), name
            constants[source] = constants.pop(name)
            types[source] = types[name]
            moved[name] = source
        else:
            source, target = name, fresh_name(f"{name}.output", types)
            types[target] = types[name]
            renamed[name] = target
        added.append(Node(name=target, operator="identity", inputs=(source,), outputs=(target,)))
    nodes = [
        replace(node, inputs=tuple(moved.get(name, name) for name in node.inputs))
        for node in graph.nodes
    ]
    outputs = tuple(renamed.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=(*nodes, *added), outputs=outputs, types=types, constants=constants)


@rewrite()
def drop_identities(edit: Edit, node: Node) -> None:
    """Drop nodes that hand their first input on; graph outputs keep their names.

    before: a = reshape(x, its own shape); b = a * 1; c = concat(b); d = relu(c)
    after:  d = relu(x)
    """
    if len(node.outputs) == 1 and node.inputs and _does_nothing(edit, node):
        source, graph = node.inputs[0], edit.graph
        fixed = source in (*graph.inputs, *graph.outputs) or source in graph.constants
        if node.output not in edit.outputs or not fixed:
            edit.alias(node, source)


def _does_nothing(edit: Edit, node: Node) -> bool:
    if node.operator == "opaque" or edit.types[node.inputs[0]] != edit.types[node.output]:
        return False
    match node.operator:
        case "identity" | "reshape" | "expand" | "pad" | "cast":
            return True
        case "concat":
            return len(node.inputs) == 1
        case "transpose":
            return list(node.integers("permutation")) == sorted(node.integers("permutation"))
        case "slice":
            return all(step == 1 for step in node.integers("steps"))
        case _:
            wanted = _NEUTRAL.get(node.operator)
            return wanted is not None and edit.scalar(node.inputs[1]) == wanted


def fold_constants(graph: Graph) -> Graph:
    """Compute what depends on constants alone, with the numpy references.

    before: a = transpose(w); b = dense(x, a)
    after:  b = dense(x, w') with the constant w' = transpose(w)

    What `FoldingAllowance` does not grant stays unevaluated.
    """
    values: dict[str, Array] = dict(graph.constants)
    allowance = FoldingAllowance(graph.constants.values())
    nodes: list[Node] = []
    for node in graph.nodes:
        result = _folded(graph, node, values, allowance)
        if result is None:
            nodes.append(node)
        else:
            values[node.output] = result
    if len(nodes) == len(graph.nodes):
        return graph
    made = {name: TensorType(a.shape, str(a.dtype)) for name, a in values.items()}
    return produce_outputs(graph.rebuilt(nodes, types=made, constants=values))


def _folded(
    graph: Graph, node: Node, values: dict[str, Array], allowance: FoldingAllowance
) -> Array | None:
    if node.operator == "opaque" or not all(name in values for name in node.inputs):
        return None
    if node.operator == "identity" and node.output in graph.outputs:
        return None
    entry, kind = OPERATORS[node.operator], graph.types[node.output]
    sources = tuple(values[name] for name in node.inputs)
    kinds = tuple(graph.types[name] for name in node.inputs)
    half = any(each.dtype == "bfloat16" for each in (kind, *kinds))
    if half or not allowance.grants(kind, sources, entry.flop(kinds, kind, node.named)):
        return None
    try:
        result = entry.reference(sources, node.named)
    except IndexError:
        return None
    return np.ascontiguousarray(result).reshape(result.shape)


@rewrite()
def trim_constants(edit: Edit, node: Node) -> None:
    """Write broadcast constants without leading axes of one, so that equal work has equal keys.

    before: add(x[1,8,7,7], b[1,8,1,1])
    after:  add(x[1,8,7,7], b[8,1,1])
    """
    known = [name in edit.constants for name in node.inputs]
    if OPERATORS[node.operator].elementwise and len(known) > 1 and not all(known):
        edit.rewire(node, [_trimmed(edit, node, port) for port in range(len(known))])


def _trimmed(edit: Edit, node: Node, port: int) -> str:
    tensor = node.inputs[port]
    array = edit.constants.get(tensor)
    if array is None or array.ndim == 0 or array.shape[0] != 1:
        return tensor
    others = [edit.types[t] for i, t in enumerate(node.inputs) if i != port]
    if max(len(kind.shape) for kind in others) < array.ndim:
        return tensor
    first = next((axis for axis, size in enumerate(array.shape) if size != 1), array.ndim)
    if tensor not in edit.copies:
        edit.copies[tensor] = edit.constant(f"{tensor}.trimmed", array.reshape(array.shape[first:]))
    return edit.copies[tensor]


def share_duplicates(graph: Graph) -> Graph:
    """Compute equal things once, and keep small equal constants once.

    before: a = relu(x); b = relu(x); c = a + b
    after:  a = relu(x); c = a + a
    """
    edit = Edit(graph)
    same = _equal_constants(graph)
    known: dict[object, str] = {}
    for node in graph.nodes:
        if node.operator == "opaque":
            continue
        key = (node.operator, tuple(same.get(n, n) for n in node.inputs), node.attributes)
        first = known.setdefault(key, node.output)
        if first != node.output and not edit.outputs.issuperset((node.output, first)):
            same[node.output] = first
            edit.alias(node, first)
        else:
            edit.rewire(node, [same.get(n, n) if n in graph.constants else n for n in node.inputs])
    return edit.finish()


def _equal_constants(graph: Graph) -> dict[str, str]:
    first: dict[object, str] = {}
    return {
        name: first.setdefault((array.shape, str(array.dtype), array.tobytes()), name)
        for name, array in graph.constants.items()
        if array.nbytes <= _SMALL_BYTES
    }
