"""Operators whose result is known ahead, and those that do nothing in inference."""

from __future__ import annotations

from math import inf, isfinite, prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.clean.edit import only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.models.onnx_import.node import (
    TRAINING_HINT,
    OnnxNode,
    Translated,
    training_refused,
    translates,
)

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
    shape, value = node.known_integers(0), node.tensor("value")
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
    arrays = [node.known(index) for index in range(3)]
    first, last, stride = (array.reshape(-1)[0].item() for array in arrays)
    count = (last - first) / stride if stride else inf
    if not isfinite(count):
        raise ModelError(f"no range leads from {first} to {last} in steps of {stride}")
    only_if(count * arrays[0].itemsize <= FOLDED_BYTES)
    return node.constant(np.arange(first, last, stride, dtype=arrays[0].dtype))


@translates("EyeLike")
def eye_like(node: OnnxNode) -> Translated:
    """EyeLike of a float32 tensor, whose type is the result's."""
    kind = node.input(0).type
    rows, columns = kind.shape
    only_if("dtype" not in node.attributes and kind.bytes <= FOLDED_BYTES)
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
