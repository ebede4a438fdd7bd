"""Random inputs that a network accepts."""

from __future__ import annotations

import numpy as np

from tilewright.graph.network import Array, Graph

_INTEGER_LIMIT = 100
_SAME_VALUES = frozenset({"identity", "reshape", "transpose", "expand", "slice", "cast"})


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """N(0, 1) for floats, valid indices for integers, coin flips for booleans; by input name."""
    rng = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype == "bool":
            values[name] = rng.integers(0, 2, kind.shape).astype(np.bool_)
        elif "int" in kind.dtype:
            values[name] = rng.integers(0, index_limit(graph, name), kind.shape).astype(kind.dtype)
        else:
            values[name] = rng.standard_normal(kind.shape, dtype=np.float32).astype(kind.dtype)
    return values


def index_limit(graph: Graph, tensor: str) -> int:
    """Integers from zero to below this are valid wherever `tensor` is used as an index."""
    limit = _INTEGER_LIMIT
    pending = [tensor]
    seen = {tensor}
    readers = graph.consumers()
    while pending:
        current = pending.pop()
        for node in readers.get(current, []):
            if node.operator == "gather" and len(node.inputs) == 2 and node.inputs[1] == current:
                axis = node.attribute("axis")
                if isinstance(axis, int):
                    limit = min(limit, graph.types[node.inputs[0]].shape[axis])
            elif node.operator in _SAME_VALUES and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                pending.append(node.outputs[0])
    return max(1, limit)
