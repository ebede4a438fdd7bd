"""Random weights for a model whose own say nothing, such as one shipped without training."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.graph.network import Array


def randomize_weights(model: onnx.ModelProto, *, seed: int = 0) -> onnx.ModelProto:
    """A copy whose float constants of more than one element are seeded random values.

    Matrices and filters are normal with variance 2/fan-in (He et al., 2015, equation 10), so
    values keep their size from layer to layer; vectors are uniform in [0.5, 1.5], so they may be
    variances. Constants made by ConstantOfShape are replaced too.
    """
    result = onnx.ModelProto.FromString(model.SerializeToString())
    generator = np.random.default_rng(seed)
    known = {tensor.name: tensor for tensor in result.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in result.graph.node:
        made = _filled_shape(node, known)
        if made is None:
            nodes.append(node)
        else:
            values = _random(generator, made)
            result.graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del result.graph.node[:]
    result.graph.node.extend(copies)
    for tensor in result.graph.initializer:
        if tensor.name in known and tensor.data_type == onnx.TensorProto.FLOAT:
            shape = tuple(tensor.dims)
            if prod(shape) > 1:
                tensor.CopyFrom(numpy_helper.from_array(_random(generator, shape), tensor.name))
    return result


def _filled_shape(
    node: onnx.NodeProto, known: dict[str, onnx.TensorProto]
) -> tuple[int, ...] | None:
    """The shape of a float ConstantOfShape of known shape."""
    if node.op_type != "ConstantOfShape" or node.input[0] not in known:
        return None
    floats = all(a.t.data_type == onnx.TensorProto.FLOAT for a in node.attribute)
    shape = tuple(int(size) for size in numpy_helper.to_array(known[node.input[0]]))
    return shape if floats and prod(shape) > 1 else None


def _random(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if len(shape) < 2:
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    spread = sqrt(2 / prod(shape[1:]))
    return (generator.standard_normal(shape, np.float32) * np.float32(spread)).astype(np.float32)
