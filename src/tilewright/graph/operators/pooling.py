"""Window pooling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Infer, Named, Operator, Types
from tilewright.graph.operators.checks import arity, expect, integers
from tilewright.graph.operators.convolution import accumulator, window_view
from tilewright.graph.tensor import TensorType


def _infer(name: str) -> Infer:
    def infer(types: Types, named: Named) -> TensorType:
        arity(name, types, 1)
        x = types[0].shape
        expect(len(x) == 4, name, f"takes a tensor of rank 4, got {types[0]}")
        kernel, strides = integers(named, "kernel"), integers(named, "strides")
        padding, dilation = integers(named, "padding"), integers(named, "dilation")
        extents = tuple(
            (x[2 + i] + padding[i] + padding[i + 2] - (kernel[i] - 1) * dilation[i] - 1)
            // strides[i]
            + 1
            for i in range(2)
        )
        expect(min(extents) > 0, name, f"window {list(kernel)} is larger than padded {list(x)}")
        return TensorType((*x[:2], *extents), types[0].dtype)

    return infer


def _flop(_types: Types, result: TensorType, named: Named) -> int:
    return result.elements * prod(integers(named, "kernel"))


def _windows(x: Any, named: Named, value: Any) -> Any:
    top, left, bottom, right = integers(named, "padding")
    padded = np.pad(
        x, ((0, 0), (0, 0), (top, bottom), (left, right)), mode="constant", constant_values=value
    )
    return window_view(
        padded, integers(named, "kernel"), integers(named, "strides"), integers(named, "dilation")
    )


def lowest(dtype: np.dtype[Any]) -> Any:
    """The identity of maximum: -inf, or the smallest integer."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _max_pool2d(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    return _windows(x, named, lowest(x.dtype)).max(axis=(4, 5))


def _avg_pool2d(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    total = _windows(x.astype(accumulator(x.dtype), copy=False), named, 0).sum(axis=(4, 5))
    if named["count_include_pad"]:
        return (total / prod(integers(named, "kernel"))).astype(x.dtype)
    ones = np.ones((1, 1, *x.shape[2:]), total.dtype)
    counts = np.maximum(_windows(ones, named, 0).sum(axis=(4, 5)), 1)
    return (total / counts).astype(x.dtype)


POOLING = (
    Operator(
        name="max_pool2d",
        infer=_infer("max_pool2d"),
        flop=_flop,
        reference=_max_pool2d,
        anchor=True,
    ),
    Operator(
        name="avg_pool2d",
        infer=_infer("avg_pool2d"),
        flop=_flop,
        reference=_avg_pool2d,
        anchor=True,
    ),
)
