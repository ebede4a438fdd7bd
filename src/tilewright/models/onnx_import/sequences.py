"""Sequences of tensors: while a network is imported it is known which tensors they hold, so that
nothing of them is left in the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.inputs import IndexRange
from tilewright.models.onnx_import.movement import concat
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    require_indices,
    translates,
)


@translates("SequenceEmpty", "SequenceConstruct")
def construct(node: OnnxNode) -> Translated:
    """A sequence of the inputs."""
    return node.builder.sequence(node.several(len(node.inputs)))


@translates("SequenceInsert")
def insert(node: OnnxNode) -> Translated:
    """A sequence with one more tensor, at its end by default."""
    items = list(node.items(0))
    place = _place(node, 2, IndexRange(lowest=-len(items), highest=len(items)), len(items))
    items.insert(place, node.input(1))
    return node.builder.sequence(items)


@translates("SequenceErase")
def erase(node: OnnxNode) -> Translated:
    """A sequence without one tensor, the last by default."""
    items = list(node.items(0))
    del items[_place(node, 1, IndexRange.of_axis(len(items)), -1)]
    return node.builder.sequence(items)


@translates("SequenceAt")
def element(node: OnnxNode) -> Translated:
    """A tensor of a sequence."""
    items = node.items(0)
    return items[_place(node, 1, IndexRange.of_axis(len(items)), 0)]


def _place(node: OnnxNode, index: int, valid: IndexRange, default: int) -> int:
    """A place in a sequence; ModelError where it is outside, NotApplicable where it is unknown."""
    (place,) = node.known_integers(index, (default,))
    require_indices(np.array([place]), (valid,))
    return place


@translates("SequenceLength")
def length(node: OnnxNode) -> Translated:
    """How many tensors a sequence has."""
    return node.constant(np.array(len(node.items(0)), np.int64))


@translates("SplitToSequence")
def split(node: OnnxNode) -> Translated:
    """SplitToSequence → slices: of the sizes that are given, of one size of which the last part may
    have less, or of one element each, whose axis may go."""
    x, given = node.input(0), node.given(1)
    axis = node.axis(x.rank, 0)
    size = x.shape[axis]
    parts = node.known_integers(1, (1,))
    if given is None or not given.rank:
        if parts[0] < 1:
            raise ModelError(f"it makes parts of {parts[0]} elements")
        stops = [min(start + parts[0], size) for start in range(0, size, parts[0])]
    else:
        stops = np.cumsum(parts).tolist()
        if min(parts, default=0) < 0 or sum(parts) != size:
            raise ModelError(f"its parts {[*parts]} do not make {size} elements")
    cuts = [x.cut({axis: slice(*cut)}) for cut in zip([0, *stops], stops, strict=False)]
    if given is None and not node.integer("keepdims", 1):
        cuts = [cut.reshape((*x.shape[:axis], *x.shape[axis + 1 :])) for cut in cuts]
    return node.builder.sequence(cuts)


@translates("ConcatFromSequence")
def join(node: OnnxNode) -> Translated:
    """ConcatFromSequence → concat, along a new axis where that is asked for."""
    items = node.items(0)
    if not items:
        raise ModelError("the sequence that it joins is empty")
    new = node.integer("new_axis", 0)
    axis = node.axis(items[0].rank + new, 0)
    if new:
        items = tuple(x.reshape((*x.shape[:axis], 1, *x.shape[axis:])) for x in items)
    return concat(replace(node, inputs=items, attributes={"axis": axis}))


@translates("SequenceMap")
def each(node: OnnxNode) -> Translated:
    """SequenceMap → its body for each tensor of a sequence, with the tensors at the same place of
    other sequences."""
    count, body = len(node.items(0)), node.body("body")
    given = node.several(len(node.inputs))
    turns: list[tuple[Tensor, ...]] = []
    for turn in range(count):
        items = [tensor if tensor.items is None else tensor.items[turn] for tensor in given]
        turns.append(node.inside(body, items, str(turn)))
    return [
        node.builder.sequence([turn[place] for turn in turns]) for place in range(len(body.output))
    ]
