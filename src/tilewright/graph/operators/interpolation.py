"""Weighted sums of a few elements along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Named, Operator, Types
from tilewright.graph.operators.checks import arity, check_axis, common_dtype, expect, integer
from tilewright.graph.tensor import TensorType

NAME = "interpolate"


def _infer(types: Types, named: Named) -> TensorType:
    arity(NAME, types, 3)
    x, indices, weights = types
    axis = integer(named, "axis")
    check_axis(NAME, axis, len(x.shape))
    common_dtype(NAME, (x, weights))
    expect(x.dtype in ("float32", "float64"), NAME, f"takes float32 or float64, got {x}")
    fits = len(weights.shape) == 2 and indices.shape == weights.shape and weights.elements > 0
    expect(fits, NAME, f"{indices} and {weights} are no [taps, extent]")
    expect(indices.dtype == "int32", NAME, f"indices are {indices}, no int32")
    return TensorType((*x.shape[:axis], weights.shape[1], *x.shape[axis + 1 :]), x.dtype)


def _flop(types: Types, result: TensorType, _named: Named) -> int:
    return 2 * types[1].shape[0] * result.elements


def _reference(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    axis = integer(named, "axis")
    spread = (-1, *(1 for _ in x.shape[axis + 1 :]))
    taps = zip(arrays[1], arrays[2], strict=True)
    total: Any = sum(x.take(indices, axis=axis) * w.reshape(spread) for indices, w in taps)
    return np.asarray(total, x.dtype)


INTERPOLATION = (Operator(name=NAME, infer=_infer, flop=_flop, reference=_reference),)
