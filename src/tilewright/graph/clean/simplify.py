"""Dropping what does nothing and computing what is known."""

from __future__ import annotations

import numpy as np

from tilewright.graph.clean.edit import Edit
from tilewright.graph.clean.outputs import produce_outputs
from tilewright.graph.folding import FoldingAllowance
from tilewright.graph.network import Array, Graph, Node
from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.checks import integers
from tilewright.graph.tensor import TensorType

_SMALL_BYTES = 64 << 10


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


def drop_identities(graph: Graph) -> Graph:
    """Drop nodes that hand their first input on; graph outputs keep their names.

    before: a = reshape(x, its own shape); b = a * 1; c = concat(b); d = relu(c)
    after:  d = relu(x)
    """
    edit = Edit(graph)
    fixed = {*graph.inputs, *graph.outputs, *graph.constants}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else ""
        if (
            len(node.outputs) == 1
            and _does_nothing(edit, node)
            and (node.outputs[0] not in graph.outputs or source not in fixed)
        ):
            edit.alias(node, source)
    return edit.finish()


def _does_nothing(edit: Edit, node: Node) -> bool:
    if node.operator == "opaque" or edit.types[node.inputs[0]] != edit.types[node.output]:
        return False
    if node.operator in ("identity", "reshape", "expand", "pad", "cast"):
        return True
    if node.operator == "concat":
        return len(node.inputs) == 1
    if node.operator == "transpose":
        order = integers(dict(node.attributes), "permutation")
        return order == tuple(range(len(order)))
    if node.operator == "slice":
        return all(step == 1 for step in integers(dict(node.attributes), "steps"))
    neutral = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0, "power": 1.0}
    wanted = neutral.get(node.operator)
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
    folded = graph.rebuilt(nodes, types=made, constants=values)
    return produce_outputs(folded)


def _folded(
    graph: Graph, node: Node, values: dict[str, Array], allowance: FoldingAllowance
) -> Array | None:
    if node.operator == "opaque" or not all(name in values for name in node.inputs):
        return None
    if node.operator == "identity" and node.output in graph.outputs:
        return None
    entry, named = OPERATORS[node.operator], dict(node.attributes)
    sources = tuple(values[name] for name in node.inputs)
    kinds = tuple(graph.types[name] for name in node.inputs)
    result_type = graph.types[node.output]
    if "bfloat16" in {kind.dtype for kind in (result_type, *kinds)}:
        return None
    if not allowance.grants(result_type, sources, entry.flop(kinds, result_type, named)):
        return None
    try:
        result = entry.reference(sources, named)
    except IndexError:
        return None
    return np.ascontiguousarray(result).reshape(result.shape)


def trim_constants(graph: Graph) -> Graph:
    """Write broadcast constants without leading axes of one, so that equal work has equal keys.

    before: add(x[1,8,7,7], b[1,8,1,1])
    after:  add(x[1,8,7,7], b[8,1,1])
    """
    edit = Edit(graph)
    trimmed: dict[str, str] = {}
    for node in graph.nodes:
        if not OPERATORS[node.operator].elementwise or len(node.inputs) < 2:
            continue
        inputs = [_trim(edit, node, port, trimmed) for port in range(len(node.inputs))]
        if tuple(inputs) != node.inputs:
            edit.rewire(node, inputs)
    return edit.finish()


def _trim(edit: Edit, node: Node, port: int, trimmed: dict[str, str]) -> str:
    tensor = node.inputs[port]
    array = edit.constants.get(tensor)
    if array is None or array.ndim == 0 or array.shape[0] != 1:
        return tensor
    shape = array.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    others = [edit.types[t] for i, t in enumerate(node.inputs) if i != port]
    if max(len(kind.shape) for kind in others) < array.ndim:
        return tensor
    if all(name in edit.constants for name in node.inputs):
        return tensor
    if tensor not in trimmed:
        trimmed[tensor] = edit.constant(f"{tensor}.trimmed", array.reshape(shape))
    return trimmed[tensor]


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
        inputs = tuple(same.get(name, name) for name in node.inputs)
        key = (node.operator, inputs, node.attributes)
        if key in known and not (edit.is_output(node.output) and edit.is_output(known[key])):
            same[node.output] = known[key]
            edit.alias(node, known[key])
            continue
        known.setdefault(key, node.output)
        if any(name in graph.constants and same.get(name, name) != name for name in node.inputs):
            shared = [same.get(n, n) if n in graph.constants else n for n in node.inputs]
            edit.rewire(node, shared)
    return edit.finish()


def _equal_constants(graph: Graph) -> dict[str, str]:
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for name, array in graph.constants.items():
        if array.nbytes <= _SMALL_BYTES:
            original = first.setdefault((array.shape, str(array.dtype), array.tobytes()), name)
            if original != name:
                same[name] = original
    return same
