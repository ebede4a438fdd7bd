"""Operators whose result is known ahead, and those that do nothing in inference."""

from __future__ import annotations

from math import inf, isfinite, prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.folding import FOLDED_BYTES
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.training import HINT, training_refused


@translates("Constant")
def constant(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Constant in any of its forms but text and sparse."""
    tensor = node.tensor("value")
    if tensor is not None:
        return builder.constant(tensor)
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for form in (name, name + "s"):
            if node.has(form):
                return builder.constant(np.asarray(node.attributes[form], dtype))
    return None


@translates("ConstantOfShape")
def constant_of_shape(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """ConstantOfShape; float32 zeros by default."""
    shape, value = builder.integers(node.input(0)), node.tensor("value")
    if shape is None:
        return None
    filling = np.zeros(1, np.float32) if value is None else value
    if filling.size != 1 or min(shape, default=0) < 0:
        raise ModelError(f"{list(filling.shape)} values cannot fill a shape {list(shape)}")
    return builder.filled(shape, filling.reshape(()))


@translates("Shape")
def shape_of(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Shape: static by now."""
    shape = builder.shape(node.input(0))
    end = node.integer("end", len(shape))
    return builder.constant(np.asarray(shape[node.integer("start", 0) : end], np.int64))


@translates("Size")
def size_of(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Size: static by now."""
    return builder.constant(np.asarray(prod(builder.shape(node.input(0))), np.int64))


@translates("Range")
def value_range(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Range between constants."""
    start, limit, step = (builder.value(node.input(i)) for i in range(3))
    if start is None or limit is None or step is None:
        return None
    first, last, stride = (array.reshape(-1)[0].item() for array in (start, limit, step))
    count = (last - first) / stride if stride else inf
    if not isfinite(count):
        raise ModelError(f"no range leads from {first} to {last} in steps of {stride}")
    if count * start.itemsize > FOLDED_BYTES:
        return None
    return builder.constant(np.arange(first, last, stride, dtype=start.dtype))


@translates("EyeLike")
def eye_like(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """EyeLike of a float32 tensor, whose type is the result's."""
    if node.has("dtype"):
        return None
    x = node.input(0)
    rows, columns = builder.shape(x)
    if builder.bytes(x) > FOLDED_BYTES:
        return None
    diagonal = np.eye(rows, columns, node.integer("k", 0), dtype=np.dtype(builder.dtype(x)))
    return builder.constant(diagonal)


@translates("Identity")
def identity(node: OnnxNode, _builder: GraphBuilder) -> Translated:
    """Identity: the same tensor."""
    return node.input(0)


@translates("OptionalHasElement", "OptionalGetElement")
def optional(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """A tensor is an optional that has an element: itself; an input left out has none."""
    given = node.input(0)
    if node.operator == "OptionalHasElement":
        return builder.constant(np.array(bool(given)))
    if not given:
        raise ModelError("nothing is given to be taken out")
    return given


@translates("Dropout")
def dropout(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Dropout in inference: the same tensor, and a mask of ones where it is asked for."""
    training = builder.integers(node.input(2)) if node.input(2) else (0,)
    if training is None:
        raise ModelError("whether it trains depends on the data", hint=HINT)
    if any(training):
        raise training_refused()
    if not node.uses_output(1):
        return node.input(0)
    return node.input(0), builder.full(builder.shape(node.input(0)), 1, "bool")
