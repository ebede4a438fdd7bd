"""Operators that only rearrange elements."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.network import Array
from tilewright.graph.operators.base import Infer, Named, Operator, Reference, Types
from tilewright.graph.operators.checks import (
    arity,
    broadcast,
    check_axis,
    common_dtype,
    expect,
    integer,
    integers,
    number,
    numbers,
    text,
)
from tilewright.graph.tensor import TensorType


def _flop(_types: Types, _result: TensorType, _named: Named) -> int:
    return 0


def _operator(name: str, infer: Infer, reference: Reference) -> Operator:
    return Operator(name=name, infer=infer, flop=_flop, reference=reference)


def _infer_reshape(types: Types, named: Named) -> TensorType:
    arity("reshape", types, 1)
    result = TensorType(integers(named, "shape"), types[0].dtype)
    fits = result.elements == types[0].elements and min(result.shape, default=0) >= 0
    expect(fits, "reshape", f"{types[0]} does not fit {result}")
    return result


def _infer_transpose(types: Types, named: Named) -> TensorType:
    arity("transpose", types, 1)
    order, shape = integers(named, "permutation"), types[0].shape
    fits = sorted(order) == list(range(len(shape)))
    expect(fits, "transpose", f"permutation {list(order)} does not fit {types[0]}")
    return TensorType(tuple(shape[axis] for axis in order), types[0].dtype)


def _infer_slice(types: Types, named: Named) -> TensorType:
    arity("slice", types, 1)
    parts = [integers(named, name) for name in ("starts", "stops", "steps")]
    fits = all(len(part) == len(types[0].shape) for part in parts) and 0 not in parts[2]
    expect(fits, "slice", f"starts, stops and steps do not fit {types[0]}")
    shape: list[int] = []
    for start, stop, step, size in zip(*parts, types[0].shape, strict=True):
        expect(-1 <= start <= size and -1 <= stop <= size, "slice",
               f"range {start}:{stop}:{step} leaves {types[0]}")  # fmt: skip
        shape.append(max(0, -((start - stop) // step)))
    return TensorType(tuple(shape), types[0].dtype)


def _slice(arrays: tuple[Array, ...], named: Named) -> Array:
    bounds = zip(
        integers(named, "starts"), integers(named, "stops"), integers(named, "steps"), strict=True
    )
    index = tuple(slice(a, None if b < 0 else b, c) for a, b, c in bounds)
    return np.ascontiguousarray(arrays[0][index]).reshape(arrays[0][index].shape)


def _infer_concat(types: Types, named: Named) -> TensorType:
    expect(len(types) > 0, "concat", "has no inputs")
    dtype, first, axis = common_dtype("concat", types), types[0].shape, integer(named, "axis")
    check_axis("concat", axis, len(first))
    for kind in types[1:]:
        same = len(kind.shape) == len(first) and all(
            i == axis or a == b for i, (a, b) in enumerate(zip(kind.shape, first, strict=False))
        )
        expect(same, "concat", f"{kind} does not fit {types[0]} beside axis {axis}")
    total = sum(kind.shape[axis] for kind in types)
    return TensorType((*first[:axis], total, *first[axis + 1 :]), dtype)


def _infer_pad(types: Types, named: Named) -> TensorType:
    arity("pad", types, 1)
    before, after, shape = integers(named, "before"), integers(named, "after"), types[0].shape
    fits = len(before) == len(after) == len(shape) and min((*before, *after), default=0) >= 0
    expect(fits, "pad", f"before {list(before)} and after {list(after)} do not fit {types[0]}")
    mode = text(named, "mode")
    expect(mode in ("constant", "reflect", "edge"), "pad", f"unknown mode {mode}")
    if mode == "reflect":
        small = all(max(b, a) < s for b, a, s in zip(before, after, shape, strict=True) if b or a)
        expect(small, "pad", f"reflection is wider than {types[0]}")
    grown = (b + s + a for b, s, a in zip(before, shape, after, strict=True))
    return TensorType(tuple(grown), types[0].dtype)


def _pad(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    width = list(zip(integers(named, "before"), integers(named, "after"), strict=True))
    mode = text(named, "mode")
    if x.ndim == 0:
        return x
    if mode == "constant":
        value = np.asarray(number(named, "value")).astype(x.dtype)
        return np.pad(x, width, mode="constant", constant_values=value)
    return np.pad(x, width, mode="reflect" if mode == "reflect" else "edge")


def _infer_expand(types: Types, named: Named) -> TensorType:
    arity("expand", types, 1)
    shape = integers(named, "shape")
    fits = broadcast("expand", (types[0].shape, shape)) == shape
    expect(fits, "expand", f"{types[0]} does not broadcast to {list(shape)}")
    return TensorType(shape, types[0].dtype)


def _infer_gather(types: Types, named: Named) -> TensorType:
    arity("gather", types, 2)
    shape, axis = types[0].shape, integer(named, "axis")
    check_axis("gather", axis, len(shape))
    expect(types[1].dtype in ("int32", "int64"), "gather", f"indices are {types[1]}, no integers")
    return TensorType((*shape[:axis], *types[1].shape, *shape[axis + 1 :]), types[0].dtype)


def _infer_resize(types: Types, named: Named) -> TensorType:
    arity("resize_nearest", types, 1)
    shape, scales = integers(named, "shape"), numbers(named, "scales")
    fits = len(shape) == len(scales) == len(types[0].shape)
    expect(fits, "resize_nearest", f"shape {list(shape)} does not fit {types[0]}")
    nearest_index(0, 1, 1, 1.0, named)
    return TensorType(shape, types[0].dtype)


def nearest_index(position: int, before: int, after: int, scale: float, named: Named) -> int:
    """Which of `before` positions output `position` (of `after`) of `resize_nearest` reads."""
    mode, rounding = text(named, "coordinate"), text(named, "rounding")
    place = source_position(position, (before, after), scale, mode)
    return min(max(rounded(place, rounding), 0), before - 1)


def rounded(place: float, rounding: str) -> int:
    """The position nearest to a place between two, as ONNX's `nearest_mode` has it."""
    if rounding == "round_prefer_floor":
        return ceil(place - 0.5)
    if rounding == "round_prefer_ceil":
        return floor(place + 0.5)
    if rounding in ("floor", "ceil"):
        return floor(place) if rounding == "floor" else ceil(place)
    raise ModelError(f"unknown rounding {rounding}")


