"""Transposed convolution of singles with products of bfloat16 and sums in single precision.

As `conv2d_transposed`, in the same phases. The copy of the input with its border is rounded, unless
the input lies there in halves, and weights are rounded ahead: [out/bo, s, s, in/bi, taps, taps,
bi/2, bo, 2]. A slot is a pair of input channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Knob, Workspaces
from tilewright.kernels.conv2d_transposed import (
    GatheringTransposedConvolution,
    TransposedConvolution,
    transposed_convolution,
)
from tilewright.kernels.halves import (
    PAIR,
    ROUNDING_CYCLES,
    half_lanes,
    multiplied_work,
    rounding_error,
)
from tilewright.kernels.ports import single_ports


class Bfloat16TransposedConvolution(GatheringTransposedConvolution):
    """Spec of the transposed convolution by dot products of bfloat16."""

    name = "conv2d_transposed_bfloat16"
    multiplies_in = HALF

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with dot products, an even number of
        input channels and more than one output channel in each group. Not offered for all the same
        where the lanes that suit the output channels are not 4, 8 or 16, as for 3, 10 or 21."""
        conv = transposed_convolution(workload)
        pairs = conv.group_in % PAIR == 0 and conv.group_out > 1
        return bool(half_lanes(target)) and pairs and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """As in single precision, for lanes that the instruction has."""
        lanes, *others = super().knobs(workload, target, resources, forms)
        fitting = tuple(value for value in lanes.values if value in half_lanes(target))
        return replace(lanes, values=fitting), *others

    def input_block(self, conv: TransposedConvolution, forms: tuple[Form, ...]) -> int:
        """As in single precision, where that is a number of pairs."""
        block = super().input_block(conv, forms)
        return PAIR if block % PAIR else block

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of dot products, and the rounding of the input."""
        found = super().demand(workload, target, resources, forms, settings)
        single = target.operations_per_cycle(workload.computed_in, tiles=False)
        faster = target.operations_per_cycle(HALF, tiles=False) / single
        rounded = ROUNDING_CYCLES * workload.types[transposed_convolution(workload).data].elements
        return replace(found, cycles=found.cycles / faster + rounded)

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """The rounded input with zeros around it."""
        (singles,) = super().workspaces(workload, candidate, target, resources).shared
        return Workspaces(shared=(singles // 2,))

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """All: data that lies there in halves is multiplied as it is."""
        return single_ports(workload)

    def error_bound(self, workload: Workload) -> float:
        """See `rounding_error`."""
        return rounding_error(transposed_convolution(workload).summed)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target, transposed_convolution(workload).weight)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits."""
        return {transposed_convolution(workload).weight: "uint16"}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (*phases, bi, bo)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (*phases, bi // PAIR, bo, PAIR)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """As in single precision, then [.., bi, bo] → [.., bi/2, bo, 2], rounded."""
        weight = transposed_convolution(workload).weight
        shape = self.packed_shapes(workload, candidate)[weight]
        singles = self.in_phases(workload, candidate, constants[weight])
        *phases, slots, lanes, pair = shape
        paired = singles.reshape(*phases, slots, pair, lanes).swapaxes(-1, -2)
        rounded = np.ascontiguousarray(paired.astype(element_type(HALF).numpy))
        return {**constants, weight: rounded.view(np.uint16)}


SPEC = Bfloat16TransposedConvolution()
