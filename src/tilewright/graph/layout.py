"""Arrays in the layouts of forms, and back in the order of their logical indices."""

from __future__ import annotations

from itertools import chain

import numpy as np

from tilewright.core.forms import Form, own_layout
from tilewright.graph.network import Array


def to_physical(array: Array, form: Form) -> Array:
    """Repack a row-major array into `form`; contiguous."""
    layout = own_layout(form)
    parts = layout.parts(array.shape)
    cut = array.reshape([*chain.from_iterable(parts)])
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in layout.places(array.ndim)]
    return np.asarray(cut.transpose(order), order="C")


def to_logical(array: Array, form: Form, shape: tuple[int, ...]) -> Array:
    """The inverse of `to_physical`, for an array of logical `shape`; contiguous."""
    layout = own_layout(form)
    parts = layout.parts(shape)
    first = _firsts(parts)
    order = [first[axis] + part for axis, part in layout.places(len(shape))]
    back = array.reshape(layout.physical_shape(shape)).transpose(np.argsort(order))
    return np.asarray(back, order="C").reshape(shape)


def _firsts(parts: tuple[tuple[int, ...], ...]) -> list[int]:
    """The number of the first part of each axis, counted over all."""
    return [sum(map(len, parts[:axis])) for axis in range(len(parts))]
