"""What kernels have in common that round singles to halves and multiply those.

`vdpbf16ps` of x86 and `bfdot` of ARM multiply two pairs of bfloat16 and add both products to a
single, in each lane: twice the rate of single precision, at an error of two roundings in each
product. float16 is for processors that multiply it (AVX512-FP16), or only convert it (F16C).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.element_types import element_type
from tilewright.core.records import Placement
from tilewright.core.targets import Target
from tilewright.cost.floors import MEASURED, Work, least_work
from tilewright.graph.workload import Workload
from tilewright.kernels.base import CHOSEN, CPU, FLOAT16, HALF, HALVES
from tilewright.kernels.conv2d_dots import dot_units, lanes_of
from tilewright.kernels.ports import Widening

PAIR = 2
"""Products that one dot-product instruction adds to a lane."""
_UNITS = frozenset({"avx512bf16", "bf16"})
HALF_VECTORS = "avx512fp16"
"""The unit that multiplies and adds float16."""
_CONVERTING = frozenset({"f16c", HALF_VECTORS})
_DEVIATIONS = 6.0
ROUNDING_CYCLES = 0.5
"""Cycles for each value that is rounded and written to be multiplied."""


class OfHalves(Widening):
    """The parts of a spec that say: factors are halves, and all singles may lie there as such."""

    multiplies_in = HALF

    def multiplied_in(self, workload: Workload) -> str:
        """Halves."""
        return HALF


def half_lanes(target: Target) -> tuple[int, ...]:
    """Lanes of singles for which the device has dot products of bfloat16."""
    return lanes_of(dot_units(target, _UNITS))


def multiplied_work(
    workload: Workload, target: Target, weight: int | None = None, dtype: str = HALF
) -> Work:
    """The least work at the rate of products of a half type, with constant weights in halves."""
    whole = least_work(workload, target)
    saved = 0 if weight is None else workload.types[weight].bytes // 2
    rate = target.operations_per_cycle(dtype, tiles=False)
    return replace(
        whole,
        speed=rate / target.operations_per_cycle(MEASURED),
        memory_bytes=whole.memory_bytes - saved,
    )


def rounding_error(length: int, dtype: str = HALF) -> float:
    """Error of a sum of so many products of numbers rounded to a half type, relative to the sum of
    their sizes: roundings are independent of each other, so that most of them cancel out in a long
    sum."""
    twice = 2.0 * (element_type(dtype).unit_roundoff or 0.0)
    return twice * min(1.0, _DEVIATIONS / length**0.5)


def half_type(placement: Placement) -> str:
    """The type of 16 bits in which singles may be stored where a placement allows that; empty where
    it allows none."""
    precision = HALF if placement.precision in CHOSEN else placement.precision
    return precision if precision in HALVES else ""


def half_types(placement: Placement) -> tuple[str, ...]:
    """The types of 16 bits among which tensors may be stored there, the coarsest first: of a
    mixture float16, too, where it is multiplied."""
    half = half_type(placement)
    both = placement.precision in CHOSEN and has_half_arithmetic(placement.target)
    return (half, FLOAT16) if both else tuple(filter(None, (half,)))


def has_half_arithmetic(target: Target) -> bool:
    """Whether a CPU multiplies and adds whole registers of float16."""
    return any(unit.name == HALF_VECTORS for unit in target.units)


def converts_float16(target: Target) -> bool:
    """Whether a CPU has instructions that widen float16 and round to it."""
    x86 = not _CONVERTING.isdisjoint(target.features)
    return target.kind in CPU and (x86 or target.architecture.startswith("aarch64"))
