"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Named, Operator, Types
from tilewright.graph.operators.checks import arity, check_axis, integers
from tilewright.graph.operators.convolution import accumulator
from tilewright.graph.tensor import TensorType


def _flop(types: Types, _result: TensorType, _named: Named) -> int:
    return types[0].elements


def _mean(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = x.sum(axis=axis, keepdims=keepdims, dtype=x.dtype)
    count = max(prod(x.shape[i] for i in axis), 1)
    return total // count if x.dtype.kind in "iu" else total / count


def _sum(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return x.sum(axis=axis, keepdims=keepdims, dtype=x.dtype)


def _prod(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return x.prod(axis=axis, keepdims=keepdims, dtype=x.dtype)


def _max(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return x.max(axis=axis, keepdims=keepdims)


def _min(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return x.min(axis=axis, keepdims=keepdims)


def _operator(name: str, compute: Callable[[Any, tuple[int, ...], bool], Any]) -> Operator:
    def infer(types: Types, named: Named) -> TensorType:
        arity(name, types, 1)
        shape, axes = types[0].shape, integers(named, "axes")
        for axis in axes:
            check_axis(name, axis, len(shape))
        if named["keepdims"]:
            return TensorType(
                tuple(1 if i in axes else size for i, size in enumerate(shape)), types[0].dtype
            )
        return TensorType(
            tuple(size for i, size in enumerate(shape) if i not in axes), types[0].dtype
        )

    def reference(arrays: tuple[Array, ...], named: Named) -> Array:
        x: Any = arrays[0]
        wide = x.astype(accumulator(x.dtype), copy=False)
        result = compute(wide, integers(named, "axes"), bool(named["keepdims"]))
        return np.asarray(result, x.dtype)

    return Operator(name=name, infer=infer, flop=_flop, reference=reference, anchor=True)


REDUCTION = (
    _operator("reduce_sum", _sum),
    _operator("reduce_mean", _mean),
    _operator("reduce_max", _max),
    _operator("reduce_min", _min),
    _operator("reduce_prod", _prod),
)
