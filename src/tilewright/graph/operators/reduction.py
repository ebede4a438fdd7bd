"""Matrix products, and reductions over axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.graph.operators.base import (
    Operator,
    Shape,
    Types,
    broadcast,
    check_axis,
    common_dtype,
    expect,
)
from tilewright.graph.tensor import TensorType


def _dense_type(types: Types) -> TensorType:
    dtype, x, w = common_dtype(types), types[0].shape, types[1].shape
    fits = len(x) >= 1 and len(w) == 2 and x[-1] == w[0]
    expect(fits, f"data {types[0]} does not fit weight {types[1]}")
    return TensorType((*x[:-1], w[1]), dtype)


def _dense(x: Any, w: Any) -> Any:
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[1])


def _batch_matmul_type(types: Types, transpose_b: bool) -> TensorType:
    dtype, a, b = common_dtype(types), types[0].shape, types[1].shape
    expect(len(a) >= 2 and len(b) >= 2, f"{types[0]} or {types[1]} is no matrix")
    (*many, rows, depth), (*fewer, fore, last) = [*a], [*b]
    inner, columns = (last, fore) if transpose_b else (fore, last)
    expect(depth == inner, f"{types[0]} does not fit {types[1]}")
    return TensorType((*broadcast((tuple(many), tuple(fewer))), rows, columns), dtype)


def _batch_matmul(a: Any, b: Any, transpose_b: bool) -> Any:
    return np.matmul(a, b.swapaxes(-1, -2) if transpose_b else b)


def _product_work(types: Types, result: TensorType, **_named: object) -> int:
    return 2 * result.elements * types[0].shape[-1]


def _reduced_type(types: Types, axes: Shape, keepdims: bool) -> TensorType:
    shape = types[0].shape
    for axis in axes:
        check_axis(axis, len(shape))
    sizes = [1 if i in axes else size for i, size in enumerate(shape) if keepdims or i not in axes]
    return TensorType(tuple(sizes), types[0].dtype)


def _reduced_work(types: Types, _result: TensorType, **_named: object) -> int:
    return types[0].elements


def _sum(x: Any, axes: Shape, keepdims: bool) -> Any:
    return x.sum(axis=axes, keepdims=keepdims, dtype=x.dtype)


def _mean(x: Any, axes: Shape, keepdims: bool) -> Any:
    total, count = _sum(x, axes, keepdims), max(prod(x.shape[i] for i in axes), 1)
    return total // count if x.dtype.kind in "iu" else (total / count).astype(x.dtype)


def _product(x: Any, axes: Shape, keepdims: bool) -> Any:
    return x.prod(axis=axes, keepdims=keepdims, dtype=x.dtype)


def _maximum(x: Any, axes: Shape, keepdims: bool) -> Any:
    return x.max(axis=axes, keepdims=keepdims)


def _minimum(x: Any, axes: Shape, keepdims: bool) -> Any:
    return x.min(axis=axes, keepdims=keepdims)


REDUCTION = (
    *(
        Operator(
            name=name,
            rule=rule,
            work=_product_work,
            compute=compute,
            arity=2,
            sums=True,
            anchor=True,
        )
        for name, rule, compute in (
            ("dense", _dense_type, _dense),
            ("batch_matmul", _batch_matmul_type, _batch_matmul),
        )
    ),
    *(
        Operator(
            name=f"reduce_{name}",
            rule=_reduced_type,
            work=_reduced_work,
            compute=compute,
            sums=True,
            anchor=True,
        )
        for name, compute in (
            ("sum", _sum),
            ("mean", _mean),
            ("max", _maximum),
            ("min", _minimum),
            ("prod", _product),
        )
    ),
)
