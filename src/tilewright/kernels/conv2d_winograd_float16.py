"""The Winograd convolutions with products of float16, added up in runs; see `float16_sums`.

See `conv2d_winograd_halves`. Rows of the transforms are scaled by powers of two, so that what is
transformed is no larger than what it comes of: where runs of products fit float16 in a direct
convolution, they fit here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.arrays import rounded_to
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_winograd import Pair
from tilewright.kernels.conv2d_winograd_halves import HalfWinograd
from tilewright.kernels.convolution import Convolution, Convolutions, convolution
from tilewright.kernels.float16_sums import error_of_additions, rate_of_runs
from tilewright.kernels.halves import has_half_arithmetic
from tilewright.kernels.winograd_transforms import Transform


class Float16Winograd(HalfWinograd):
    """Spec of a Winograd convolution by products of float16, `products` of them in a run."""

    factors = FLOAT16

    def __init__(self, name: str, *, outputs: Mapping[Pair, Pair], products: int):
        super().__init__(name, outputs=outputs)
        self.products = products

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU with arithmetic on halves, where channels come in runs."""
        runs = convolution(workload).in_channels % self.products == 0
        return has_half_arithmetic(target) and runs and super().applies(workload, target, resources)

    def along_one_axis(self, outputs: int, taps: int) -> Transform:
        """Without enlarging numbers."""
        return super().along_one_axis(outputs, taps).balanced()

    def register(self, dtype: str, target: Target) -> int:
        """Halves."""
        return target.lanes(FLOAT16)

    def input_lanes(self, conv: Convolution, forms: tuple[Form, ...], target: Target) -> int:
        """Where runs fit the block."""
        block = super().input_lanes(conv, forms, target)
        return block if block % self.products == 0 else gcd(conv.in_channels, target.lanes(FLOAT16))

    def run(self, conv: Convolution) -> int:
        """Part of a block of channels."""
        return self.products

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """In runs."""
        return rate_of_runs(target, np.full(len(conv.computed_in), float(self.products)))

    def error_bound(self, workload: Workload) -> float:
        """That of additions in runs beside it."""
        conv = convolution(workload)
        added = error_of_additions(conv.summed, self.products)
        return super().error_bound(workload) + self.amplification(conv, sums=True) * added

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead."""
        return {convolution(workload).weight: FLOAT16}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ rounded, as [positions, ⌈O/bo⌉, I, bo]."""
        weight = convolution(workload).weight
        single = super().pack(workload, candidate, constants)[weight]
        return {**constants, weight: rounded_to(single, FLOAT16).astype(np.float16)}


SPECS = (
    Float16Winograd("conv2d_winograd_float16", outputs={(3, 3): (4, 4)}, products=16),
    Float16Winograd(
        "conv2d_winograd2_float16", outputs={(3, 3): (2, 2), (5, 5): (2, 2)}, products=32
    ),
    Float16Winograd(
        "conv2d_winograd1d_float16",
        outputs={(1, 3): (1, 4), (3, 1): (4, 1), (1, 7): (1, 2), (7, 1): (2, 1)},
        products=16,
    ),
)
"""Runs are short where transforms enlarge the errors of their sums most."""
