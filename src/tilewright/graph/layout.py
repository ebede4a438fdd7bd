"""Arrays in forms, and back in the order of their logical indices.

    to_physical(floats, Form(layout, "bfloat16"))    rounded to bfloat16, and rearranged
    to_logical(there, form, shape)                   the same numbers, in bfloat16 still

Codes have scales, which are no part of a form: arrays of them are refused.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.layouts import Layout
from tilewright.graph.network import Array


def to_physical(array: Array, form: Form) -> Array:
    """Repack a row-major array into `form`, rounded to its element type; contiguous."""
    layout = _layout(form)
    if form.dtype is not None:
        array = array.astype(element_type(form.dtype).numpy)
    parts = layout.parts(array.shape)
    cut = array.reshape([*chain.from_iterable(parts)])
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in layout.places(array.ndim)]
    return np.asarray(cut.transpose(order), order="C")


def to_logical(array: Array, form: Form, shape: tuple[int, ...]) -> Array:
    """The inverse of `to_physical`, for an array of logical `shape`; contiguous. Elements keep the
    type that they have in memory."""
    layout = _layout(form)
    parts = layout.parts(shape)
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in layout.places(len(shape))]
    back = array.reshape(layout.physical_shape(shape)).transpose(np.argsort(order))
    return np.asarray(back, order="C").reshape(shape)


def _layout(form: Form) -> Layout:
    """Raises InternalError for codes: their scales are no part of a form."""
    if form.encoding is not None:
        raise InternalError(f"form {form} has codes; arrays are numbers")
    return form.layout


def _firsts(parts: tuple[tuple[int, ...], ...]) -> list[int]:
    """The number of the first part of each axis, counted over all."""
    return [sum(map(len, parts[:axis])) for axis in range(len(parts))]
