"""Operators outside the vocabulary, through TVM's importer; plain layouts, no knobs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.generic import CYCLES_OF_A_BYTE
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.streaming import Unpacked

NAME = "opaque"


class Opaque(Unpacked):
    """Spec of imported operators."""

    name = NAME
    anchors = frozenset({"opaque"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """A single opaque step."""
        return len(workload.steps) == 1 and workload.steps[0].operator == "opaque"

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """None: nothing is known about the operator."""
        return ()

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Plain layouts only."""
        return not any(channel_block(form) for form in forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """One thread that moves all bytes, slowly."""
        return Demand(pieces=1, cycles=workload.bytes * CYCLES_OF_A_BYTE, launches=5.0)

    def error_bound(self, workload: Workload) -> float:
        """Nothing is known about the operator, so as loose as a whole network."""
        return 1e-4


SPEC = Opaque()
