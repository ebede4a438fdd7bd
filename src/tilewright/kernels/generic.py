"""What is never fast: the general fallback, which computes any workload of the vocabulary in any
type, and operators outside the vocabulary, which TVM's importer builds."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.streaming import Unpacked

_CYCLES_OF_AN_OPERATION = 13.5
CYCLES_OF_A_BYTE = 1.35
"""Of code that nobody vectorised."""


class Generic(Unpacked):
    """Spec of the fallback."""

    name = "generic"
    anchors = frozenset({"*"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Everything the vocabulary can say."""
        return all(step.operator != "opaque" for step in workload.steps)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """None: there is one way."""
        return ()

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """A pessimistic one, so that whatever else applies is preferred."""
        return Demand(
            pieces=workload.result.elements,
            even=True,
            cycles=workload.flop * _CYCLES_OF_AN_OPERATION + workload.bytes * CYCLES_OF_A_BYTE,
            launches=5.0,
        )


class Opaque(Unpacked):
    """Spec of operators that TVM's importer builds; plain layouts, no knobs."""

    name = "opaque"
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


GENERIC, OPAQUE = SPECS = (Generic(), Opaque())
