"""The Winograd convolutions with products of bfloat16 and sums in single precision.

As `conv2d_winograd`; what is multiplied, the transformed input and the transformed weights, is
rounded to bfloat16, weights ahead. Pairs of input channels lie together, for `vdpbf16ps`. The
transforms are computed in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.columns import Bools, Floats, by_type, column
from tilewright.kernels.conv2d_dots import FEW
from tilewright.kernels.conv2d_winograd import FROM_L3, Pair, WinogradConvolution
from tilewright.kernels.convolution import Convolution, Convolutions, convolution, convolutions
from tilewright.kernels.halves import PAIR, half_lanes, multiplied_work, rounding_error
from tilewright.kernels.winograd_rounding import rounding_errors

_TRANSFORM_CYCLES = 4.0
"""For each vector of transformed input: both transforms, rounding, and the output's share."""


class Bfloat16Winograd(WinogradConvolution):
    """Spec of a Winograd convolution by dot products of bfloat16.

    `outputs` are the rows and columns of an output tile by kernel.
    """

    multiplies_in = HALF
    coarse, multiplied_bytes = True, 2
    passes = (1.0, 0.25, 1.0)
    tails = False

    def __init__(self, name: str, *, outputs: Mapping[Pair, Pair]):
        super().__init__(name, outputs=outputs, bound={})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU with dot products, where channels come in pairs."""
        pairs = convolution(workload).in_channels % FEW == 0
        return bool(half_lanes(target)) and pairs and super().applies(workload, target, resources)

    def input_lanes(self, conv: Convolution, forms: tuple[Form, ...], target: Target) -> int:
        """Where pairs, and dot products, fit the block."""
        block = super().input_lanes(conv, forms, target)
        return block if block % FEW == 0 else gcd(conv.in_channels, target.lanes(conv.computed_in))

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """By dot products."""
        return np.full(len(conv.computed_in), float(target.operations_per_cycle(HALF, tiles=False)))

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There is a dot product of so many lanes, and a register for the broadcast input, which
        is never an operand."""
        lanes, widest = column(settings, "lanes"), max(half_lanes(target))
        tile = self.tile(settings, target.lanes(convolution(workload).computed_in))
        able = np.isin(lanes, half_lanes(target)) | (lanes % widest == 0)
        accepted = super().valid_many(workload, target, resources, forms, settings)
        return accepted & able & tile.fits(target.vector_registers - 1)

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, but products no longer hide the transforms, and what is counted
        of the weights are halves alone."""
        found = super().demand_of_many(workloads, target, resources, forms, settings)
        conv = convolutions(workloads)
        down, across, positions = self._tiles(conv)
        inputs = conv.batch * down * across * positions * conv.in_channels
        lanes = by_type(conv.computed_in, target.lanes)
        unpacked_bytes = 4.0 * conv.taps * conv.in_channels * conv.out_channels
        moved = found.traffic["L3"] - FROM_L3 * unpacked_bytes
        cycles = _TRANSFORM_CYCLES * inputs / lanes
        return replace(found, traffic={"L3": moved}, cycles=cycles)

    def error_bound(self, workload: Workload) -> float:
        """That of independent roundings, enlarged by the transforms along both axes.

        It holds for inputs of like magnitude within a tile, or zero in the border.
        """
        conv = convolution(workload)
        form, (top, left, bottom, right) = self.form(conv), conv.padding
        down = form.vertical.amplification(max(top, bottom))
        across = form.horizontal.amplification(max(left, right))
        return down * across * rounding_error(conv.summed)

    def rounding_errors(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """What the roundings of transformed data and transformed weights add to the convolution."""
        conv, (data, weights) = convolution(workload), operands
        return rounding_errors(self.form(conv), conv, data, weights, self.multiplies_in)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        direct = multiplied_work(workload, target, convolution(workload).weight)
        return replace(super().least_work(workload, target), speed=direct.speed)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits: TVM makes singles of bfloat16."""
        return {convolution(workload).weight: "uint16"}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[positions, ⌈O/bo⌉, I/2, bo, 2]."""
        ((weight, (*outer, depth, bo)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (*outer, depth // PAIR, bo, PAIR)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ rounded, as [positions, ⌈O/bo⌉, I/2, bo, 2]."""
        ((weight, shape),) = self.packed_shapes(workload, candidate).items()
        single = super().pack(workload, candidate, constants)[weight]
        halves = single.astype(element_type(HALF).numpy).reshape(*shape[:3], PAIR, shape[3])
        packed = np.ascontiguousarray(halves.swapaxes(3, 4)).view(np.uint16)
        return {**constants, weight: packed}


SPECS = (
    Bfloat16Winograd("conv2d_winograd_bfloat16", outputs={(3, 3): (4, 4)}),
    Bfloat16Winograd("conv2d_winograd2_bfloat16", outputs={(3, 3): (2, 2), (5, 5): (2, 2)}),
    Bfloat16Winograd(
        "conv2d_winograd1d_bfloat16",
        outputs={(1, 3): (1, 4), (3, 1): (4, 1), (1, 7): (1, 2), (7, 1): (2, 1)},
    ),
)
"""For seven taps tiles of two: F(4, 7) would amplify errors by 13, F(2, 7) does by 5."""
