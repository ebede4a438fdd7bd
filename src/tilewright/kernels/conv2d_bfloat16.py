"""Convolution of singles with products of bfloat16 and sums in single precision.

Data and weights are rounded to bfloat16, weights ahead and data into a copy, and multiplied two by
two by `vdpbf16ps`, which adds both products to a single in each lane. That is twice the rate of
single precision, at an error of two roundings of eight bits in each product.
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
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import Floats
from tilewright.kernels.conv2d_dots import FEW, DotConvolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.halves import PAIR, half_lanes, multiplied_work, rounding_error
from tilewright.kernels.ports import single_ports, usual_lanes


class Bfloat16Convolution(DotConvolution):
    """Spec of the convolution by dot products of bfloat16."""

    name = "conv2d_bfloat16"
    multiplies_in = HALF

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with dot products, and more than one
        channel per group."""
        conv = convolution(workload)
        pairs = conv.group_out > 1 and (conv.groups == 1 or conv.group_in % FEW == 0)
        return bool(half_lanes(target)) and pairs and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, and loop order of the parallel axes."""
        conv = convolution(workload)
        lanes = usual_lanes(conv.group_out, forms[-1], target.lanes(conv.computed_in))
        fitting = (lanes,) if lanes in half_lanes(target) else ()
        return Knob(name="lanes", values=fitting), *self.tile_knobs(conv, conv.group_out // lanes)

    def terms(self, settings: Settings) -> int:
        """Input channels that are multiplied together."""
        return PAIR

    def copied(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Singles are rounded, too."""
        single = conv.data >= len(forms) - 1 or forms[conv.data].dtype != HALF
        return single or super().copied(conv, forms, settings)

    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products."""
        return np.full(len(settings), float(target.operations_per_cycle(HALF, tiles=False)))

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """All: data that lies there in halves is multiplied as it is."""
        return single_ports(workload)

    def error_bound(self, workload: Workload) -> float:
        """See `rounding_error`."""
        return rounding_error(convolution(workload).summed)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target, convolution(workload).weight)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits: TVM makes singles of bfloat16."""
        return {convolution(workload).weight: "uint16"}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, 2]; slots by input chunk, tap, lanes of it."""
        weight = convolution(workload).weight
        packed = self.in_slots(workload, candidate, constants[weight], element_type(HALF).numpy)
        return {**constants, weight: np.ascontiguousarray(packed).view(np.uint16)}


SPEC = Bfloat16Convolution()
