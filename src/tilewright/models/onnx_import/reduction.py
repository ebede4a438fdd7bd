"""Operators that sum over axes: matrix products, reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import prod

import numpy as np
import onnx

from tilewright.core.errors import NotCompilable, quoted
from tilewright.graph.clean.edit import only_if
from tilewright.models.onnx_import.node import (
    MOST_CHOICES,
    OnnxNode,
    Tensor,
    Translated,
    axis_of,
    number_limits,
    over_axes,
    training_refused,
    translates,
)
from tilewright.models.onnx_model import dtype_name

_PLAIN = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod",
}  # fmt: skip
_OF_NOTHING = ("reduce_max", "reduce_min")
"""Reductions that have no result of no elements but a limit."""
_ROOTS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_CHAINS = ("ReduceL1", "ReduceSumSquare", *_ROOTS)


@translates("Gemm")
def gemm(node: OnnxNode) -> Translated:
    """Gemm → dense with a constant matrix, else batch_matmul; then add."""
    (a, b), c = node.several(2), node.given(2)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if node.integer("transA", 0):
        a = a.transpose((1, 0))
    transposed = bool(node.integer("transB", 0))
    if b.value is not None:
        result = a.emit("dense", _scaled(b.transpose((1, 0)) if transposed else b, alpha))
    else:
        result = _scaled(a.emit("batch_matmul", b, transpose_b=transposed), alpha)
    return result if c is None or beta == 0 else result + _scaled(c, beta).plain(result)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


@translates("MatMul")
def matrix_product(node: OnnxNode) -> Translated:
    """MatMul → dense with a constant matrix, else batch_matmul; vectors get an axis for a while."""
    a, b = node.several(2)
    vector_a, vector_b = a.rank == 1, b.rank == 1
    if vector_a:
        a = a.reshape((1, *a.shape))
    if vector_b:
        b = b.reshape((*b.shape, 1))
    matrix = all(size == 1 for size in b.shape[:-2]) and b.rank <= a.rank
    if b.value is not None and a.value is None and matrix:
        result = a.emit("dense", b.reshape(b.shape[-2:]))
    else:
        result = a.emit("batch_matmul", b, transpose_b=False)
    *batch, rows, columns = result.shape
    return result.reshape([*batch, *([] if vector_a else [rows]), *([] if vector_b else [columns])])


def _over_axes(node: OnnxNode, compute: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """What `compute` gives for the axes, sorted, of attribute or input; for all where none are
    given. Axes that are not known are those that give the shape of the result, or one of several
    such choices, of which the network chooses."""
    x, axes = node.input(0), node.given(1)
    if axes and axes.value is None:
        only_if(x.rank <= MOST_CHOICES)
        fitting = [
            each
            for each in combinations(range(x.rank), axes.type.elements)
            if _rest(node, each) == node.declared()
        ]
        node.implied(1, fitting[0] if fitting else (), exact=False)
        return over_axes(axes, x, fitting, compute)
    known = node.known_integers(1, node.integers("axes"))
    if not known and not node.integer("noop_with_empty_axes", 0):
        return compute(tuple(range(x.rank)))
    return compute(tuple(sorted(axis_of(a, x.rank, node.name) for a in known)))


def _rest(node: OnnxNode, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that is left after a reduction."""
    keeps, shape = node.integer("keepdims", 1), node.input(0).shape
    return tuple(1 if i in axes else size for i, size in enumerate(shape) if keeps or i not in axes)


@translates(*_PLAIN)
def reduce(node: OnnxNode) -> Translated:
    """Sum, mean, maximum, minimum and product over axes; booleans as bytes."""
    x = node.input(0)
    numbers = x.cast("uint8") if x.dtype == "bool" else x
    operator = _PLAIN[node.operator]
    return _over_axes(node, lambda axes: _reduced(operator, numbers, axes, node)).cast(x.dtype)


@translates(*_CHAINS)
def reduce_chain(node: OnnxNode) -> Translated:
    """Norms and logarithms of sums: elementwise operators around a sum, over no axis alone."""
    x, operator = node.input(0), node.operator
    if operator in _ROOTS and "int" in x.dtype:
        raise NotCompilable(f"roots and logarithms of elements of type {x.dtype} are not supported")
    if operator == "ReduceLogSumExp":
        return _over_axes(node, lambda axes: _log_sum_exp(x, axes, node))
    if operator != "ReduceLogSum":
        x = x.emit("abs") if operator == "ReduceL1" else x * x
    total = _over_axes(node, lambda axes: _reduced("reduce_sum", x, axes, node))
    outer = {"ReduceL2": "sqrt", "ReduceLogSum": "log"}.get(operator)
    return total.emit(outer) if outer else total


def _reduced(operator: str, x: Tensor, axes: tuple[int, ...], node: OnnxNode) -> Tensor:
    keeps = bool(node.integer("keepdims", 1))
    if operator in _OF_NOTHING and any(x.shape[axis] == 0 for axis in axes):
        least, most = number_limits(x.dtype)
        return x.filled(most if operator == "reduce_min" else least, _rest(node, axes))
    return x.emit(operator, axes=axes, keepdims=keeps) if axes else x


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], node: OnnxNode) -> Tensor:
    """max + log(sum(exp(x - max))), which cannot overflow."""
    if not axes:
        return x
    peak = x.emit("reduce_max", axes=axes, keepdims=True)
    total = (x - peak).emit("exp").emit("reduce_sum", axes=axes, keepdims=True)
    return (total.emit("log") + peak).reshape(_rest(node, axes))


