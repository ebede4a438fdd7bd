"""Operators that pick, join, pad or repeat elements."""

from __future__ import annotations

import numpy as np

from tilewright.graph.folding import FOLDED_BYTES
from tilewright.graph.indices import IndexRange
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.index_ports import indexed_shape, require_indices
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Carried, Translated, translates


def slice_axes(builder: GraphBuilder, x: str, parts: dict[int, slice]) -> str:
    """The given range of some axes, resolved; the tensor itself when nothing is cut."""
    shape = builder.shape(x)
    ranges = [parts.get(i, slice(None)).indices(size) for i, size in enumerate(shape)]
    if all(r == (0, size, 1) for r, size in zip(ranges, shape, strict=True)):
        return x
    starts, stops, steps = (tuple(r[i] for r in ranges) for i in range(3))
    return builder.emit("slice", x, starts=starts, stops=stops, steps=steps)


@translates("Slice")
def cut(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Slice with ranges as attributes (before operator set 10) or inputs."""
    x = node.input(0)
    rank = len(builder.shape(x))
    if node.opset < 10:
        starts, stops, axes, steps = (node.integers("starts"), node.integers("ends"), None, None)
        axes = node.integers("axes")
    else:
        starts, stops, axes, steps = (
            builder.integers(node.input(i)) if node.input(i) else () for i in range(1, 5)
        )
    if starts is None or stops is None or axes is None or (node.input(4) and not steps):
        return None
    places = axes or tuple(range(len(starts)))
    parts = {
        axis_of(axis, rank, node.name): slice(starts[i], stops[i], steps[i] if steps else 1)
        for i, axis in enumerate(places)
    }
    return slice_axes(builder, x, parts)


@translates("CumSum")
def running_sum(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """CumSum is carried along; one from the end, which TVM's importer fails at, runs from the
    start of what is turned around."""
    x, known = node.input(0), builder.integers(node.input(1))
    if not node.integer("reverse", 0) or known is None:
        return None
    axis = axis_of(known[0], len(builder.shape(x)), node.name)

    def turned(name: str) -> str:
        return slice_axes(builder, name, {axis: slice(None, None, -1)})

    return Carried(node=node.altered((turned(x), node.inputs[1]), reverse=None), then=turned)


@translates("Split")
def split(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Split → one slice per output."""
    x = node.input(0)
    shape = builder.shape(x)
    axis = axis_of(node.integer("axis", 0), len(shape), node.name)
    sizes = builder.integers(node.input(1)) if node.input(1) else node.integers("split")
    if sizes is None:
        return None
    if not sizes:
        part = -(-shape[axis] // len(node.outputs))
        sizes = tuple(max(0, min(part, shape[axis] - i * part)) for i in range(len(node.outputs)))
    bounds = [0, *(int(stop) for stop in np.cumsum(sizes))]
    return tuple(
        slice_axes(builder, x, {axis: slice(bounds[i], bounds[i + 1])})
        for i in range(len(node.outputs))
    )


@translates("Concat")
def concat(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Concat; empty parts are left out."""
    rank = len(builder.shape(node.input(0)))
    axis = axis_of(node.integer("axis", 1), rank, node.name)
    parts = [name for name in node.inputs if builder.shape(name)[axis] > 0]
    if not parts:
        return node.input(0)
    return parts[0] if len(parts) == 1 else builder.emit("concat", *parts, axis=axis)


@translates("Gather")
def gather(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Gather; one known index is a slice."""
    x, indices = node.input(0), node.input(1)
    shape = indexed_shape(node, builder.shape(x))
    axis = axis_of(node.integer("axis", 0), len(shape), node.name)
    known = builder.value(indices)
    require_indices(known, (IndexRange.of_axis(shape[axis]),))
    if known is not None and known.size == 1 and builder.value(x) is None:
        index = int(known.reshape(-1)[0]) % shape[axis]
        part = slice_axes(builder, x, {axis: slice(index, index + 1)})
        return builder.reshape(part, (*shape[:axis], *known.shape, *shape[axis + 1 :]))
    return builder.emit("gather", x, indices, axis=axis)


@translates("Pad")
def pad(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Pad with amounts as attribute (before operator set 11) or inputs; negative ones cut."""
    x, mode = node.input(0), node.text("mode", "constant")
    shape = builder.shape(x)
    rank = len(shape)
    amounts, value = _padding(node, builder)
    if amounts is None or value is None or mode not in ("constant", "reflect", "edge", "wrap"):
        return None
    axes = builder.integers(node.input(3)) if node.input(3) else tuple(range(rank))
    if axes is None:
        return None
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        place = axis_of(axis, rank, node.name)
        before[place], after[place] = amounts[i], amounts[i + len(axes)]
    parts = {
        i: slice(max(0, -before[i]), shape[i] - max(0, -after[i]))
        for i in range(rank)
        if before[i] < 0 or after[i] < 0
    }
    x = slice_axes(builder, x, parts)
    before, after = [max(0, v) for v in before], [max(0, v) for v in after]
    if not any(before) and not any(after):
        return x
    if mode == "wrap":
        return _wrapped(builder, x, before, after)
    filling = value if np.isfinite(value) else ("inf" if value > 0 else "-inf")
    return builder.emit(
        "pad", x, before=tuple(before), after=tuple(after), value=filling, mode=mode
    )


def _wrapped(builder: GraphBuilder, x: str, before: list[int], after: list[int]) -> str:
    """Pad as if the tensor went on from the start behind its end: picked axis by axis."""
    for axis, size in enumerate(builder.shape(x)):
        if before[axis] or after[axis]:
            indices = np.arange(-before[axis], size + after[axis], dtype=np.int64) % size
            x = builder.emit("gather", x, builder.constant(indices), axis=axis)
    return x


def _padding(node: OnnxNode, builder: GraphBuilder) -> tuple[tuple[int, ...] | None, float | None]:
    if node.opset < 11:
        return node.integers("pads"), node.number("value", 0.0)
    if not node.input(2):
        return builder.integers(node.input(1)), 0.0
    value = builder.value(node.input(2))
    number = None if value is None else float(value.reshape(-1)[0]) if value.size else 0.0
    return builder.integers(node.input(1)), number


@translates("Trilu")
def triangle(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Trilu → where, with a mask that is a constant where the offset is."""
    x = node.input(0)
    rows, columns = builder.shape(x)[-2:]
    if rows * columns > FOLDED_BYTES:
        return None
    diagonal = builder.constant(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    offset = builder.constant(np.array(0))
    if node.input(1):
        offset = builder.reshape(node.input(1), ())
    operator = "greater_equal" if node.integer("upper", 1) else "less_equal"
    mask = builder.emit(operator, diagonal, offset)
    zero = builder.full((), 0, builder.dtype(x))
    return builder.emit("where", mask, x, zero)
