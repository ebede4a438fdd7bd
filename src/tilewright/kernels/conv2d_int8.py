"""Convolution of 8-bit integers with sums of 32 bits, on channel-blocked tensors.

The loops are those of `conv2d_direct`. With dot-product instructions (see `codes`) weights lie as
[out/bo, slot, bo, 4]: a slot for every four input channels of every tap. Without such instructions
bytes are widened and weights lie as [out/bo, tap and channel, bo, 1]. Both are exact.
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
    QUAD,
    WIDEN,
    code_error,
    offset,
    rate,
    terms,
    usual_dot,
    with_offsets,
)
from tilewright.kernels.columns import Floats, chosen
from tilewright.kernels.conv2d_dots import DotConvolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.ports import usual_lanes


class Int8Convolution(DotConvolution):
    """Spec of the integer convolution; any stride, padding, dilation and groups."""

    name = "conv2d_int8"
    element_types = CODES

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Bytes times constant signed bytes, and more than one channel per group."""
        conv = convolution(workload)
        signed = workload.types[conv.weight].dtype == "int8"
        return signed and conv.group_out > 1 and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, loop order of the parallel axes, and how bytes are multiplied."""
        conv = convolution(workload)
        lanes = usual_lanes(conv.group_out, forms[-1], target.lanes(conv.computed_in))
        quads = conv.groups == 1 or conv.group_in % QUAD == 0
        dot = usual_dot(target, lanes, workload.types[conv.data].dtype) if quads else WIDEN
        return (
            Knob(name="lanes", values=(lanes,)),
            Knob(name="dot", values=(dot,)),
            *self.tile_knobs(conv, conv.group_out // lanes),
        )

    def terms(self, settings: Settings) -> int:
        """Input channels that are multiplied together."""
        return terms(settings)

    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products, where there are any, and by widened products."""
        fast, slow = (rate(target, conv.computed_in, dots=dots) for dots in (True, False))
        return np.where(chosen(settings, "dot", WIDEN), slow, fast)

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (chunks, slots, *rest)),) = super().packed_shapes(workload, candidate).items()
        slots += bool(added(workload, dict(candidate.settings)))
        return {weight: (chunks, slots, *rest)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, 4 or 1]; slots by input chunk, tap, lanes of it."""
        conv, weights = convolution(workload), constants[convolution(workload).weight]
        packed = self.in_slots(workload, candidate, weights, np.int8)
        if extra := added(workload, dict(candidate.settings)):
            packed = with_offsets(packed, weights.sum(axis=(1, 2, 3), dtype=np.int32), extra)
        return {**constants, conv.weight: np.ascontiguousarray(packed)}


def added(workload: Workload, settings: Settings) -> int:
    """What is added to the data; where it is something, the weights carry what to add to the
    sums."""
    return offset(settings, workload.types[convolution(workload).data].dtype)


SPEC = Int8Convolution()
