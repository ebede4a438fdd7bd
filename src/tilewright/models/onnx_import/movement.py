"""Operators that compute no numbers: their result is known ahead or handed on, or they pick, join,
pad, repeat or permute elements, or see them in another shape."""

from __future__ import annotations

from itertools import combinations
from math import inf, isfinite, prod

import numpy as np

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.clean.edit import found, only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.graph.inputs import IndexRange
from tilewright.models.onnx_import.node import (
    MOST_CHOICES,
    TRAINING_HINT,
    OnnxNode,
    Tensor,
    Translated,
    axis_of,
    indexed_shape,
    require_indices,
    training_refused,
    translates,
)
from tilewright.models.onnx_model import dtype_name

_NUMBERS = {"value_float": "float32", "value_floats": "float32", "value_int": "int64",
            "value_ints": "int64"}  # fmt: skip


@translates("Constant")
def constant(node: OnnxNode) -> Translated:
    """Constant in any of its forms but text and sparse."""
    tensor = node.tensor("value")
    if tensor is not None:
        return node.constant(tensor)
    for name, dtype in _NUMBERS.items():
        if name in node.attributes:
            return node.constant(np.asarray(node.attributes[name], dtype))
    return node


@translates("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> Translated:
    """ConstantOfShape; float32 zeros by default."""
    shape, value = node.sizes(0, node.declared), node.tensor("value")
    filling = np.zeros(1, np.float32) if value is None else value
    if filling.size != 1 or min(shape, default=0) < 0:
        raise ModelError(f"{list(filling.shape)} values cannot fill a shape {list(shape)}")
    return node.builder.filled(shape, filling.reshape(()))


@translates("Shape")
def shape_of(node: OnnxNode) -> Translated:
    """Shape: static by now."""
    sizes = np.asarray(node.input(0).shape, np.int64)
    return node.constant(sizes[node.integer("start", 0) : node.integer("end", len(sizes))])


@translates("Size")
def size_of(node: OnnxNode) -> Translated:
    """Size: static by now."""
    return node.constant(np.asarray(prod(node.input(0).shape), np.int64))


def _imply_range(node: OnnxNode, count: int) -> None:
    """Note values that give a range of so many elements. NotApplicable where those that are known
    give none."""
    values = (node.value(index) for index in range(3))
    first, last, stride = (None if v is None else v.reshape(-1)[0].item() for v in values)
    step = 1 if stride is None else stride
    begin = first if first is not None else 0 if last is None else last - count * step
    end = begin + count * step if last is None else last
    only_if(bool(step) and -((begin - end) // step) == count)
    for place, (known, value) in enumerate(((first, begin), (last, end), (stride, step))):
        if known is None:
            node.implied(place, [value], exact=False)


@translates("Range")
def value_range(node: OnnxNode) -> Translated:
    """Range between constants; else first + stride * (0, 1, …), where the model tells how many."""
    if any(node.value(index) is None for index in range(3)):
        first, _, stride = node.several(3)
        (count,) = node.declared()
        only_if(count * np.dtype(first.dtype).itemsize <= FOLDED_BYTES)
        _imply_range(node, count)
        counted = node.constant(np.arange(count).astype(np.dtype(first.dtype)))
        return counted * stride.reshape(()) + first.reshape(())
    arrays = [node.known(index) for index in range(3)]
    first, last, stride = (array.reshape(-1)[0].item() for array in arrays)
    count = (last - first) / stride if stride else inf
    if not isfinite(count):
        raise ModelError(f"no range leads from {first} to {last} in steps of {stride}")
    only_if(count * arrays[0].itemsize <= FOLDED_BYTES)
    return node.constant(np.arange(first, last, stride, dtype=arrays[0].dtype))


@translates("EyeLike")
def eye_like(node: OnnxNode) -> Translated:
    """EyeLike, of the type of its operand if it names no other."""
    kind, code = node.input(0).type, node.integer("dtype", 0)
    rows, columns = kind.shape
    only_if(kind.bytes <= FOLDED_BYTES)
    dtype = dtype_name(code, f"the result of node {quoted(node.name)}") if code else kind.dtype
    return node.constant(np.eye(rows, columns, node.integer("k", 0), dtype=np.dtype(dtype)))


@translates("Identity")
def identity(node: OnnxNode) -> Translated:
    """Identity: the same tensor."""
    return node.input(0)


@translates("OptionalHasElement", "OptionalGetElement")
def optional(node: OnnxNode) -> Translated:
    """A tensor is an optional that has an element: itself; an input left out has none."""
    if node.operator == "OptionalHasElement":
        return node.constant(np.array(node.given(0) is not None))
    if node.given(0) is None:
        raise ModelError("its optional has no element")
    return node.input(0)


@translates("Dropout")
def dropout(node: OnnxNode) -> Translated:
    """Dropout in inference: the same tensor, and a mask of ones where it is asked for."""
    if node.given(2) and node.value(2) is None:
        raise ModelError("whether it is in training mode depends on the data", hint=TRAINING_HINT)
    if any(node.known_integers(2, ())):
        raise training_refused()
    x = node.input(0)
    return (x, node.builder.filled(x.shape, np.array(True))) if node.uses_output(1) else x


@translates("Slice")
def cut(node: OnnxNode) -> Translated:
    """Slice with ranges as attributes (before operator set 10) or inputs."""
    x = node.input(0)
    if node.opset < 10:
        ranges = [*(node.integers(name) for name in ("starts", "ends", "axes")), ()]
    else:
        ranges = [node.known_integers(index, ()) for index in range(1, 5)]
    starts, stops, axes, steps = ranges
    only_if(bool(steps) or not node.given(4))
    return x.cut(
        {
            axis_of(axis, x.rank, node.name): slice(starts[i], stops[i], steps[i] if steps else 1)
            for i, axis in enumerate(axes or range(len(starts)))
        }
    )


@translates("Split")
def split(node: OnnxNode) -> Translated:
    """Split → one slice per output."""
    x, parts = node.input(0), len(node.proto.output)
    axis = node.axis(x.rank, 0)
    sizes = node.integers("split")
    if node.given(1):
        sizes = node.sizes(1, lambda: [node.declared(part)[axis] for part in range(parts)])
    if not sizes:
        part = -(-x.shape[axis] // parts)
        sizes = tuple(max(0, min(part, x.shape[axis] - i * part)) for i in range(parts))
    bounds = [0, *(int(stop) for stop in np.cumsum(sizes))]
    return tuple(x.cut({axis: slice(bounds[i], bounds[i + 1])}) for i in range(parts))


@translates("Concat")
def concat(node: OnnxNode) -> Translated:
    """Concat; empty parts are left out."""
    tensors = node.several(len(node.inputs))
    axis = node.axis(tensors[0].rank, 1)
    parts = [tensor for tensor in tensors if tensor.shape[axis] > 0]
    if len(parts) < 2:
        return (*parts, tensors[0])[0]
    return node.builder.emit("concat", *parts, axis=axis)


@translates("Gather")
def gather(node: OnnxNode) -> Translated:
    """Gather; one known index is a slice."""
    x, indices = node.several(2)
    shape = indexed_shape(node, x.shape)
    axis = node.axis(x.rank, 0)
    known = indices.value
    require_indices(known, (IndexRange.of_axis(shape[axis]),))
    if known is not None and known.size == 1 and x.value is None:
        index = int(known.reshape(-1)[0]) % shape[axis]
        wanted = (*shape[:axis], *known.shape, *shape[axis + 1 :])
        return x.cut({axis: slice(index, index + 1)}).reshape(wanted)
    return x.emit("gather", indices, axis=axis)


@translates("Pad")
def pad(node: OnnxNode) -> Translated:
    """Pad with amounts as attribute (before operator set 11) or inputs; negative ones cut."""
    x, mode = node.input(0), node.text("mode", "constant")
    (amounts, value), axes = _padding(node), node.known_integers(3, tuple(range(x.rank)))
    only_if(mode in ("constant", "reflect", "edge", "wrap"))
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        place = axis_of(axis, x.rank, node.name)
        before[place], after[place] = amounts[i], amounts[i + len(axes)]
    x = x.cut(
        {
            i: slice(max(0, -before[i]), size - max(0, -after[i]))
            for i, size in enumerate(x.shape)
            if before[i] < 0 or after[i] < 0
        }
    )
    before, after = ([max(0, amount) for amount in side] for side in (before, after))
    if not any(before) and not any(after):
        return x
    if mode == "wrap":
        return _wrapped(x, before, after)
    filling = value if np.isfinite(value) else ("inf" if value > 0 else "-inf")
    return x.padded(before, after, filling, mode)


def _wrapped(x: Tensor, before: list[int], after: list[int]) -> Tensor:
    """Pad as if the tensor went on from the start behind its end: picked axis by axis."""
    for axis, size in enumerate(x.shape):
        if before[axis] or after[axis]:
            x = x.take(np.arange(-before[axis], size + after[axis], dtype=np.int64) % size, axis)
    return x


def _padding(node: OnnxNode) -> tuple[tuple[int, ...], float]:
    """The amounts and the value."""
    if node.opset < 11:
        return node.integers("pads"), node.number("value", 0.0)
    value = node.known(2) if node.given(2) else np.zeros(1)
    return node.known_integers(1), float(value.reshape(-1)[0]) if value.size else 0.0


@translates("Trilu")
def triangle(node: OnnxNode) -> Translated:
    """Trilu → where, with a mask that is a constant where the offset is."""
    x, given = node.input(0), node.given(1)
    rows, columns = x.shape[-2:]
    only_if(rows * columns <= FOLDED_BYTES)
    diagonal = node.constant(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    offset = given.reshape(()) if given else node.constant(np.array(0))
    kept = diagonal.emit("greater_equal" if node.integer("upper", 1) else "less_equal", offset)
    return kept.emit("where", x, x.filled(0))


@translates("Reshape")
def reshape(node: OnnxNode) -> Translated:
    """Reshape: 0 copies an axis, -1 takes what is left."""
    x, wanted = node.input(0), node.sizes(1, node.declared, exact=False)
    sizes = list(wanted)
    for i, size in enumerate(sizes):
        copies = size == 0 and node.value(1) is not None and not node.integer("allowzero", 0)
        if copies and i < x.rank:
            sizes[i] = x.shape[i]
    if -1 in sizes:
        known = prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = prod(x.shape) // known if known else 0
    if prod(sizes) != prod(x.shape):
        raise ModelError(f"node {quoted(node.name)}: {[*x.shape]} does not fit {[*wanted]}")
    return x.reshape(sizes)


@translates("Flatten")
def flatten(node: OnnxNode) -> Translated:
    """Flatten to two axes."""
    x, axis = node.input(0), node.integer("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return x.reshape((prod(x.shape[:axis]), prod(x.shape[axis:])))


@translates("Squeeze", "Unsqueeze")
def squeeze(node: OnnxNode) -> Translated:
    """Squeeze, Unsqueeze: axes as attribute (before operator set 13) or input."""
    x = node.input(0)
    if node.given(1) and node.value(1) is None:
        return x.reshape(_implied_by_ones(node, x.shape, node.declared()))
    axes = node.known_integers(1, node.integers("axes"))
    rank = x.rank + (len(axes) if node.operator == "Unsqueeze" else 0)
    places = {axis_of(axis, rank, node.name) for axis in axes}
    if node.operator == "Unsqueeze":
        sizes = iter(x.shape)
        return x.reshape([1 if i in places else next(sizes) for i in range(rank)])
    gone = places or {i for i, size in enumerate(x.shape) if size == 1}
    return x.reshape([size for i, size in enumerate(x.shape) if i not in gone])


def _implied_by_ones(
    node: OnnxNode, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape `after`, with an example of the axes that come or go noted."""
    short, long = sorted((before, after), key=len)
    only_if(len(long) <= MOST_CHOICES)
    ones = combinations([i for i, size in enumerate(long) if size == 1], len(long) - len(short))
    fitting = [c for c in ones if tuple(s for i, s in enumerate(long) if i not in c) == short]
    node.implied(1, found(next(iter(fitting), None)), exact=False)
    return after


@translates("Transpose")
def transpose(node: OnnxNode) -> Translated:
    """Transpose; all axes reversed by default."""
    x = node.input(0)
    return x.transpose(node.integers("perm") or range(x.rank)[::-1])


@translates("Expand")
def expand(node: OnnxNode) -> Translated:
    """Expand: the shapes broadcast both ways."""
    x = node.input(0)
    wanted = node.sizes(1, lambda: node.declared()[-node.input(1).type.elements :], exact=False)
    shape = np.broadcast_shapes(x.shape, wanted)
    return x if shape == x.shape else x.emit("expand", shape=tuple(int(size) for size in shape))


@translates("Tile")
def tile(node: OnnxNode) -> Translated:
    """Tile → reshape to [1,d0,1,d1,…], expand to [r0,d0,r1,d1,…], reshape."""
    x = node.input(0)
    repeats = node.sizes(
        1, lambda: [s // max(x.shape[i], 1) for i, s in enumerate(node.declared())]
    )
    if all(repeat == 1 for repeat in repeats):
        return x
    pairs = list(zip(repeats, x.shape, strict=True))
    final = tuple(size * repeat for repeat, size in pairs)
    if all(1 in pair for pair in pairs):
        return x.emit("expand", shape=final)
    split = x.reshape([v for size in x.shape for v in (1, size)])
    return split.emit("expand", shape=tuple(v for pair in pairs for v in pair)).reshape(final)


@translates("DepthToSpace", "SpaceToDepth")
def depth_and_space(node: OnnxNode) -> Translated:
    """DepthToSpace, SpaceToDepth → reshape, transpose, reshape."""
    x, block = node.input(0), node.integer("blocksize", 1)
    n, c, h, w = x.shape
    blocks_first = node.text("mode", "DCR") == "DCR"
    if node.operator == "SpaceToDepth":
        order = (0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4)
        split = x.reshape((n, c, h // block, block, w // block, block)).transpose(order)
        return split.reshape((n, c * block * block, h // block, w // block))
    depth = c // (block * block)
    parts, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    if blocks_first:
        parts, order = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    return x.reshape(parts).transpose(order).reshape((n, depth, h * block, w * block))
