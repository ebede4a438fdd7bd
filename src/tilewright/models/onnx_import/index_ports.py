"""Which inputs of ONNX operators hold indices, and constants among them that are out of range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.indices import IndexRange, IndexUse
from tilewright.graph.network import Array
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode

Shapes = Sequence[tuple[int, ...]]
Rule = Callable[[OnnxNode, Shapes], Sequence[IndexUse]]
"""Node and the shapes of its inputs (empty where one is left out), then of its results."""


def indexed_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape; raises ModelError for that of a scalar."""
    if not shape:
        raise ModelError(f"node {quoted(node.name)} takes elements of a scalar by their index")
    return shape


def _along_axis(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """One index per element, along one axis of the first input."""
    axis = axis_of(node.integer("axis", 0), len(indexed_shape(node, shapes[0])), node.name)
    return (IndexUse(port=1, ranges=(IndexRange.of_axis(shapes[0][axis]),)),)


def _positions(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """The last axis of the indices holds a position in the first input, behind its batch axes."""
    batch, length = node.integer("batch_dims", 0), indexed_shape(node, shapes[1])[-1]
    extents = shapes[0][batch : batch + length]
    if len(extents) < length or not length:
        raise ModelError(
            f"node {quoted(node.name)} has indices of {length} numbers for a tensor of shape "
            f"{[*shapes[0]]} and {batch} batch axes"
        )
    return (IndexUse(port=1, ranges=tuple(IndexRange.of_axis(n) for n in extents)),)


def _whole(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Positions in the flattened result, the only one."""
    return (IndexUse(port=1, ranges=(IndexRange(lowest=0, highest=prod(shapes[-1]) - 1),)),)


def _images(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Images of a batch."""
    return (
        IndexUse(
            port=2, ranges=(IndexRange(lowest=0, highest=indexed_shape(node, shapes[0])[0] - 1),)
        ),
    )


def _embedded(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Words, segments and positions, each with a table of its own."""
    return [
        IndexUse(
            port=port,
            ranges=(IndexRange(lowest=0, highest=indexed_shape(node, shapes[table])[0] - 1),),
        )
        for port, table in ((0, 2), (1, 4), (8, 3))
        if node.input(port) and node.input(table)
    ]


_RULES: dict[str, Rule] = {
    "GatherElements": _along_axis,
    "ScatterElements": _along_axis,
    "Scatter": _along_axis,
    "GatherND": _positions,
    "ScatterND": _positions,
    "RoiAlign": _images,
    "MaxUnpool": _whole,
    "EmbedLayerNormalization": _embedded,
}

_DOMAINS = ("", "ai.onnx", "com.microsoft")


def checked_index_uses(
    node: OnnxNode,
    builder: GraphBuilder,
    inputs: Sequence[str],
    results: Sequence[TensorType],
) -> tuple[IndexUse, ...]:
    """What holds indices among the `inputs` that remain of a node's.

    Raises ModelError where one that is known is out of range.
    """
    rule = _RULES.get(node.operator) if node.domain in _DOMAINS else None
    if rule is None:
        return ()
    shapes = [builder.shape(name) if name else () for name in node.inputs]
    found: list[IndexUse] = []
    for use in rule(node, [*shapes, *(kind.shape for kind in results)]):
        name = node.input(use.port)
        known = builder.value(name)
        if name in inputs:  # a constant, too: the kernel alone is timed on random numbers
            found.append(IndexUse(port=list(inputs).index(name), ranges=use.ranges))
        if known is None:
            continue
        try:
            require_indices(known, use.ranges)
        except ModelError as error:
            text = f"node {quoted(node.name)} ({quoted(node.operator)}): {error.message}"
            raise ModelError(text) from error
    return tuple(found)


def require_indices(known: Array | None, ranges: Sequence[IndexRange]) -> None:
    """Raise ModelError when indices that are known are out of range."""
    if known is None or not known.size:
        return
    columns: Any = known.reshape(-1, len(ranges))
    for column, valid in enumerate(ranges):
        values = columns[:, column]
        wrong = values[(values < valid.lowest) | (values > valid.highest)]
        if wrong.size:
            raise ModelError(f"the index {np.ravel(wrong)[0]} is outside {valid}")
