"""Arrays in forms, and back in the order of their logical indices; and arrays in `.npy` files.

    to_physical(floats, Form(layout, "bfloat16"))    rounded to bfloat16, and rearranged
    to_logical(there, form, shape)                   the same numbers, in bfloat16 still

Codes have scales, which are no part of a form: arrays of them are refused.
"""

from __future__ import annotations

from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.graph.network import Array


def rounded_to(array: Array, dtype: str) -> Array:
    """The numbers that are left of an array in a coarser type, in its own; finite ones stay
    finite."""
    kind = element_type(dtype)
    with np.errstate(over="ignore"):
        stored = array.astype(kind.numpy).astype(array.dtype)
    beyond = np.isinf(stored) & np.isfinite(array)
    return np.where(beyond, np.copysign(array.dtype.type(kind.largest), array), stored)


def codes_of(array: Array, axis: int) -> tuple[Array, Array]:
    """Numbers as codes from -127 to 127, and a scale for each place along `axis`, the other axes
    one long: number ≈ scale × code, and the largest number there is ±127."""
    others = tuple(other for other in range(array.ndim) if other != axis)
    ends = array.max(axis=others, keepdims=True), -array.min(axis=others, keepdims=True)
    scales = (np.maximum(*ends) / 127).astype(np.float32)
    scales[scales == 0] = 1.0
    codes = np.clip(np.rint(array / scales), -127, 127)
    return codes.astype(np.int8), scales


def rounded_to_codes(array: Array, axis: int) -> Array:
    """The numbers that are left of an array on such codes, in single precision."""
    return np.multiply(*codes_of(array, axis))


def to_physical(array: Array, form: Form) -> Array:
    """Repack a row-major array into `form`, rounded to its element type; contiguous."""
    parts, order = memory_parts(form, array.shape)
    if form.dtype is not None:
        array = array.astype(element_type(form.dtype).numpy)
    return np.asarray(array.reshape(parts).transpose(order), order="C")


def to_logical(array: Array, form: Form, shape: tuple[int, ...]) -> Array:
    """The inverse of `to_physical`, for an array of logical `shape`; contiguous. Elements keep the
    type that they have in memory."""
    _, order = memory_parts(form, shape)
    back = array.reshape(form.layout.physical_shape(shape)).transpose(np.argsort(order))
    return np.asarray(back, order="C").reshape(shape)


def memory_parts(form: Form, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The extents of all parts that axes are cut into, and the order in which the parts lie.

    Raises InternalError for codes: their scales are no part of a form.
    """
    if form.encoding is not None:
        raise InternalError(f"form {form} has codes; arrays are numbers")
    parts = form.layout.parts(shape)
    first = list(accumulate(map(len, parts), initial=0))
    order = [first[axis] + part for axis, part in form.layout.places(len(shape))]
    return [*chain.from_iterable(parts)], order


def map_array(path: Path, dtype: str) -> Array:
    """The array of a `.npy` file, mapped into memory. Its element type is `dtype`: numpy's format
    has no name for types such as bfloat16 and keeps their bytes alone. Raises OSError."""
    return np.load(path, mmap_mode="r").view(element_type(dtype).numpy)