def source_position(
    position: int, extents: tuple[int, int], scale: float, coordinate: str
) -> float:
    """Where in the input, of `extents[0]` positions, an output position of `extents[1]` lies.

    Source: the ONNX operator specification, Resize.
    """
    before, after = extents
    half_pixel = (position + 0.5) / scale - 0.5
    if coordinate == "half_pixel":
        return half_pixel
    if coordinate == "half_pixel_symmetric":
        return half_pixel + before / 2 * (1 - after / (scale * before))
    if coordinate == "pytorch_half_pixel":
        return half_pixel if after > 1 else 0.0
    if coordinate == "align_corners":
        return position * (before - 1) / (after - 1) if after > 1 else 0.0
    if coordinate == "asymmetric":
        return position / scale
    if coordinate == "tf_half_pixel_for_nn":
        return (position + 0.5) / scale
    raise ModelError(f"unknown coordinate transformation {coordinate}")


def _resize(arrays: tuple[Array, ...], named: Named) -> Array:
    result = arrays[0]
    axes = zip(integers(named, "shape"), numbers(named, "scales"), strict=True)
    for axis, (after, scale) in enumerate(axes):
        before = result.shape[axis]
        if before != after or scale != 1:
            indices = [nearest_index(i, before, after, scale, named) for i in range(after)]
            result = result.take(indices, axis=axis)
    return result


MOVEMENT = (
    _operator("reshape", _infer_reshape, lambda a, n: a[0].reshape(integers(n, "shape"))),
    _operator(
        "transpose",
        _infer_transpose,
        lambda a, n: a[0].transpose(integers(n, "permutation")).copy(order="C"),
    ),
    _operator("slice", _infer_slice, _slice),
    _operator("concat", _infer_concat, lambda a, n: np.concatenate(a, axis=integer(n, "axis"))),
    _operator("pad", _infer_pad, _pad),
    _operator(
        "expand",
        _infer_expand,
        lambda a, n: np.broadcast_to(a[0], integers(n, "shape")).copy(order="C"),
    ),
    _operator(
        "gather",
        _infer_gather,
        lambda a, n: np.take(a[0], np.asarray(a[1], np.int64), axis=integer(n, "axis")),
    ),
    _operator("resize_nearest", _infer_resize, _resize),
)
