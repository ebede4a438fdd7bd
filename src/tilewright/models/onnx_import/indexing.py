"""Operators along one axis that positions decide: running sums, the largest elements, places that
indices name, parts of each sequence of a batch."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.clean.edit import only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    axis_of,
    over_axes,
    translates,
)

_RUNNING = {"CumSum": ("add", 0.0), "CumProd": ("multiply", 1.0)}
"""What joins elements, and what changes nothing."""


@translates(*_RUNNING)
def running(node: OnnxNode) -> Translated:
    """CumSum, CumProd: after one step each element is joined with the one before it, after two with
    three, and so on.

    before: [a, b, c, d]; after one step: [a, ab, bc, cd]; after two: [a, ab, abc, abcd]

    Source: W. D. Hillis, G. L. Steele, Data parallel algorithms, Communications of the ACM 29
    (1986).
    """
    x, axis = node.input(0), node.input(1)
    if axis.value is None:
        return over_axes(axis, x, combinations(range(x.rank), 1), partial(_running, node))
    return _running(node, (axis_of(node.known_integers(1)[0], x.rank, node.name),))


def _running(node: OnnxNode, axes: tuple[int, ...]) -> Tensor:
    x, (join, _), (axis,) = node.input(0), _RUNNING[node.operator], axes
    backward = {axis: slice(None, None, -1)} if node.integer("reverse", 0) else {}
    x, reach = x.cut(backward), 1
    if node.integer("exclusive", 0) and x.shape[axis]:
        x = _later(node, x, axis, 1)
    while reach < x.shape[axis]:
        x = x.emit(join, _later(node, x, axis, reach))
        reach *= 2
    return x.cut(backward)


def _later(node: OnnxNode, x: Tensor, axis: int, places: int) -> Tensor:
    """Every element so many places further along an axis, in front of them what changes nothing."""
    before, none = [0] * x.rank, [0] * x.rank
    before[axis] = places
    kept = x.cut({axis: slice(0, x.shape[axis] - places)})
    return kept.padded(before, none, _RUNNING[node.operator][1], "constant")


@translates("TopK")
def largest(node: OnnxNode) -> Translated:
    """TopK is carried along, with the number of elements that the model tells of its result."""
    only_if(node.given(1) is not None and node.value(1) is None)
    x = node.input(0)
    axis, declared = node.axis(x.rank, -1), node.declared()
    only_if(len(declared) == x.rank and declared[axis] <= x.shape[axis])
    count = node.implied(1, [declared[axis]])
    return node.altered((x, node.constant(np.array(count, np.int64))))


@translates("OneHot")
def one_hot(node: OnnxNode) -> Translated:
    """OneHot → a comparison with 0, 1, 2, …; negative indices count from the end, others that are
    out of range are nowhere."""
    indices, _, values = node.several(3)
    axis = node.axis(indices.rank + 1, -1)
    (depth,) = node.sizes(1, lambda: node.declared()[axis : axis + 1])
    only_if(0 < depth <= FOLDED_BYTES >> 3)
    spread = [*indices.shape[:axis], 1, *indices.shape[axis:]]
    wanted = indices.cast("int64").reshape(spread)
    wanted = wanted.emit("less", 0).emit("where", wanted + depth, wanted)
    places = node.constant(np.arange(depth).reshape(-1, *(1 for _ in spread[axis + 1 :])))
    off, on = (values.cut({0: slice(i, i + 1)}).reshape(()) for i in range(2))
    return wanted.emit("equal", places).emit("where", on, off)


@translates("ReverseSequence")
def reversed_sequences(node: OnnxNode) -> Translated:
    """ReverseSequence → rows of each sequence from its length on downwards, then the rest."""
    x, lengths = node.several(2)
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    only_if({time, batch} == {0, 1})
    x = x if batch == 0 else x.transpose((1, 0, *range(2, x.rank)))
    place = node.constant(np.arange(x.shape[1]))
    valid = node.constant(np.arange(x.shape[1] + 1))  # lengths beyond are indices out of range
    length = valid.emit("gather", lengths, axis=0).reshape((x.shape[0], 1))
    inside = place.emit("less", length)
    result = _rows(x, inside.emit("where", length - place - 1, place))
    return result if batch == 0 else result.transpose((1, 0, *range(2, x.rank)))


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """Of each tensor of a batch [B,N,…] the rows at its own places [B,M]."""
    batch, rows = x.shape[:2]
    starts = x.builder.constant(np.arange(batch)[:, None] * rows)
    return x.reshape((batch * rows, *x.shape[2:])).emit("gather", places + starts, axis=0)


@translates("TensorScatter")
def written_cache(node: OnnxNode) -> Translated:
    """TensorScatter: rows of a cache [B,…,N,…] replaced by new ones [B,…,M,…], from a place of each
    batch on; with `circular` from the start again behind the end."""
    (past, new), places = node.several(2), node.given(2)
    axis, mode = node.axis(past.rank, -2), node.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise ModelError(f"mode {quoted(mode)} is not known")
    only_if(axis > 0)
    if past.shape[0] == 1 and places and mode == "linear":
        return past.emit("cache_write", new, places, axis=axis)
    order = (0, axis, *(i for i in range(1, past.rank) if i != axis))
    back = [order.index(i) for i in range(past.rank)]
    past, new = past.transpose(order), new.transpose(order)
    (batch, rows), added = past.shape[:2], new.shape[1]
    start = places.cast("int64") if places else node.constant(np.zeros(batch, np.int64))
    place = node.constant(np.arange(rows)) - start.reshape((batch, 1))
    if mode == "circular":
        place = place.emit("modulo", rows)
    inside = place.emit("greater_equal", 0).emit("and", place.emit("less", added))
    found = _rows(new, inside.emit("where", place, place.filled(0)))
    written = inside.reshape((batch, rows, *(1 for _ in past.shape[2:]))).emit("where", found, past)
    return written.transpose(back)
