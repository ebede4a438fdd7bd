"""Transposed convolution of 8-bit integers with sums of 32 bits.

As `conv2d_transposed`, in the same phases. With dot-product instructions (see `codes`) a slot has
four input channels; data of the sign that the instruction does not take is flipped as it is copied,
its border too, and what that adds to the sums of a phase lies in one more slot behind its weights.
Without such instructions bytes are widened. Both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.codes import (
    CODES,
    WIDEN,
    code_error,
    dot_lanes,
    offset,
    rate,
    terms,
    usual_dot,
    with_offsets,
)
from tilewright.kernels.columns import Floats, chosen
from tilewright.kernels.conv2d_transposed import (
    SINGLES,
    GatheringTransposedConvolution,
    transposed_convolution,
)

_COPYING = 0.25
"""Cycles for each code that is copied into its block."""


class Int8TransposedConvolution(GatheringTransposedConvolution):
    """Spec of the integer transposed convolution; any stride, padding, dilation and groups."""

    name = "conv2d_transposed_int8"
    element_types = CODES
    converting = _COPYING

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Bytes times constant signed bytes."""
        signed = workload.types[transposed_convolution(workload).weight].dtype == "int8"
        return signed and super().applies(workload, target, resources)

    def lane_values(
        self, workload: Workload, target: Target, forms: tuple[Form, ...]
    ) -> tuple[int, ...]:
        """Those of the instruction, where there are any and several groups have whole chunks."""
        able = self.able_lanes(workload, target, forms, dot_lanes(target))
        ragged = transposed_convolution(workload).groups > 1 and len(able) != 1
        return super().lane_values(workload, target, forms) if ragged or not able else able

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """The register tile, and how bytes are multiplied."""
        data = workload.types[transposed_convolution(workload).data].dtype
        lanes, *tile = super().knobs(workload, target, resources, forms)
        dot = usual_dot(target, int(lanes.values[0]), data)
        return lanes, Knob(name="dot", values=(dot,)), *tile

    def terms(self, settings: Settings) -> int:
        """Input channels that are multiplied together; zeros fill the last ones up."""
        return terms(settings)

    def speedup(self, workload: Workload, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products, where there are any, and by widened products."""
        single = target.operations_per_cycle(SINGLES, tiles=False)
        fast, slow = (rate(target, workload.computed_in, dots=dots) for dots in (True, False))
        return np.where(chosen(settings, "dot", WIDEN), slow, fast) / single

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (phases, slots, *rest)),) = super().packed_shapes(workload, candidate).items()
        slots += bool(added(workload, dict(candidate.settings)))
        return {weight: (phases, slots, *rest)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """As in single precision, and behind the slots of a phase what corrects its sums."""
        weight = transposed_convolution(workload).weight
        packed = self.in_phases(workload, candidate, constants[weight], np.int8)
        if extra := added(workload, dict(candidate.settings)):
            packed = with_offsets(packed, packed.sum(axis=(1, 3), dtype=np.int32), extra)
        return {**constants, weight: np.ascontiguousarray(packed)}


def added(workload: Workload, settings: Settings) -> int:
    """What is added to the data; where it is something, the weights carry what to add to the
    sums."""
    return offset(settings, workload.types[transposed_convolution(workload).data].dtype)


SPEC = Int8TransposedConvolution()
