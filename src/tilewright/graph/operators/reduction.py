"""Operators that sum over axes: matrix products, reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import (
    Operator,
    Shape,
    Types,
    broadcast,
    check_axis,
    common_dtype,
    exact_sums,
    expect,
    product_dtype,
)


def _dense_type(types: Types) -> TensorType:
    dtype, x, w = product_dtype(types), types[0].shape, types[1].shape
    fits = len(x) >= 1 and len(w) == 2 and x[-1] == w[0]
    expect(fits, f"data {types[0]} does not fit weight {types[1]}")
    return TensorType((*x[:-1], w[1]), dtype)


def _dense(x: Any, w: Any) -> Any:
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[1])


def _batch_matmul_type(types: Types, transpose_b: bool) -> TensorType:
    dtype, a, b = product_dtype(types), types[0].shape, types[1].shape
    expect(len(a) >= 2 and len(b) >= 2, f"{types[0]} or {types[1]} is no matrix")
    (*many, rows, depth), (*fewer, fore, last) = [*a], [*b]
    inner, columns = (last, fore) if transpose_b else (fore, last)
    expect(depth == inner, f"{types[0]} does not fit {types[1]}")
    return TensorType((*broadcast((tuple(many), tuple(fewer))), rows, columns), dtype)


def _batch_matmul(a: Any, b: Any, transpose_b: bool) -> Any:
    return exact_sums(np.matmul)(a, b.swapaxes(-1, -2) if transpose_b else b)


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


def _reducing(function: np.ufunc) -> Callable[..., Any]:
    """A reduction over axes by a function of two elements."""

    def reduced(x: Any, axes: Shape, keepdims: bool) -> Any:
        return function.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)

    return reduced


def _mean(x: Any, axes: Shape, keepdims: bool) -> Any:
    total = x.sum(axis=axes, keepdims=keepdims, dtype=x.dtype)
    count = max(prod(x.shape[i] for i in axes), 1)
    return total // count if x.dtype.kind in "iu" else (total / count).astype(x.dtype)


def _softmax_type(types: Types, axis: int) -> TensorType:
    check_axis(axis, len(types[0].shape))
    return types[0]


def _softmax(x: Any, axis: int) -> Any:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: int) -> Any:
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _layer_norm_type(types: Types, axis: int, **_named: object) -> TensorType:
    common_dtype(types)
    check_axis(axis, len(types[0].shape))
    part = types[0].shape[axis:]
    for kind in types[1:]:
        fits = broadcast((part, kind.shape)) == part
        expect(fits, f"{kind} does not fit the normalised part of {types[0]}")
    return types[0]


def _layer_norm(x: Any, scale: Any, bias: Any, axis: int, epsilon: float) -> Any:
    return _normalized(x, tuple(range(axis, x.ndim)), epsilon) * scale + bias


def _normalized(x: Any, axes: Shape, epsilon: float) -> Any:
    """With a mean of zero and a deviation of one."""
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    return centred / np.sqrt(variance + epsilon)


def _rms_norm(x: Any, scale: Any, axis: int, epsilon: float) -> Any:
    squares = np.square(x).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    return x / np.sqrt(squares + epsilon) * scale


def _instance_norm_type(types: Types, **_named: object) -> TensorType:
    common_dtype(types)
    shape = types[0].shape
    fits = len(shape) >= 3 and all(kind.shape == shape[1:2] for kind in types[1:])
    expect(fits, f"{types[1]} and {types[2]} do not fit {types[0]}")
    return types[0]


def _instance_norm(x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    axes = tuple(range(2, x.ndim))
    spread = (1, -1, *(1 for _ in axes))
    return _normalized(x, axes, epsilon) * scale.reshape(spread) + bias.reshape(spread)


def _lrn_type(types: Types, **_named: object) -> TensorType:
    expect(len(types[0].shape) >= 2, f"takes a tensor of rank 2 or more, got {types[0]}")
    return types[0]


def _lrn_work(_types: Types, result: TensorType, size: int, **_named: object) -> int:
    return (2 * size + 4) * result.elements


def _lrn(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    channels = x.shape[1]
    squares, total = np.square(x), np.zeros_like(x)
    for offset in range(-((size - 1) // 2), size // 2 + 1):
        low, high = max(0, -offset), min(channels, channels - offset)
        if low < high:
            total[:, low:high] += squares[:, low + offset : high + offset]
    return x / np.power(bias + alpha / size * total, beta)


REDUCTION = (
    *(
        Operator(
            name=name,
            result_type=result_type,
            work=_product_work,
            compute=compute,
            arity=2,
            sums=True,
            anchor=True,
        )
        for name, result_type, compute in (
            ("dense", _dense_type, exact_sums(_dense)),
            ("batch_matmul", _batch_matmul_type, _batch_matmul),
        )
    ),
    *(
        Operator(
            name=f"reduce_{name}",
            result_type=_reduced_type,
            work=_reduced_work,
            compute=compute,
            sums=True,
            anchor=True,
        )
        for name, compute in (
            ("sum", _reducing(np.add)),
            ("mean", _mean),
            ("max", _reducing(np.maximum)),
            ("min", _reducing(np.minimum)),
            ("prod", _reducing(np.multiply)),
        )
    ),
    *(
        Operator(name=name, result_type=_softmax_type, work=5, compute=compute, anchor=True)
        for name, compute in (("softmax", _softmax), ("log_softmax", _log_softmax))
    ),
    *(
        Operator(name=name, result_type=result_type, work=8, compute=compute, arity=3, anchor=True)
        for name, result_type, compute in (
            ("layer_norm", _layer_norm_type, _layer_norm),
            ("instance_norm", _instance_norm_type, _instance_norm),
        )
    ),
    Operator(
        name="rms_norm",
        result_type=_layer_norm_type,
        work=5,
        compute=_rms_norm,
        arity=2,
        anchor=True,
    ),
    Operator(name="lrn", result_type=_lrn_type, work=_lrn_work, compute=_lrn, anchor=True),
)
