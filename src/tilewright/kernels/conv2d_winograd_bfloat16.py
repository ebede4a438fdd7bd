"""The Winograd convolutions with products of bfloat16 and sums in single precision.

See `conv2d_winograd_halves`. Pairs of input channels lie together, for `vdpbf16ps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.conv2d_dots import FEW
from tilewright.kernels.conv2d_winograd_halves import HalfWinograd
from tilewright.kernels.convolution import Convolution, Convolutions, convolution
from tilewright.kernels.halves import PAIR, half_lanes


class Bfloat16Winograd(HalfWinograd):
    """Spec of a Winograd convolution by dot products of bfloat16."""

    factors = HALF

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
