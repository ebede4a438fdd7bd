"""Convolution of singles with products of float16, see `float16_sums`.

The loops are those of convolutions by dot products (`conv2d_dots`), with one product in each lane:
data lies in blocks of channels, of which a run is one, or a block of a few taps beside each other.
Data in other blocks, in singles, or with a border of zeros is copied first.
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
from tilewright.kernels.base import FLOAT16, Knob
from tilewright.kernels.columns import Floats, column
from tilewright.kernels.conv2d_dots import DotConvolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.float16_sums import LONGEST_RUN, RUNS, error_of_runs, rate_of_runs
from tilewright.kernels.halves import has_half_arithmetic, multiplied_work
from tilewright.kernels.ports import arriving_block, single_ports, usual_lanes
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.run_rounding import of_convolution

_LEAST_BLOCK = 8
"""Channels of the smallest block, but for images of fewer."""


class Float16Convolution(DotConvolution):
    """Spec of the convolution by products of float16."""

    name = "conv2d_float16"
    multiplies_in = FLOAT16

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with arithmetic on halves, and more than
        one channel per group."""
        conv = convolution(workload)
        several = conv.group_out > 1 and (conv.groups == 1 or conv.group_in % _LEAST_BLOCK == 0)
        return (
            has_half_arithmetic(target) and several and super().applies(workload, target, resources)
        )

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, and loop order of the parallel axes."""
        conv = convolution(workload)
        lanes = usual_lanes(conv.group_out, forms[-1], target.lanes(FLOAT16))
        fitting = (lanes,) if lanes % _LEAST_BLOCK == 0 else ()
        return Knob(name="lanes", values=fitting), *self.tile_knobs(conv, conv.group_out // lanes)

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """Of halves, twice as many in a register."""
        return super().tile(settings, 2 * register)

    def terms(self, settings: Settings) -> int:
        """One product in each lane."""
        return 1

    def input_block(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Channels of the input that lie together when the loops read it: as many as a run has, or
        fewer that divide them."""
        arriving, longest = arriving_block(forms, conv.data), max(RUNS)
        block = gcd(arriving or conv.group_in, conv.group_in, longest)
        if block >= _LEAST_BLOCK:
            return block
        return conv.group_in if conv.group_in <= longest else longest // 2

    def copied(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether the input is copied first: into halves, into blocks, or for its border."""
        if conv.padded or conv.data >= len(forms) - 1 or forms[conv.data].dtype != FLOAT16:
            return True
        arriving = arriving_block(forms, conv.data)
        return not arriving or arriving % self.input_block(conv, forms, settings) > 0

    def taps_in_run(self, conv: Convolution, block: int) -> int:
        """Taps beside each other that are one run."""
        return conv.kernel[1] if conv.kernel[1] * block <= LONGEST_RUN else 1

    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """In runs, of halves that do not always fill a register."""
        block = self.input_block(conv, (), {})
        run = np.full(len(settings), float(block * self.taps_in_run(conv, block)))
        lanes, half = column(settings, "lanes"), target.lanes(FLOAT16)
        single = target.lanes(conv.computed_in)
        filled = lanes / (np.ceil(lanes / half) * half)
        counted = lanes / (np.ceil(lanes / single) * single)
        return rate_of_runs(target, run) * filled / counted

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """All: data that lies there in halves is multiplied as it is."""
        return single_ports(workload)

    def error_bound(self, workload: Workload) -> float:
        """See `error_of_runs`."""
        conv = convolution(workload)
        return error_of_runs(conv.summed, LONGEST_RUN if conv.kernel[1] > 1 else max(RUNS))

    def addition_deviations(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """See `AddsInHalves`."""
        conv, (data, weights) = convolution(workload), operands
        block = self.input_block(conv, (), {})
        return of_convolution(conv, data, weights, block, block * self.taps_in_run(conv, block))

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of halves."""
        return multiplied_work(workload, target, convolution(workload).weight, FLOAT16)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead."""
        return {convolution(workload).weight: FLOAT16}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, 1]; slots by input chunk, tap, lanes of it."""
        weight = convolution(workload).weight
        rounded = rounded_to(constants[weight], FLOAT16)
        packed = self.in_slots(workload, candidate, rounded, np.float16)
        return {**constants, weight: np.ascontiguousarray(packed)}


SPEC = Float16Convolution()
