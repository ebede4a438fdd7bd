"""Operands of single kernels as numpy arrays: given ones in the forms of a kernel, random ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate
from tilewright.graph.arrays import to_physical
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, PacksTypes
from tilewright.kernels.registry import implementation

ArrayType = tuple[tuple[int, ...], str]
"""A physical shape, and an element type."""

_PATTERN = 1 << 20
_BITS = "uint16"
HALVES = "halves"
"""In place of an element type: numbers in bfloat16 that kernels declare as their bits."""


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str, limit: int) -> Array:
    """N(0, 1) for floats, also as `HALVES`, [0, limit) for integers; large arrays repeat a
    pattern."""
    count = prod(shape)
    if dtype == HALVES:
        return as_bits(random_array(rng, shape, "float32", limit).astype(element_type(HALF).numpy))
    if dtype == "bool":
        pattern = rng.integers(0, 2, min(count, _PATTERN)).astype(bool)
    elif "int" in dtype:
        pattern = rng.integers(0, limit, min(count, _PATTERN)).astype(dtype)
    else:
        pattern = rng.standard_normal(min(count, _PATTERN), dtype=np.float32).astype(dtype)
    return np.resize(pattern, tuple(shape))


def physical_operands(
    workload: Workload, candidate: Candidate, arrays: Sequence[Array]
) -> Iterator[Array]:
    """Logical arrays as the kernel takes them: in its layouts, constants packed.

    One after the other, so that whoever copies them needs no memory for all.
    """
    spec = implementation(candidate.implementation)
    roles = [argument.role for argument in workload.arguments]
    constants = {
        index: array
        for index, (array, role) in enumerate(zip(arrays, roles, strict=True))
        if role == "constant"
    }
    packed = spec.packed_shapes(workload, candidate)
    physical = dict(spec.pack(workload, candidate, constants)) if packed else {}
    for index, array in enumerate(arrays):
        form = candidate.forms[index]
        value = physical.pop(index) if index in packed else to_physical(array, form)
        value = as_bits(value) if form.dtype == HALF else value
        yield np.asarray(value, order="C")


def as_bits(halves: Array) -> Array:
    """Numbers in bfloat16 as kernels declare them."""
    return halves.view(_BITS)


def half_places(workload: Workload, candidate: Candidate) -> frozenset[int]:
    """The operands, the result behind them, that are `HALVES`."""
    spec = implementation(candidate.implementation)
    types = spec.packed_types(workload, candidate) if isinstance(spec, PacksTypes) else {}
    packed = (index for index, dtype in types.items() if dtype == _BITS)
    stored = (index for index, form in enumerate(candidate.forms) if form.dtype == HALF)
    return frozenset((*stored, *packed))


def bytes_of(kind: ArrayType) -> int:
    """Bytes of an array."""
    shape, dtype = kind
    return prod(shape) * element_type(dtype).bytes
