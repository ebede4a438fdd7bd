"""The general fallback: computes any workload of the vocabulary, in any type; never fast."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.streaming import Unpacked

NAME = "generic"
_CYCLES_OF_AN_OPERATION = 13.5
CYCLES_OF_A_BYTE = 1.35
"""Of code that nobody vectorised."""


class Generic(Unpacked):
    """Spec of the fallback."""

    name = NAME
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


SPEC = Generic()
