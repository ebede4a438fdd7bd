"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Named, Operator, Types
from tilewright.graph.operators.checks import arity, broadcast, common_dtype, expect
from tilewright.graph.operators.convolution import accumulator
from tilewright.graph.tensor import TensorType


def _infer_dense(types: Types, _named: Named) -> TensorType:
    arity("dense", types, 2)
    dtype = common_dtype("dense", types)
    x, w = types[0].shape, types[1].shape
    fits = len(x) >= 1 and len(w) == 2 and x[-1] == w[0]
    expect(fits, "dense", f"data {types[0]} does not fit weight {types[1]}")
    return TensorType((*x[:-1], w[1]), dtype)


def _flop_dense(types: Types, result: TensorType, _named: Named) -> int:
    return 2 * result.elements * types[1].shape[0]


def _dense(arrays: tuple[Array, ...], _named: Named) -> Array:
    x: Any = arrays[0]
    w: Any = arrays[1]
    kind = accumulator(x.dtype)
    rows = x.reshape(-1, x.shape[-1]).astype(kind, copy=False)
    product = rows @ w.astype(kind, copy=False)
    return product.reshape(*x.shape[:-1], w.shape[1]).astype(x.dtype, copy=False)


def _infer_batch_matmul(types: Types, named: Named) -> TensorType:
    name = "batch_matmul"
    arity(name, types, 2)
    dtype = common_dtype(name, types)
    a, b = types[0].shape, types[1].shape
    expect(len(a) >= 2 and len(b) >= 2, name, f"{types[0]} or {types[1]} is no matrix")
    rows, depth = a[len(a) - 2], a[len(a) - 1]
    fore, last = b[len(b) - 2], b[len(b) - 1]
    inner, columns = (last, fore) if named["transpose_b"] else (fore, last)
    expect(depth == inner, name, f"{types[0]} does not fit {types[1]}")
    return TensorType((*broadcast(name, (a[:-2], b[:-2])), rows, columns), dtype)


def _flop_batch_matmul(types: Types, result: TensorType, _named: Named) -> int:
    return 2 * result.elements * types[0].shape[-1]


def _batch_matmul(arrays: tuple[Array, ...], named: Named) -> Array:
    a: Any = arrays[0]
    b: Any = arrays[1]
    kind = accumulator(a.dtype)
    right = b.swapaxes(-1, -2) if named["transpose_b"] else b
    product = np.matmul(a.astype(kind, copy=False), right.astype(kind, copy=False))
    return product.astype(a.dtype, copy=False)


MATRIX = (
    Operator(name="dense", infer=_infer_dense, flop=_flop_dense, reference=_dense, anchor=True),
    Operator(
        name="batch_matmul",
        infer=_infer_batch_matmul,
        flop=_flop_batch_matmul,
        reference=_batch_matmul,
        anchor=True,
    ),
)
