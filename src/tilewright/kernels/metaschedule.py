"""Kernels that MetaSchedule found: the plain computation of a workload under a schedule trace.

The trace is the only setting, as JSON text, so a candidate is complete in itself. There is nothing
to enumerate: candidates come from the tuner of the same name or from a MetaSchedule database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.generic import CYCLES_OF_A_BYTE
from tilewright.kernels.streaming import Unpacked

NAME = "metaschedule"
TRACE = "trace"
_OPAQUE_ERROR = 1e-4
_CYCLES_OF_AN_OPERATION = 2.7


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A convolution's weights with a block of output channels innermost.

    `argument` is their index, `block` the lanes; the form is (out // block, in, kh, kw, block).
    """

    argument: int
    block: int
    shape: tuple[int, ...]


def packed_weight(workload: Workload, candidate: Candidate) -> PackedWeight | None:
    """The weights that a blocked result wants packed: constants that only the anchor reads."""
    index, block = workload.anchor_index, channel_block(candidate.forms[-1])
    if index is None or block == 0 or workload.steps[index].operator != "conv2d":
        return None
    weight = workload.steps[index].inputs[1]
    readers = sum(weight in step.inputs for step in workload.steps)
    if weight >= len(workload.arguments) or readers != 1:
        return None
    argument = workload.arguments[weight]
    channels, *rest = argument.type.shape
    if argument.role != "constant" or channels % block:
        return None
    return PackedWeight(argument=weight, block=block, shape=(channels // block, *rest, block))


class MetaSchedule(Unpacked):
    """Spec of traced kernels. It takes no part in ordinary spaces, so it applies to nothing."""

    name = NAME
    anchors = frozenset({"*"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Never by itself: without a trace there is no candidate."""
        return False

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """The trace, without values to choose from."""
        return (Knob(name=TRACE, values=()),)

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Imported operators only in plain layouts; the trace shows when it is applied."""
        imported = any(step.operator == "opaque" for step in workload.steps)
        return not imported or not any(channel_block(form) for form in forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """A modest one: nothing is known before a trace is applied."""
        return Demand(
            pieces=workload.result.elements,
            even=True,
            cycles=workload.flop * _CYCLES_OF_AN_OPERATION + workload.bytes * CYCLES_OF_A_BYTE,
            launches=0.0,
        )

    def error_bound(self, workload: Workload) -> float:
        """Summation in the type's own precision; loose for imported operators."""
        if any(step.operator == "opaque" for step in workload.steps):
            return _OPAQUE_ERROR
        return super().error_bound(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """A convolution's weights where its result is blocked."""
        packed = packed_weight(workload, candidate)
        return {} if packed is None else {packed.argument: packed.shape}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """Output channels split into blocks, the block moved inside."""
        packed = packed_weight(workload, candidate)
        if packed is None:
            return constants
        weight = constants[packed.argument]
        split = weight.reshape(packed.shape[0], packed.block, *weight.shape[1:])
        return {packed.argument: np.ascontiguousarray(np.moveaxis(split, 1, -1))}


SPEC = MetaSchedule()
