"""The Winograd convolutions with products of bfloat16 and sums in single precision.

See `conv2d_winograd_halves`. Pairs of input channels lie together, for `vdpbf16ps`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate
from tilewright.core.targets import Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_winograd_halves import HalfWinograd
from tilewright.kernels.conv2d_winograd_pairs import PairedWinograd
from tilewright.kernels.convolution import Convolutions, convolution
from tilewright.kernels.halves import half_lanes


class Bfloat16Winograd(PairedWinograd, HalfWinograd):
    """Spec of a Winograd convolution by dot products of bfloat16."""

    factors = HALF

    def dot_lanes(self, target: Target) -> tuple[int, ...]:
        """Those of dot products of bfloat16."""
        return half_lanes(target)

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """By dot products."""
        return np.full(len(conv.computed_in), float(target.operations_per_cycle(HALF, tiles=False)))

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits: TVM makes singles of bfloat16."""
        return {convolution(workload).weight: "uint16"}

    def in_16_bits(self, weights: Array) -> Array:
        """Rounded to bfloat16, as bits."""
        return weights.astype(element_type(HALF).numpy).view(np.uint16)


SPECS = (
    Bfloat16Winograd("conv2d_winograd_bfloat16", outputs={(3, 3): (4, 4)}),
    Bfloat16Winograd("conv2d_winograd2_bfloat16", outputs={(3, 3): (2, 2), (5, 5): (2, 2)}),
    Bfloat16Winograd(
        "conv2d_winograd1d_bfloat16",
        outputs={(1, 3): (1, 4), (3, 1): (4, 1), (1, 7): (1, 2), (7, 1): (2, 1)},
    ),
)
"""For seven taps tiles of two: F(4, 7) would amplify errors by 13, F(2, 7) does by 5."""
