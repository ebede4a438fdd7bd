"""Random inputs that a network accepts."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from tilewright.graph.indices import argument_uses, index_limit, index_uses
from tilewright.graph.network import Array, Graph
from tilewright.graph.workload import Workload

_INTEGER_LIMIT = 100
_WANTED_SPREAD = 50.0
_SPREADS = {"int8": 74.0, "uint8": 147.0}
"""Root mean square of evenly distributed bytes."""
_SAME_VALUES = frozenset({"identity", "reshape", "transpose", "expand", "slice", "cast"})


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """N(0, 1) for floats, valid indices for integers, coin flips for booleans; by input name."""
    rng = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype == "bool" or "int" in kind.dtype:
            limit = 2 if kind.dtype == "bool" else input_limit(graph, name)
            values[name] = rng.integers(0, limit, kind.shape).astype(kind.dtype)
        else:
            values[name] = rng.standard_normal(kind.shape, dtype=np.float32).astype(kind.dtype)
    return values


def input_limit(graph: Graph, tensor: str) -> int:
    """Integers from zero to below this are valid wherever `tensor` is used as an index."""
    limits: dict[str, int] = {}
    for node in reversed(graph.nodes):
        for use in index_uses(node, [graph.types[name] for name in node.inputs]):
            name = node.inputs[use.port]
            limits[name] = index_limit((use,), limits.get(name, _INTEGER_LIMIT))
        if node.operator in _SAME_VALUES:
            name, below = node.inputs[0], limits.get(node.outputs[0], _INTEGER_LIMIT)
            limits[name] = min(limits.get(name, _INTEGER_LIMIT), below)
    return limits.get(tensor, _INTEGER_LIMIT)


def argument_limit(workload: Workload) -> int:
    """Integers from zero to below this are valid wherever the workload uses them as indices."""
    return index_limit(argument_uses(workload), _INTEGER_LIMIT)


def requantizing_scales(workload: Workload) -> dict[int, float]:
    """Sizes for float arguments that scale sums of random bytes, so that results fit a byte.

    By argument index; empty where no sum of bytes is scaled.
    """
    anchor, index = workload.anchor, workload.anchor_index
    if anchor is None or index is None or workload.step_types(index)[1].dtype != "int32":
        return {}
    operands, _ = workload.step_types(index)
    if len(operands) != 2:
        return {}
    spread = prod(_SPREADS.get(kind.dtype, 1.0) for kind in operands)
    size = _WANTED_SPREAD / (spread * sqrt(max(1, prod(operands[1].shape[1:]))))
    count = len(workload.arguments)
    for step in workload.steps[index + 1 :]:
        scales = [i for i in step.inputs if i < count]
        if step.operator == "multiply" and len(scales) == 1:
            floats = workload.arguments[scales[0]].type.dtype == "float32"
            return {scales[0]: size} if floats else {}
    return {}
