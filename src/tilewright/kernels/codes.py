"""What kernels on codes of eight bits have in common.

With dot-product instructions (`vpdpbusd`: four products of an unsigned and a signed byte added to
each 32-bit lane) signed data is taken as x + 128, which is a flip of one bit; -128 Σw of every
column is added to the sums again and lies in one more slot behind its weights: the lowest bytes of
all lanes, then the next ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.core.targets import Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE
from tilewright.kernels.conv2d_dots import dot_units, lanes_of

CODES = frozenset({"int8", "uint8"})
"""The element types of codes."""
QUAD = 4
"""Products that one dot-product instruction adds to a lane."""
OFFSET = 128
"""What is added to signed data to make it unsigned."""
UNITS = frozenset({"avx512vnni", "avxvnni"})
"""Those with the instruction `vpdpbusd`."""
_ONE_QUANTUM = 1.01 / 127


def dot_lanes(target: Target) -> tuple[int, ...]:
    """Lanes of 32 bits for which the device has dot products of bytes."""
    return lanes_of(dot_units(target, UNITS))


def rate(target: Target, computed_in: str, *, dots: bool) -> float:
    """Operations per cycle and core: by dot products where there are any, else by widened products,
    which take three instructions where a dot product takes one."""
    plain, lanes = target.operations_per_cycle(computed_in), target.lanes(computed_in)
    found = [
        unit.operations_per_cycle // unit.granule[1] * lanes for unit in dot_units(target, UNITS)
    ]
    return max(found, default=plain) if dots else plain / 3


def with_offsets(packed: Array, sums: Any) -> Array:
    """Packed weights [chunks, slots, lanes, width] with -128 Σw behind the others; `sums` are those
    of all columns."""
    chunks, _, lanes, width = packed.shape
    planes = (-OFFSET * sums.astype("<i4")).view(np.int8).reshape(chunks, lanes, QUAD)
    last = planes.swapaxes(1, 2).reshape(chunks, 1, lanes, width)
    return np.concatenate([packed, last], axis=1)


def code_error(workload: Workload) -> float:
    """Sums are exact: nothing may differ. A sum behind a product in single precision may be
    contracted with it, so that a result rounds to its neighbour."""
    if workload.result.dtype in SINGLE:
        return 2e-6
    contracted = any(
        step.operator in ("add", "subtract")
        and any(_is_product(workload, value) for value in step.inputs)
        for step in workload.steps
    )
    return _ONE_QUANTUM if contracted else 1e-10


def _is_product(workload: Workload, value: int) -> bool:
    step = value - len(workload.arguments)
    floats = workload.types[value].dtype in SINGLE
    return step >= 0 and floats and workload.steps[step].operator == "multiply"
