"""Transposed convolution of singles with products of float16, see `float16_sums`.

As `conv2d_transposed`, in the same phases, with one product in each lane. A run is a block of input
channels, or where these are few a row of taps. The copy of the input with its border is rounded,
unless the input lies there in halves, and weights are rounded ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Numbers
from tilewright.cost.floors import Work
from tilewright.graph.arrays import rounded_to
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_transposed import (
    SINGLES,
    GatheringTransposedConvolution,
    TransposedConvolution,
    transposed_convolution,
)
from tilewright.kernels.float16_sums import LONGEST_RUN, RUNS, error_of_runs, rate_of_runs
from tilewright.kernels.halves import ROUNDING_CYCLES, has_half_arithmetic, multiplied_work
from tilewright.kernels.ports import arriving_block
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.run_rounding import of_phases

_LEAST_BLOCK = 8
"""Channels of the smallest block, but for images of fewer."""
_LANES = (32, 16, 8)


class Float16TransposedConvolution(GatheringTransposedConvolution):
    """Spec of the transposed convolution by products of float16."""

    name = "conv2d_transposed_float16"
    multiplies_in = FLOAT16
    converting = ROUNDING_CYCLES

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with arithmetic on halves. Not offered
        for all the same where a result lies in blocks of other numbers of channels than 8, 16 and
        32."""
        return has_half_arithmetic(target) and super().applies(workload, target, resources)

    def lane_values(
        self, workload: Workload, target: Target, forms: tuple[Form, ...]
    ) -> tuple[int, ...]:
        """Eights, up to a register of halves."""
        return self.able_lanes(workload, target, forms, _LANES)

    def register(self, singles: int) -> int:
        """Twice as many halves."""
        return 2 * singles

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """Of halves, twice as many in a register."""
        return super().tile(settings, 2 * register)

    def input_block(
        self, conv: TransposedConvolution, forms: tuple[Form, ...], settings: Settings
    ) -> int:
        """As many channels as a run has, or fewer that divide them."""
        longest = max(RUNS)
        block = gcd(arriving_block(forms, conv.data) or conv.group_in, conv.group_in, longest)
        if block >= _LEAST_BLOCK:
            return block
        return conv.group_in if conv.group_in <= longest else longest // 2

    def taps_in_run(self, conv: TransposedConvolution, block: int) -> int:
        """Taps beside each other that are one run."""
        return conv.columns.taps if conv.columns.taps * block <= LONGEST_RUN else 1

    def speedup(self, workload: Workload, target: Target, settings: Sequence[Settings]) -> Floats:
        """In runs; that registers hold more is counted elsewhere."""
        conv = transposed_convolution(workload)
        block = self.input_block(conv, (), {})
        run = np.full(len(settings), float(block * self.taps_in_run(conv, block)))
        return rate_of_runs(target, run) / 2 / target.operations_per_cycle(SINGLES, tiles=False)

    def copied_as(self, workload: Workload) -> str:
        """Halves."""
        return FLOAT16

    def error_bound(self, workload: Workload) -> float:
        """See `error_of_runs`."""
        conv = transposed_convolution(workload)
        return error_of_runs(conv.summed, LONGEST_RUN if conv.columns.taps > 1 else max(RUNS))

    def addition_deviations(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """See `AddsInHalves`."""
        conv, (data, weights) = transposed_convolution(workload), operands
        block = self.input_block(conv, (), {})
        return of_phases(conv, data, weights, block, block * self.taps_in_run(conv, block))

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of halves."""
        weight = transposed_convolution(workload).weight
        return multiplied_work(workload, target, weight, FLOAT16)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead."""
        return {transposed_convolution(workload).weight: FLOAT16}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """As in single precision, rounded."""
        weight = transposed_convolution(workload).weight
        rounded = rounded_to(constants[weight], FLOAT16)
        packed = self.in_phases(workload, candidate, rounded, np.float16)
        return {**constants, weight: packed}


SPEC = Float16TransposedConvolution()
