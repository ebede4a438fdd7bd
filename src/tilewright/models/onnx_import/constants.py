"""Operators whose result is known ahead, and those that do nothing in inference."""

from __future__ import annotations

from math import inf, isfinite, prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.models.onnx_import.node import (
    TRAINING_HINT,
    OnnxNode,
    Translated,
    training_refused,
    translates,
)


@translates("Constant")
def constant(node: OnnxNode) -> Translated:
    """Constant in any of its forms but text and sparse."""
    tensor = node.tensor("value")
    if tensor is not None:
        return node.constant(tensor)
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for form in (name, name + "s"):
            if form in node.attributes:
                return node.constant(np.asarray(node.attributes[form], dtype))
    return None


@translates("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> Translated:
    """ConstantOfShape; float32 zeros by default."""
    shape, value = node.input(0).integers, node.tensor("value")
    if shape is None:
        return None
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


@translates("Range")
def value_range(node: OnnxNode) -> Translated:
    """Range between constants."""
    start, limit, step = (node.value(i) for i in range(3))
    if start is None or limit is None or step is None:
        return None
    first, last, stride = (array.reshape(-1)[0].item() for array in (start, limit, step))
    count = (last - first) / stride if stride else inf
    if not isfinite(count):
        raise ModelError(f"no range leads from {first} to {last} in steps of {stride}")
    if count * start.itemsize > FOLDED_BYTES:
        return None
    return node.constant(np.arange(first, last, stride, dtype=start.dtype))


@translates("EyeLike")
def eye_like(node: OnnxNode) -> Translated:
    """EyeLike of a float32 tensor, whose type is the result's."""
    kind = node.input(0).type
    rows, columns = kind.shape
    if "dtype" in node.attributes or kind.bytes > FOLDED_BYTES:
        return None
    k = node.integer("k", 0)
    return node.constant(np.eye(rows, columns, k, dtype=np.dtype(kind.dtype)))


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
        raise ModelError("nothing is given to be taken out")
    return node.input(0)


@translates("Dropout")
def dropout(node: OnnxNode) -> Translated:
    """Dropout in inference: the same tensor, and a mask of ones where it is asked for."""
    training = node.known(2)
    if training is None:
        raise ModelError("whether it trains depends on the data", hint=TRAINING_HINT)
    if any(training):
        raise training_refused()
    x = node.input(0)
    return (x, node.builder.filled(x.shape, np.array(True))) if node.uses_output(1) else x
