"""Two-dimensional convolutions, and pooling over windows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import (
    Operator,
    Shape,
    Types,
    are_codes,
    exact_sums,
    expect,
    product_dtype,
)

_COLUMN_BYTES = 32 << 20


def _windows(
    x: Any, kernel: Shape, strides: Shape, padding: Shape, dilation: Shape, filling: Any = 0
) -> Any:
    """Windows of an [N,C,H,W] array with padding around, as a view [N,C,OH,OW,kh,kw]."""
    top, left, bottom, right = padding
    sides = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(x, sides, mode="constant", constant_values=filling)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view: Any = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


def _extents(x: Shape, kernel: Shape, strides: Shape, padding: Shape, dilation: Shape) -> Shape:
    """How many windows there are along height and width."""
    return tuple(
        (x[2 + i] + padding[i] + padding[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // strides[i]
        + 1
        for i in range(2)
    )


def _conv2d_type(
    types: Types, strides: Shape, padding: Shape, dilation: Shape, groups: int
) -> TensorType:
    """Bytes give sums of 32 bits, everything else keeps its type."""
    dtype = product_dtype(types)
    x, w = types[0].shape, types[1].shape
    expect(len(x) == 4 and len(w) == 4, f"data {types[0]} and weight {types[1]}")
    fits = f"{x[1]} input channels do not fit weight {list(w)} with {groups} groups"
    expect(groups > 0 and x[1] == w[1] * groups, fits)
    expect(w[0] % groups == 0, f"{w[0]} filters do not divide into {groups} groups")
    extents = _extents(x, w[2:], strides, padding, dilation)
    expect(min(extents) > 0, f"kernel {list(w[2:])} is larger than padded {list(x)}")
    return TensorType((x[0], w[0], *extents), dtype)


def _conv2d_work(types: Types, result: TensorType, **_named: object) -> int:
    return 2 * result.elements * prod(types[1].shape[1:])


def _conv2d(x: Any, w: Any, strides: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    whole = are_codes(x.dtype, w.dtype)
    # double precision is exact far beyond 32 bits, and much faster in numpy than integers
    kind = np.dtype(np.float64) if whole else x.dtype
    view = _windows(x.astype(kind, copy=False), w.shape[2:], strides, padding, dilation)
    n, c, rows, columns, kh, kw = view.shape
    weights = w.reshape(groups, w.shape[0] // groups, -1).astype(kind, copy=False)
    result = np.empty((n, w.shape[0], rows, columns), kind)
    step = max(1, _COLUMN_BYTES // (n * c * kh * kw * columns * kind.itemsize))
    for start in range(0, rows, step):
        chunk = view[:, :, start : start + step]
        patches = np.ascontiguousarray(chunk.transpose(0, 1, 4, 5, 2, 3))
        patches = patches.reshape(n, groups, (c // groups) * kh * kw, -1)
        part = np.matmul(weights, patches).reshape(n, w.shape[0], -1, columns)
        result[:, :, start : start + step] = part
    return result.astype(np.int64).astype(np.int32) if whole else result


def _transposed_type(
    types: Types,
    strides: Shape,
    padding: Shape,
    output_padding: Shape,
    dilation: Shape,
    groups: int,
) -> TensorType:
    """As of `conv2d`."""
    dtype = product_dtype(types)
    x, w = types[0].shape, types[1].shape
    expect(len(x) == 4 and len(w) == 4, f"data {types[0]} and weight {types[1]}")
    fits = f"{x[1]} input channels do not fit weight {list(w)} with {groups} groups"
    expect(groups > 0 and x[1] == w[0] and x[1] % groups == 0, fits)
    extents = tuple(
        (x[2 + i] - 1) * strides[i] + (w[2 + i] - 1) * dilation[i] + 1
        + output_padding[i] - padding[i] - padding[i + 2]
        for i in range(2)
    )  # fmt: skip
    expect(min(extents) > 0, f"padding {padding} leaves nothing of {list(x)}")
    return TensorType((x[0], w[1] * groups, *extents), dtype)


def _transposed_work(types: Types, _result: TensorType, **_named: object) -> int:
    return 2 * types[0].elements * prod(types[1].shape[1:])


@exact_sums
def _transposed(x: Any, w: Any, strides: Shape, padding: Shape, groups: int, **named: Shape) -> Any:
    (sh, sw), (dh, dw), extra = strides, named["dilation"], named["output_padding"]
    top, left, bottom, right = padding
    n, c, h, width = x.shape
    _, per_group, kh, kw = w.shape
    weights = w.reshape(groups, c // groups, -1).transpose(0, 2, 1)
    data = x.reshape(n, groups, c // groups, h * width)
    taps = np.matmul(weights, data).reshape(n, groups * per_group, kh, kw, h, width)
    rows, columns = (h - 1) * sh + 1, (width - 1) * sw + 1
    full_rows = max(rows + (kh - 1) * dh + extra[0], top + bottom)
    full_columns = max(columns + (kw - 1) * dw + extra[1], left + right)
    full = np.zeros((n, groups * per_group, full_rows, full_columns), x.dtype)
    for i in range(kh):
        for j in range(kw):
            y, z = i * dh, j * dw
            full[:, :, y : y + rows : sh, z : z + columns : sw] += taps[:, :, i, j]
    return np.ascontiguousarray(full[:, :, top : full_rows - bottom, left : full_columns - right])


def _pool_type(
    types: Types, kernel: Shape, strides: Shape, padding: Shape, dilation: Shape, **_named: object
) -> TensorType:
    x = types[0].shape
    expect(len(x) == 4, f"takes a tensor of rank 4, got {types[0]}")
    extents = _extents(x, kernel, strides, padding, dilation)
    expect(min(extents) > 0, f"window {list(kernel)} is larger than padded {list(x)}")
    return TensorType((*x[:2], *extents), types[0].dtype)


def _pool_work(_types: Types, result: TensorType, kernel: Shape, **_named: object) -> int:
    return result.elements * prod(kernel)


def _max_pool2d(x: Any, **window: Any) -> Any:
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return _windows(x, **window, filling=lowest).max(axis=(4, 5))


def _avg_pool2d(x: Any, count_include_pad: bool, **window: Any) -> Any:
    total, counts = _windows(x, **window).sum(axis=(4, 5)), prod(window["kernel"])
    if not count_include_pad:
        ones = np.ones((1, 1, *x.shape[2:]), total.dtype)
        counts = np.maximum(_windows(ones, **window).sum(axis=(4, 5)), 1)
    return (total / counts).astype(x.dtype)


WINDOWS = (
    Operator(
        name="conv2d",
        result_type=_conv2d_type,
        work=_conv2d_work,
        compute=_conv2d,
        arity=2,
        sums=True,
        anchor=True,
    ),
    Operator(
        name="conv2d_transpose",
        result_type=_transposed_type,
        work=_transposed_work,
        compute=_transposed,
        arity=2,
        sums=True,
        anchor=True,
    ),
    *(
        Operator(
            name=name,
            result_type=_pool_type,
            work=_pool_work,
            compute=compute,
            sums=True,
            anchor=True,
        )
        for name, compute in (("max_pool2d", _max_pool2d), ("avg_pool2d", _avg_pool2d))
    ),
)
