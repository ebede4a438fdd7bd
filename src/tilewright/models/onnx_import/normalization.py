"""Softmax and normalisations."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx

from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.training import training_refused
from tilewright.models.weights import dtype_name


@translates("Softmax", "LogSoftmax")
def softmax(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Softmax; before operator set 13 over all axes from `axis` on, as one."""
    x = node.input(0)
    shape = builder.shape(x)
    operator = "softmax" if node.operator == "Softmax" else "log_softmax"
    axis = axis_of(node.integer("axis", -1 if node.opset >= 13 else 1), len(shape), node.name)
    if node.opset >= 13 or prod(shape[axis + 1 :]) == 1:
        return builder.emit(operator, x, axis=axis)
    flat = builder.reshape(x, (prod(shape[:axis]), prod(shape[axis:])))
    return builder.reshape(builder.emit(operator, flat, axis=1), shape)


@translates("BatchNormalization")
def batch_normalization(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Inference form → multiply and add of constants [C,1,1], computed in float64.

    Before: BatchNormalization(x, scale, bias, mean, variance); after: x * factor + offset.
    """
    if node.integer("training_mode", 0) or any(map(node.uses_output, range(1, 5))):
        raise training_refused()
    parameters = [builder.value(node.input(i)) for i in range(1, 5)]
    scale, bias, mean, variance = (
        None if array is None else array.astype(np.float64) for array in parameters
    )
    if scale is None or bias is None or mean is None or variance is None:
        return None
    x = node.input(0)
    factor = scale / np.sqrt(variance + node.number("epsilon", 1e-5))
    offset = bias - mean * factor
    spread = (-1, *(1 for _ in builder.shape(x)[2:]))
    dtype = np.dtype(builder.dtype(x))
    product = builder.emit("multiply", x, builder.constant(factor.astype(dtype).reshape(spread)))
    return builder.emit("add", product, builder.constant(offset.astype(dtype).reshape(spread)))


@translates("LRN")
def local_response(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """LRN."""
    if len(builder.shape(node.input(0))) != 4:
        return None
    return builder.emit(
        "lrn",
        node.input(0),
        size=node.integer("size", 1),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )


@translates("InstanceNormalization")
def instance_normalization(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """InstanceNormalization → instance_norm."""
    if len(builder.shape(node.input(0))) < 3:
        return None
    return builder.emit("instance_norm", *node.inputs[:3], epsilon=node.number("epsilon", 1e-5))


@translates("LayerNormalization")
def layer_normalization(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """LayerNormalization → layer_norm; a missing bias is zero. What it is normalised by, where it
    is asked for, is computed beside it."""
    x, scale, bias = node.input(0), node.input(1), node.input(2)
    axis = axis_of(node.integer("axis", -1), len(builder.shape(x)), node.name)
    if not bias:
        bias = builder.full(builder.shape(scale), 0, builder.dtype(x))
    result = builder.emit("layer_norm", x, scale, bias, axis=axis, epsilon=_epsilon(node))
    if not node.uses_output(1) and not node.uses_output(2):
        return result
    return result, *_mean_and_deviation(node, builder, axis)


def _mean_and_deviation(node: OnnxNode, builder: GraphBuilder, axis: int) -> tuple[str, str]:
    """The mean, and one over the standard deviation, of the axes from `axis` on, in the type that
    `stash_type` names."""
    x, code = node.input(0), node.integer("stash_type", onnx.TensorProto.FLOAT)
    kind = dtype_name(code, f"the mean of node {quoted(node.name)}")
    axes = tuple(range(axis, len(builder.shape(x))))
    if builder.dtype(x) != kind:
        x = builder.emit("cast", x, dtype=kind)
    mean = builder.emit("reduce_mean", x, axes=axes, keepdims=True)
    centred = builder.emit("subtract", x, mean)
    square = builder.emit("multiply", centred, centred)
    variance = builder.emit("reduce_mean", square, axes=axes, keepdims=True)
    epsilon = builder.full((), _epsilon(node), kind)
    return mean, builder.emit("rsqrt", builder.emit("add", variance, epsilon))


@translates("RMSNormalization")
def root_mean_square_normalization(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """RMSNormalization → x * rsqrt(mean(x * x) + epsilon) * scale."""
    x, scale = node.input(0), node.input(1)
    rank = len(builder.shape(x))
    axes = tuple(range(axis_of(node.integer("axis", -1), rank, node.name), rank))
    square = builder.emit("multiply", x, x)
    mean = builder.emit("reduce_mean", square, axes=axes, keepdims=True)
    epsilon = builder.full((), _epsilon(node), builder.dtype(x))
    spread = builder.emit("rsqrt", builder.emit("add", mean, epsilon))
    return builder.emit("multiply", builder.emit("multiply", x, spread), scale)


@translates("GroupNormalization")
def group_normalization(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """GroupNormalization → instance_norm over groups as channels, then scale and bias."""
    x, scale, bias = node.input(0), node.input(1), node.input(2)
    shape, groups, dtype = (builder.shape(x), node.integer("num_groups", 1), builder.dtype(x))
    if len(shape) < 2 or shape[1] % groups:
        return None
    grouped = builder.reshape(x, (shape[0], groups, prod(shape[1:]) // groups))
    ones, zeros = (builder.full((groups,), fill, dtype) for fill in (1, 0))
    normal = builder.emit("instance_norm", grouped, ones, zeros, epsilon=_epsilon(node))
    result = builder.reshape(normal, shape)
    for operator, parameter in (("multiply", scale), ("add", bias)):
        spread = _per_channel(builder, parameter, shape)
        result = builder.emit(operator, result, spread)
    return result


def _per_channel(builder: GraphBuilder, name: str, shape: tuple[int, ...]) -> str:
    """[C] or [groups] → [C,1,1]."""
    count, channels = builder.elements(name), shape[1]
    if count != channels:
        column = builder.reshape(name, (count, 1))
        wide = builder.emit("expand", column, shape=(count, channels // count))
        name = builder.reshape(wide, (channels,))
    return builder.reshape(name, (channels, *(1 for _ in shape[2:])))


def _epsilon(node: OnnxNode) -> float:
    return node.number("epsilon", 1e-5)
