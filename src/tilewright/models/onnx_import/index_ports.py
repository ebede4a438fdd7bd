"""Which inputs of ONNX operators hold indices, and constants among them that are out of range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.core.errors import ModelError
from tilewright.graph.indices import IndexRange, IndexUse
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import Tensor
from tilewright.models.onnx_import.node import OnnxNode, indexed_shape, require_indices

Shapes = Sequence[tuple[int, ...]]
Rule = Callable[[OnnxNode, Shapes], Sequence[IndexUse]]
"""Node and the shapes of its inputs (empty where one is left out), then of its results."""


def _along_axis(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """One index per element, along one axis of the first input."""
    axis = node.axis(len(indexed_shape(node, shapes[0])), 0)
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


def _counted(port: int, extent: int) -> IndexUse:
    """Indices that do not count from the end."""
    return IndexUse(port=port, ranges=(IndexRange(lowest=0, highest=extent - 1),))


def _whole(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Positions in the flattened result, the only one."""
    return (_counted(1, prod(shapes[-1])),)


def _images(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Images of a batch."""
    return (_counted(2, indexed_shape(node, shapes[0])[0]),)


def _embedded(node: OnnxNode, shapes: Shapes) -> Sequence[IndexUse]:
    """Words, segments and positions, each with a table of its own."""
    return [
        _counted(port, indexed_shape(node, shapes[table])[0])
        for port, table in ((0, 2), (1, 4), (8, 3))
        if node.given(port) and node.given(table)
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
    node: OnnxNode, inputs: Sequence[Tensor], results: Sequence[TensorType]
) -> tuple[IndexUse, ...]:
    """What holds indices among the `inputs` that remain of a node's.

    Raises ModelError where one that is known is out of range.
    """
    rule = _RULES.get(node.operator) if node.proto.domain in _DOMAINS else None
    if rule is None:
        return ()
    shapes = [tensor.shape if tensor else () for tensor in node.inputs]
    found: list[IndexUse] = []
    for use in rule(node, [*shapes, *(kind.shape for kind in results)]):
        tensor = node.input(use.port)
        if tensor in inputs:  # a constant, too: the kernel alone is timed on random numbers
            found.append(IndexUse(port=list(inputs).index(tensor), ranges=use.ranges))
        try:
            require_indices(tensor.value, use.ranges)
        except ModelError as error:
            raise ModelError(f"{node.title}: {error.message}") from error
    return tuple(found)
