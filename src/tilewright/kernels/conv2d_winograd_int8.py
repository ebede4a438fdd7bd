"""Winograd's convolution of codes of eight bits, exact: F(4×4, 3×3) in whole numbers.

With the points 0, ±1, 2, -1/2 and infinity, the transforms of data and weights are whole numbers of
16 bits once results are multiplied by 30 along each axis:

    900 y = A^T ((G w) * (B^T x)),    |B^T x| ≤ 25,088,    |G w| ≤ 28,800

Sums of 32 bits overflow, and keep their lowest 32 bits. These times the inverse of 225 modulo 2³²
are the lowest 32 bits of 4 y, and so y, if it is less than 2²⁹. So nothing is rounded.

`vpdpwssd` multiplies pairs of 16 bits at half the rate of `vpdpbusd`, but a tile takes 36
multiplications instead of 144.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Numbers
from tilewright.cost.floors import MEASURED, Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.codes import CODES, code_error, one_in_a_cycle, rate
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_dots import dot_units, lanes_of
from tilewright.kernels.conv2d_winograd_pairs import PairedWinograd
from tilewright.kernels.convolution import Convolution, Convolutions, convolution
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.winograd_transforms import Transform, from_points, whole

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-1/2")))
_UNIT = frozenset({"avx512vnni"})
_LARGEST = 2**29
"""Of a quarter of the numbers of 32 bits: the divisor's power of two is 4."""
_TRANSFORM_CYCLES = 2.0


@dataclass(frozen=True, slots=True)
class _Tile(RegisterTile):
    """Sums that one dot product in a cycle is added to: a load beside each is hidden."""

    @property
    def slowdown(self) -> Numbers:
        """Weights come from the second cache, and with several vectors of them inputs are no
        operands; a latency of four cycles wants as many sums."""
        beside = 1.0 + 0.5 / self.rows + 0.03 * (self.vectors - 1.0)
        return np.maximum(1.0, 4.0 / self.accumulators) * beside


class CodeWinograd(PairedWinograd):
    """Spec of the exact Winograd convolution by dot products of 16 bits."""

    element_types = CODES
    factors = "int16"
    passes = (1.0, 0.25, 1.0)
    tails = False

    def along_one_axis(self, outputs: int, taps: int) -> Transform:
        """In whole numbers."""
        return _whole(outputs, taps)[0]

    def divisor(self, conv: Convolution) -> int:
        """What the transforms multiply results by."""
        ways = zip(self.outputs[conv.kernel], conv.kernel, strict=True)
        return prod(_whole(*way)[1] for way in ways)

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU for which it was measured, signed weights, channels in fours, and sums that are
        surely known."""
        if not super().applies(workload, target, resources):
            return False
        conv = convolution(workload)
        signed = workload.types[conv.weight].dtype == "int8"
        return one_in_a_cycle(target) and signed and 255 * 128 * conv.summed < _LARGEST

    def dot_lanes(self, target: Target) -> tuple[int, ...]:
        """Those of dot products of 16 bits, which come with those of bytes."""
        return lanes_of(dot_units(target, _UNIT))

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """As elsewhere, but for what it loses."""
        found = super().tile(settings, register)
        return _Tile(found.rows, found.vectors)

    def transform_cycles(self, forms: tuple[Form, ...]) -> float:
        """Products of half the time do not hide them."""
        return _TRANSFORM_CYCLES

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """Half of that of dot products of bytes."""
        return np.full(len(conv.computed_in), rate(target, conv.computed_in[0], dots=True) / 2)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products of 16 bits."""
        rate_here = rate(target, workload.computed_in, dots=True) / 2
        speed = rate_here / target.operations_per_cycle(MEASURED)
        return replace(super().least_work(workload, target), speed=speed)

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are transformed ahead."""
        return {convolution(workload).weight: self.factors}

    def in_16_bits(self, weights: Array) -> Array:
        """They are whole numbers of 16 bits already."""
        return weights.astype(self.factors)


@cache
def _whole(outputs: int, taps: int) -> tuple[Transform, int]:
    return whole(from_points(outputs, taps, _POINTS))


SPEC = CodeWinograd("conv2d_winograd_int8", outputs={(3, 3): (4, 4)}, bound={})