@translates("Softmax", "LogSoftmax")
def softmax(node: OnnxNode) -> Translated:
    """Softmax; before operator set 13 over all axes from `axis` on, as one."""
    x = node.input(0)
    operator = "softmax" if node.operator == "Softmax" else "log_softmax"
    axis = node.axis(x.rank, -1 if node.opset >= 13 else 1)
    if node.opset >= 13 or prod(x.shape[axis + 1 :]) == 1:
        return x.emit(operator, axis=axis)
    flat = prod(x.shape[:axis]), prod(x.shape[axis:])
    return x.reshape(flat).emit(operator, axis=1).reshape(x.shape)


@translates("LpNormalization")
def norm_normalization(node: OnnxNode) -> Translated:
    """LpNormalization → division by the sum of sizes, or by the root of that of squares; zeros
    where that is zero."""
    x, power = node.input(0), node.integer("p", 2)
    only_if(power in (1, 2))
    part = x.emit("abs") if power == 1 else x * x
    norm = part.emit("reduce_sum", axes=(node.axis(x.rank, -1),), keepdims=True)
    norm = norm if power == 1 else norm.emit("sqrt")
    return norm.emit("equal", 0).emit("where", x.filled(0), x / norm)


@translates("BatchNormalization")
def batch_normalization(node: OnnxNode) -> Translated:
    """Inference form → multiply and add of constants [C,1,1], computed in float64.

    Before: BatchNormalization(x, scale, bias, mean, variance); after: x * factor + offset.
    """
    if node.integer("training_mode", 0) or any(map(node.uses_output, range(1, 5))):
        raise training_refused()
    x = node.input(0)
    scale, bias, mean, variance = (node.known(i).astype(np.float64) for i in range(1, 5))
    factor = scale / np.sqrt(variance + _epsilon(node))
    spread, dtype = (-1, *(1 for _ in x.shape[2:])), np.dtype(x.dtype)
    product = x * node.constant(factor.astype(dtype).reshape(spread))
    return product + node.constant((bias - mean * factor).astype(dtype).reshape(spread))


@translates("LRN")
def local_response(node: OnnxNode) -> Translated:
    """LRN."""
    only_if(node.input(0).rank == 4)
    return node.input(0).emit(
        "lrn",
        size=node.integer("size", 1),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )


@translates("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> Translated:
    """InstanceNormalization → instance_norm."""
    x, scale, bias = node.several(3)
    only_if(x.rank > 2)
    return x.emit("instance_norm", scale, bias, epsilon=_epsilon(node))


@translates("LayerNormalization")
def layer_normalization(node: OnnxNode) -> Translated:
    """LayerNormalization → layer_norm; a missing bias is zero. What it is normalised by, where it
    is asked for, is computed beside it."""
    (x, scale), bias = node.several(2), node.given(2)
    axis = node.axis(x.rank, -1)
    result = x.emit(
        "layer_norm", scale, bias or x.filled(0, scale.shape), axis=axis, epsilon=_epsilon(node)
    )
    if not node.uses_output(1) and not node.uses_output(2):
        return result
    return result, *_mean_and_deviation(node, tuple(range(axis, x.rank)))


def _mean_and_deviation(node: OnnxNode, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The mean, and one over the standard deviation, in the type that `stash_type` names."""
    code = node.integer("stash_type", onnx.TensorProto.FLOAT)
    x = node.input(0).cast(dtype_name(code, f"the mean of node {quoted(node.name)}"))
    mean = x.emit("reduce_mean", axes=axes, keepdims=True)
    return mean, _inverse_root(node, x - mean, axes)


def _inverse_root(node: OnnxNode, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """1 / sqrt(mean(x * x) + epsilon)."""
    mean = (x * x).emit("reduce_mean", axes=axes, keepdims=True)
    return (mean + _epsilon(node)).emit("rsqrt")


@translates("RMSNormalization")
def root_mean_square_normalization(node: OnnxNode) -> Translated:
    """RMSNormalization → x * rsqrt(mean(x * x) + epsilon) * scale."""
    x, scale = node.several(2)
    return x * _inverse_root(node, x, tuple(range(node.axis(x.rank, -1), x.rank))) * scale


@translates("GroupNormalization")
def group_normalization(node: OnnxNode) -> Translated:
    """GroupNormalization → instance_norm over groups as channels, then scale and bias."""
    x, scale, bias = node.several(3)
    groups = node.integer("num_groups", 1)
    only_if(x.rank >= 2 and x.shape[1] % groups == 0)
    grouped = x.reshape((x.shape[0], groups, prod(x.shape[1:]) // groups))
    ones, zeros = (x.filled(fill, (groups,)) for fill in (1, 0))
    normal = grouped.emit("instance_norm", ones, zeros, epsilon=_epsilon(node)).reshape(x.shape)
    return normal * _per_channel(scale, x.shape) + _per_channel(bias, x.shape)


def _per_channel(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[C] or [groups] → [C,1,1]."""
    count, channels = x.type.elements, shape[1]
    if count != channels:
        x = x.reshape((count, 1)).emit("expand", shape=(count, channels // count))
    return x.reshape((channels, *(1 for _ in shape[2:])))


def _epsilon(node: OnnxNode) -> float:
    return node.number("epsilon", 1e-5)
