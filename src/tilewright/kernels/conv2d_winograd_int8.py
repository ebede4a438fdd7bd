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
from fractions import Fraction
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.codes import CODES, code_error, rate
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.conv2d_dots import FEW, dot_units, lanes_of
from tilewright.kernels.conv2d_winograd import WinogradConvolution
from tilewright.kernels.convolution import Convolution, Convolutions, convolution
from tilewright.kernels.halves import PAIR
from tilewright.kernels.ports import whole_chunks
from tilewright.kernels.winograd_transforms import Transform, from_points, whole

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-1/2")))
_UNITS = frozenset({"avx512vnni"})
_LARGEST = 2**29


class CodeWinograd(WinogradConvolution):
    """Spec of the exact Winograd convolution by dot products of 16 bits."""

    element_types = CODES
    factors = "int16"
    passes = (1.0, 0.25, 1.0)
    tails = False

    def along_one_axis(self, outputs: int, taps: int) -> Transform:
        """In whole numbers."""
        return whole(from_points(outputs, taps, _POINTS))[0]

    def divisor(self, conv: Convolution) -> int:
        """What the transforms multiply results by."""
        (outputs,) = {self.outputs[conv.kernel]}
        return np.prod([whole(from_points(m, r, _POINTS))[1] for m, r in zip(outputs, conv.kernel)]).item()

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU with dot products of 16 bits, signed weights, channels in pairs, and sums that
        are surely known."""
        if not super().applies(workload, target, resources):
            return False
        conv = convolution(workload)
        return (
            bool(_lanes(target))
            and workload.types[conv.weight].dtype == "int8"
            and conv.in_channels % FEW == 0
            and 255 * 128 * conv.summed < _LARGEST
        )

    def input_lanes(self, conv: Convolution, forms: tuple[Form, ...], target: Target) -> int:
        """Where pairs fit the block."""
        block = super().input_lanes(conv, forms, target)
        return block if block % FEW == 0 else gcd(conv.in_channels, target.lanes(conv.computed_in))

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """Half of that of dot products of bytes."""
        return np.full(len(conv.computed_in), rate(target, conv.computed_in[0], dots=True) / 2)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There is a dot product of so many lanes, and a register for the broadcast input."""
        lanes, able = column(settings, "lanes"), _lanes(target)
        tile = self.tile(settings, target.lanes(convolution(workload).computed_in))
        accepted = super().valid_many(workload, target, resources, forms, settings)
        accepted &= np.isin(lanes, able) | (lanes % max(able) == 0)
        return accepted & tile.fits(target.vector_registers - 1)

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are transformed ahead."""
        return {convolution(workload).weight: self.factors}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[positions, ⌈O/bo⌉, I/2, bo, 2]."""
        ((weight, (*outer, depth, bo)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (*outer, depth // PAIR, bo, PAIR)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ, as [positions, ⌈O/bo⌉, I/2, bo, 2]."""
        conv = convolution(workload)
        ((weight, shape),) = self.packed_shapes(workload, candidate).items()
        single = super().pack(workload, candidate, constants)[weight]
        pairs = single.astype(self.factors).reshape(*shape[:3], PAIR, shape[3])
        return {**constants, weight: np.ascontiguousarray(pairs.swapaxes(3, 4))}


def _lanes(target: Target) -> tuple[int, ...]:
    return lanes_of(dot_units(target, _UNITS))


SPEC = CodeWinograd("conv2d_winograd_int8", outputs={(3, 3): (4, 4)}, bound={})
