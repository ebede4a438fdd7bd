"""Transposed convolution of singles with products of bfloat16 and sums in single precision.

As `conv2d_transposed`, in the same phases. The copy of the input with its border is rounded, unless
the input lies there in halves, and weights are rounded ahead. A slot is a pair of input channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.floors import Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_transposed import (
    GatheringTransposedConvolution,
    transposed_convolution,
)
from tilewright.kernels.halves import (
    PAIR,
    ROUNDING_CYCLES,
    half_lanes,
    multiplied_work,
    rounding_error,
)


class Bfloat16TransposedConvolution(GatheringTransposedConvolution):
    """Spec of the transposed convolution by dot products of bfloat16."""

    name = "conv2d_transposed_bfloat16"
    multiplies_in = HALF

    converting = ROUNDING_CYCLES

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with dot products. Not offered for
        all the same where a result lies in blocks of other numbers of channels than 4, 8 and 16."""
        return bool(half_lanes(target)) and super().applies(workload, target, resources)

    def terms(self, settings: Settings) -> int:
        """Input channels that are multiplied together; behind an odd number of them is a zero."""
        return PAIR

    def lane_values(
        self, workload: Workload, target: Target, forms: tuple[Form, ...]
    ) -> tuple[int, ...]:
        """Those of the instruction."""
        return self.able_lanes(workload, target, forms, half_lanes(target))

    def speedup(self, workload: Workload, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products."""
        single = target.operations_per_cycle(workload.computed_in, tiles=False)
        return np.full(len(settings), target.operations_per_cycle(HALF, tiles=False) / single)

    def copied_as(self, workload: Workload) -> str:
        """Halves."""
        return HALF

    def error_bound(self, workload: Workload) -> float:
        """See `rounding_error`."""
        return rounding_error(transposed_convolution(workload).summed)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target, transposed_convolution(workload).weight)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits."""
        return {transposed_convolution(workload).weight: "uint16"}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """As in single precision, in pairs and rounded."""
        weight = transposed_convolution(workload).weight
        kind = element_type(HALF).numpy
        packed = self.in_phases(workload, candidate, constants[weight], kind)
        return {**constants, weight: packed.view(np.uint16)}


SPEC = Bfloat16TransposedConvolution()
