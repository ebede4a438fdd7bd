"""Operators that rearrange elements, or interpolate between a few of them along one axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import (
    Named,
    Operator,
    Shape,
    Types,
    broadcast,
    check_axis,
    common_dtype,
    expect,
)


def _reshape_type(types: Types, shape: Shape) -> TensorType:
    result = TensorType(shape, types[0].dtype)
    fits = result.elements == types[0].elements and min(shape, default=0) >= 0
    expect(fits, f"{types[0]} does not fit {result}")
    return result


def _transpose_type(types: Types, permutation: Shape) -> TensorType:
    shape = types[0].shape
    fits = sorted(permutation) == list(range(len(shape)))
    expect(fits, f"permutation {list(permutation)} does not fit {types[0]}")
    return TensorType(tuple(shape[axis] for axis in permutation), types[0].dtype)


def _slice_type(types: Types, starts: Shape, stops: Shape, steps: Shape) -> TensorType:
    parts, sizes = (starts, stops, steps), types[0].shape
    fits = all(len(part) == len(sizes) for part in parts) and 0 not in steps
    expect(fits, f"starts, stops and steps do not fit {types[0]}")
    for start, stop, step, size in zip(*parts, sizes, strict=True):
        inside = -1 <= start <= size and -1 <= stop <= size
        expect(inside, f"range {start}:{stop}:{step} leaves {types[0]}")
    lengths = (max(0, -((a - b) // step)) for a, b, step in zip(*parts, strict=True))
    return TensorType(tuple(lengths), types[0].dtype)


def _slice(x: Any, starts: Shape, stops: Shape, steps: Shape) -> Any:
    bounds = zip(starts, stops, steps, strict=True)
    return x[tuple(slice(a, None if b < 0 else b, c) for a, b, c in bounds)].copy(order="C")


def _concat_type(types: Types, axis: int) -> TensorType:
    expect(len(types) > 0, "has no inputs")
    dtype, first = common_dtype(types), types[0].shape
    check_axis(axis, len(first))
    rest = (first[:axis], first[axis + 1 :])
    for kind in types[1:]:
        same = len(kind.shape) == len(first) and rest == (kind.shape[:axis], kind.shape[axis + 1 :])
        expect(same, f"{kind} does not fit {types[0]} beside axis {axis}")
    return TensorType((*rest[0], sum(kind.shape[axis] for kind in types), *rest[1]), dtype)


def _concat(*arrays: Any, axis: int) -> Any:
    return np.concatenate(arrays, axis=axis)


def _pad_type(types: Types, before: Shape, after: Shape, mode: str, **_named: object) -> TensorType:
    shape = types[0].shape
    fits = len(before) == len(after) == len(shape) and min((*before, *after), default=0) >= 0
    expect(fits, f"before {list(before)} and after {list(after)} do not fit {types[0]}")
    expect(mode in ("constant", "reflect", "edge"), f"unknown mode {mode}")
    if mode == "reflect":
        small = all(max(b, a) < s for b, a, s in zip(before, after, shape, strict=True) if b or a)
        expect(small, f"reflection is wider than {types[0]}")
    grown = map(sum, zip(before, shape, after, strict=True))
    return TensorType(tuple(grown), types[0].dtype)


def _pad(x: Any, before: Shape, after: Shape, value: float | str, mode: str) -> Any:
    if x.ndim == 0:
        return x
    width = list(zip(before, after, strict=True))
    if mode == "constant":
        return np.pad(x, width, constant_values=np.asarray(float(value)).astype(x.dtype))
    return np.pad(x, width, mode="reflect" if mode == "reflect" else "edge")


def _expand_type(types: Types, shape: Shape) -> TensorType:
    fits = broadcast((types[0].shape, shape)) == shape
    expect(fits, f"{types[0]} does not broadcast to {list(shape)}")
    return TensorType(shape, types[0].dtype)


def _gather_type(types: Types, axis: int) -> TensorType:
    x, indices = types
    check_axis(axis, len(x.shape))
    expect(indices.dtype in ("int32", "int64"), f"indices are {indices}, no integers")
    return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _cache_write_type(types: Types, axis: int) -> TensorType:
    cache, rows, place = types
    check_axis(axis, len(cache.shape))
    common_dtype((cache, rows))
    wanted = (*cache.shape[:axis], *rows.shape[axis : axis + 1], *cache.shape[axis + 1 :])
    fits = rows.shape == wanted and rows.shape[axis] <= cache.shape[axis]
    expect(fits, f"{rows} are no rows of {cache} along axis {axis}")
    single = place.elements == 1 and place.dtype in ("int32", "int64")
    expect(single, f"the place is {place}, no single integer")
    return cache


def _cache_write(cache: Any, rows: Any, place: Any, axis: int) -> Any:
    result, first, extent = cache.copy(), int(place.reshape(-1)[0]), cache.shape[axis]
    begin, end = (min(max(at, 0), extent) for at in (first, first + rows.shape[axis]))
    before = (slice(None),) * axis
    result[*before, begin:end] = rows[*before, begin - first : end - first]
    return result


def _resize_type(
    types: Types, shape: Shape, scales: tuple[float, ...], coordinate: str, rounding: str
) -> TensorType:
    fits = len(shape) == len(scales) == len(types[0].shape)
    expect(fits, f"shape {list(shape)} does not fit {types[0]}")
    rounded(source_position(0, (1, 1), 1.0, coordinate), rounding)
    return TensorType(shape, types[0].dtype)


def _resize(x: Any, shape: Shape, scales: tuple[float, ...], **named: str) -> Any:
    for axis, (after, scale) in enumerate(zip(shape, scales, strict=True)):
        before = x.shape[axis]
        if before != after or scale != 1:
            x = x.take([nearest_index(i, before, after, scale, named) for i in range(after)], axis)
    return x


def nearest_index(position: int, before: int, after: int, scale: float, named: Named) -> int:
    """Which of `before` positions output `position` (of `after`) of `resize_nearest` reads."""
    place = source_position(position, (before, after), scale, str(named["coordinate"]))
    return min(max(rounded(place, str(named["rounding"])), 0), before - 1)


_ROUNDINGS: Mapping[str, tuple[Callable[[float], int], float]] = {
    "floor": (floor, 0.0),
    "ceil": (ceil, 0.0),
    "round_prefer_floor": (ceil, -0.5),
    "round_prefer_ceil": (floor, 0.5),
}


def rounded(place: float, rounding: str) -> int:
    """The position nearest to a place between two, as ONNX's `nearest_mode` has it."""
    if rounding not in _ROUNDINGS:
        raise ModelError(f"unknown rounding {rounding}")
    toward, shift = _ROUNDINGS[rounding]
    return toward(place + shift)


