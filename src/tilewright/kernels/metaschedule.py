"""Kernels that MetaSchedule found: the plain computation of a workload under a schedule trace.

The trace is the only setting, as JSON text, so a candidate is complete in itself. There is nothing
to enumerate: candidates come from the tuner of the same name or from a MetaSchedule database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        """A convolution's weights where its result is blocked and only it reads them, as
        [O/b, I, kh, kw, b]."""
        step, block = workload.anchor, channel_block(candidate.forms[-1])
        if step is None or block == 0 or step.operator != "conv2d":
            return {}
        weight = step.inputs[1]
        readers = sum(weight in step.inputs for step in workload.steps)
        channels, *rest = workload.types[weight].shape
        if not workload.is_constant(weight) or readers != 1 or channels % block:
            return {}
        return {weight: (channels // block, *rest, block)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """Output channels split into blocks, the block moved inside."""
        packed = dict(constants)
        for argument, (chunks, *rest, block) in self.packed_shapes(workload, candidate).items():
            split = constants[argument].reshape(chunks, block, *rest)
            packed[argument] = np.ascontiguousarray(np.moveaxis(split, 1, -1))
        return packed


SPEC = MetaSchedule()
