"""Two-dimensional convolutions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Named, Operator, Types
from tilewright.graph.operators.checks import arity, common_dtype, expect, integer, integers
from tilewright.graph.tensor import TensorType

_COLUMN_BYTES = 32 << 20


def window_view(
    padded: Any,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Any:
    """Windows of a padded [N,C,H,W] array as a view [N,C,OH,OW,kh,kw]."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type sums are kept in: half precision accumulates in single."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _sum_type(operator: str, types: Types) -> str:
    """The type of a sum of products: bytes give 32 bits, everything else keeps its type."""
    if types[0].dtype in ("int8", "uint8") and types[1].dtype == "int8":
        return "int32"
    return common_dtype(operator, types)


def _infer_conv2d(types: Types, named: Named) -> TensorType:
    arity("conv2d", types, 2)
    dtype = _sum_type("conv2d", types)
    x, w = types[0].shape, types[1].shape
    expect(len(x) == 4 and len(w) == 4, "conv2d", f"data {types[0]} and weight {types[1]}")
    groups = integer(named, "groups")
    strides, dilation = integers(named, "strides"), integers(named, "dilation")
    padding = integers(named, "padding")
    expect(groups > 0 and x[1] == w[1] * groups, "conv2d",
           f"{x[1]} input channels do not fit weight {list(w)} with {groups} groups")  # fmt: skip
    expect(w[0] % groups == 0, "conv2d", f"{w[0]} filters do not divide into {groups} groups")
    extents = tuple(
        (x[2 + i] + padding[i] + padding[i + 2] - (w[2 + i] - 1) * dilation[i] - 1) // strides[i]
        + 1
        for i in range(2)
    )
    expect(min(extents) > 0, "conv2d", f"kernel {list(w[2:])} is larger than padded {list(x)}")
    return TensorType((x[0], w[0], *extents), dtype)


def _flop_conv2d(types: Types, result: TensorType, _named: Named) -> int:
    return 2 * result.elements * prod(types[1].shape[1:])


def _conv2d(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    w: Any = arrays[1]
    groups = integer(named, "groups")
    top, left, bottom, right = integers(named, "padding")
    whole = x.dtype.itemsize == 1 and w.dtype == np.int8
    # double precision is exact far beyond 32 bits, and much faster in numpy than integers
    kind = np.dtype(np.float64) if whole else accumulator(x.dtype)
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))).astype(kind, copy=False)
    view = window_view(padded, w.shape[2:], integers(named, "strides"), integers(named, "dilation"))
    n, c, rows, columns, kh, kw = view.shape
    weights = w.reshape(groups, w.shape[0] // groups, -1).astype(kind, copy=False)
    result = np.empty((n, w.shape[0], rows, columns), kind)
    row_bytes = n * c * kh * kw * columns * kind.itemsize
    step = max(1, _COLUMN_BYTES // row_bytes)
    for start in range(0, rows, step):
        chunk = view[:, :, start : start + step]
        count = chunk.shape[2]
        patches = np.ascontiguousarray(chunk.transpose(0, 1, 4, 5, 2, 3))
        patches = patches.reshape(n, groups, (c // groups) * kh * kw, count * columns)
        part = np.matmul(weights, patches).reshape(n, w.shape[0], count, columns)
        result[:, :, start : start + step] = part
    if whole:
        return result.astype(np.int64).astype(np.int32)
    return result.astype(x.dtype, copy=False)


def _infer_transpose(types: Types, named: Named) -> TensorType:
    name = "conv2d_transpose"
    arity(name, types, 2)
    dtype = common_dtype(name, types)
    x, w = types[0].shape, types[1].shape
    expect(len(x) == 4 and len(w) == 4, name, f"data {types[0]} and weight {types[1]}")
    groups = integer(named, "groups")
    expect(groups > 0 and x[1] == w[0] and x[1] % groups == 0, name,
           f"{x[1]} input channels do not fit weight {list(w)} with {groups} groups")  # fmt: skip
    strides, dilation = integers(named, "strides"), integers(named, "dilation")
    padding, extra = integers(named, "padding"), integers(named, "output_padding")
    extents = tuple(
        (x[2 + i] - 1) * strides[i] + (w[2 + i] - 1) * dilation[i] + 1
        + extra[i] - padding[i] - padding[i + 2]
        for i in range(2)
    )  # fmt: skip
    expect(min(extents) > 0, name, f"padding {padding} leaves nothing of {list(x)}")
    return TensorType((x[0], w[1] * groups, *extents), dtype)


def _flop_transpose(types: Types, _result: TensorType, _named: Named) -> int:
    return 2 * types[0].elements * prod(types[1].shape[1:])


def _conv2d_transpose(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    w: Any = arrays[1]
    groups = integer(named, "groups")
    (sh, sw), (dh, dw) = integers(named, "strides"), integers(named, "dilation")
    top, left, bottom, right = integers(named, "padding")
    extra = integers(named, "output_padding")
    kind = accumulator(x.dtype)
    n, c, h, width = x.shape
    _, per_group, kh, kw = w.shape
    weights = w.reshape(groups, c // groups, -1).transpose(0, 2, 1).astype(kind)
    data = x.reshape(n, groups, c // groups, h * width).astype(kind, copy=False)
    taps = np.matmul(weights, data).reshape(n, groups * per_group, kh, kw, h, width)
    rows, columns = (h - 1) * sh + 1, (width - 1) * sw + 1
    full_rows = max(rows + (kh - 1) * dh + extra[0], top + bottom)
    full_columns = max(columns + (kw - 1) * dw + extra[1], left + right)
    full = np.zeros((n, groups * per_group, full_rows, full_columns), kind)
    for i in range(kh):
        for j in range(kw):
            y, z = i * dh, j * dw
            full[:, :, y : y + rows : sh, z : z + columns : sw] += taps[:, :, i, j]
    cropped = full[:, :, top : full_rows - bottom, left : full_columns - right]
    return np.ascontiguousarray(cropped).astype(x.dtype, copy=False)


CONVOLUTION = (
    Operator(name="conv2d", infer=_infer_conv2d, flop=_flop_conv2d, reference=_conv2d, anchor=True),
    Operator(
        name="conv2d_transpose",
        infer=_infer_transpose,
        flop=_flop_transpose,
        reference=_conv2d_transpose,
        anchor=True,
    ),
)
