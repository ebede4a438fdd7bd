"""Operators that change the shape and keep the order of the elements, or permute axes."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates


@translates("Reshape")
def reshape(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Reshape: 0 copies an axis, -1 takes what is left."""
    x, wanted = node.input(0), builder.integers(node.input(1))
    if wanted is None:
        return None
    shape = builder.shape(x)
    sizes = list(wanted)
    for i, size in enumerate(sizes):
        if size == 0 and not node.integer("allowzero", 0) and i < len(shape):
            sizes[i] = shape[i]
    if -1 in sizes:
        known = prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = prod(shape) // known if known else 0
    if prod(sizes) != prod(shape):
        raise ModelError(f"node {quoted(node.name)}: {list(shape)} does not fit {list(wanted)}")
    return builder.reshape(x, sizes)


@translates("Flatten")
def flatten(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Flatten to two axes."""
    shape = builder.shape(node.input(0))
    axis = node.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return builder.reshape(node.input(0), (prod(shape[:axis]), prod(shape[axis:])))


@translates("Squeeze", "Unsqueeze")
def squeeze(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Squeeze, Unsqueeze: axes as attribute (before operator set 13) or input."""
    x = node.input(0)
    shape = builder.shape(x)
    axes = builder.integers(node.input(1)) if node.input(1) else node.integers("axes")
    if axes is None:
        return None
    if node.operator == "Unsqueeze":
        rank = len(shape) + len(axes)
        places = {axis_of(axis, rank, node.name) for axis in axes}
        sizes = iter(shape)
        return builder.reshape(x, [1 if i in places else next(sizes) for i in range(rank)])
    places = {axis_of(axis, len(shape), node.name) for axis in axes}
    if not axes:
        places = {i for i, size in enumerate(shape) if size == 1}
    return builder.reshape(x, [size for i, size in enumerate(shape) if i not in places])


@translates("Transpose")
def transpose(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Transpose; all axes reversed by default."""
    x = node.input(0)
    reverse = tuple(reversed(range(len(builder.shape(x)))))
    return builder.transpose(x, node.integers("perm") or reverse)


@translates("Expand")
def expand(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Expand: the shapes broadcast both ways."""
    x, wanted = node.input(0), builder.integers(node.input(1))
    if wanted is None:
        return None
    shape = np.broadcast_shapes(builder.shape(x), wanted)
    if shape == builder.shape(x):
        return x
    return builder.emit("expand", x, shape=tuple(int(size) for size in shape))


@translates("Tile")
def tile(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Tile → reshape to [1,d0,1,d1,…], expand to [r0,d0,r1,d1,…], reshape."""
    x, repeats = node.input(0), builder.integers(node.input(1))
    if repeats is None:
        return None
    shape = builder.shape(x)
    if all(repeat == 1 for repeat in repeats):
        return x
    final = tuple(size * repeat for size, repeat in zip(shape, repeats, strict=True))
    if all(size == 1 or repeat == 1 for size, repeat in zip(shape, repeats, strict=True)):
        return builder.emit("expand", x, shape=final)
    split = builder.reshape(x, tuple(v for size in shape for v in (1, size)))
    pairs = zip(repeats, shape, strict=True)
    wide = builder.emit("expand", split, shape=tuple(v for pair in pairs for v in pair))
    return builder.reshape(wide, final)


@translates("DepthToSpace", "SpaceToDepth")
def depth_and_space(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """DepthToSpace, SpaceToDepth → reshape, transpose, reshape."""
    x, block = node.input(0), node.integer("blocksize", 1)
    n, c, h, w = builder.shape(x)
    blocks_first = node.text("mode", "DCR") == "DCR"
    if node.operator == "SpaceToDepth":
        split = builder.reshape(x, (n, c, h // block, block, w // block, block))
        order = (0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4)
        moved = builder.transpose(split, order)
        return builder.reshape(moved, (n, c * block * block, h // block, w // block))
    depth = c // (block * block)
    if blocks_first:
        split = builder.reshape(x, (n, block, block, depth, h, w))
        moved = builder.transpose(split, (0, 3, 4, 1, 5, 2))
    else:
        split = builder.reshape(x, (n, depth, block, block, h, w))
        moved = builder.transpose(split, (0, 1, 4, 2, 5, 3))
    return builder.reshape(moved, (n, depth, h * block, w * block))
