"""Reductions, and those that are chains around one."""

from __future__ import annotations

from tilewright.core.errors import ModelError
from tilewright.models.onnx_import.builder import GraphBuilder, axis_of
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates

_PLAIN = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod",
}  # fmt: skip
_ROOTS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_CHAINS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")


def axes_of(node: OnnxNode, builder: GraphBuilder) -> tuple[int, ...] | None:
    """The axes, sorted, from attribute or input; all when none are given; None when unknown."""
    rank = len(builder.shape(node.input(0)))
    axes: tuple[int, ...] | None = node.integers("axes")
    if node.input(1):
        axes = builder.integers(node.input(1))
    if axes is None:
        return None
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis_of(axis, rank, node.name) for axis in axes))


@translates(*_PLAIN)
def reduce(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Sum, mean, maximum, minimum and product over axes."""
    axes = axes_of(node, builder)
    if axes is None or builder.dtype(node.input(0)) == "bool":
        return None
    return _reduce(builder, _PLAIN[node.operator], node.input(0), axes, node)


@translates(*_CHAINS)
def reduce_chain(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Norms and logarithms of sums: elementwise operators around a sum, over no axis alone."""
    axes, x = axes_of(node, builder), node.input(0)
    if axes is None:
        return None
    dtype = builder.dtype(x)
    if node.operator in _ROOTS and "int" in dtype:
        raise ModelError(f"roots and logarithms of elements of type {dtype} are not supported")
    if node.operator == "ReduceLogSumExp":
        return _log_sum_exp(builder, x, axes, node)
    if node.operator == "ReduceL1":
        return _reduce(builder, "reduce_sum", builder.emit("abs", x), axes, node)
    if node.operator == "ReduceLogSum":
        return builder.emit("log", _reduce(builder, "reduce_sum", x, axes, node))
    total = _reduce(builder, "reduce_sum", builder.emit("multiply", x, x), axes, node)
    return builder.emit("sqrt", total) if node.operator == "ReduceL2" else total


def _reduce(
    builder: GraphBuilder, operator: str, x: str, axes: tuple[int, ...], node: OnnxNode
) -> str:
    if not axes:
        return x
    return builder.emit(operator, x, axes=axes, keepdims=bool(node.integer("keepdims", 1)))


def _log_sum_exp(builder: GraphBuilder, x: str, axes: tuple[int, ...], node: OnnxNode) -> str:
    """max + log(sum(exp(x - max))), which cannot overflow."""
    if not axes:
        return x
    peak = builder.emit("reduce_max", x, axes=axes, keepdims=True)
    shifted = builder.emit("exp", builder.emit("subtract", x, peak))
    total = builder.emit("reduce_sum", shifted, axes=axes, keepdims=True)
    result = builder.emit("add", builder.emit("log", total), peak)
    if node.integer("keepdims", 1):
        return result
    shape = [size for i, size in enumerate(builder.shape(result)) if i not in axes]
    return builder.reshape(result, shape)