def source_position(
    position: int, extents: tuple[int, int], scale: float, coordinate: str
) -> float:
    """Where in the input, of `extents[0]` positions, an output position of `extents[1]` lies.

    Source: the ONNX operator specification, Resize.
    """
    before, after = extents
    half_pixel = (position + 0.5) / scale - 0.5
    match coordinate:
        case "half_pixel":
            return half_pixel
        case "half_pixel_symmetric":
            return half_pixel + before / 2 * (1 - after / (scale * before))
        case "pytorch_half_pixel":
            return half_pixel if after > 1 else 0.0
        case "align_corners":
            return position * (before - 1) / (after - 1) if after > 1 else 0.0
        case "asymmetric":
            return position / scale
        case "tf_half_pixel_for_nn":
            return (position + 0.5) / scale
        case _:
            raise ModelError(f"unknown coordinate transformation {coordinate}")


def _interpolate_type(types: Types, axis: int) -> TensorType:
    x, indices, weights = types
    check_axis(axis, len(x.shape))
    common_dtype((x, weights))
    expect(x.dtype in ("float32", "float64"), f"takes float32 or float64, got {x}")
    fits = len(weights.shape) == 2 and indices.shape == weights.shape and weights.elements > 0
    expect(fits, f"{indices} and {weights} are no [taps, extent]")
    expect(indices.dtype == "int32", f"indices are {indices}, no int32")
    return TensorType((*x.shape[:axis], weights.shape[1], *x.shape[axis + 1 :]), x.dtype)


def _interpolate_work(types: Types, result: TensorType, **_named: object) -> int:
    return 2 * types[1].shape[0] * result.elements


def _interpolate(x: Any, indices: Any, weights: Any, axis: int) -> Any:
    spread = (-1, *(1 for _ in x.shape[axis + 1 :]))
    taps = zip(indices, weights, strict=True)
    total: Any = sum(x.take(row, axis=axis) * w.reshape(spread) for row, w in taps)
    return total.astype(x.dtype, copy=False)


MOVEMENT = (
    Operator(name="reshape", result_type=_reshape_type, compute=lambda x, shape: x.reshape(shape)),
    Operator(
        name="transpose",
        result_type=_transpose_type,
        compute=lambda x, permutation: x.transpose(permutation).copy(order="C"),
    ),
    Operator(name="slice", result_type=_slice_type, compute=_slice),
    Operator(name="concat", result_type=_concat_type, compute=_concat, arity=None),
    Operator(name="pad", result_type=_pad_type, compute=_pad),
    Operator(
        name="expand",
        result_type=_expand_type,
        compute=lambda x, shape: np.broadcast_to(x, shape).copy(order="C"),
    ),
    Operator(name="gather", result_type=_gather_type, compute=np.take, arity=2),
    Operator(name="cache_write", result_type=_cache_write_type, compute=_cache_write, arity=3),
    Operator(name="resize_nearest", result_type=_resize_type, compute=_resize),
    Operator(
        name="interpolate",
        result_type=_interpolate_type,
        work=_interpolate_work,
        compute=_interpolate,
        arity=3,
    ),
)
