"""What ONNX Runtime computes within a network: islands, and tasks that people allow it.

Islands have no kernel of ours: their shapes depend on the data, or nobody here knows their
operators. All other tasks have, and ONNX Runtime gets one where it was measured to be faster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.generic import ISLAND, Opaque
from tilewright.kernels.onnx_nodes import Untranslatable
from tilewright.kernels.onnx_rules import onnx_task
from tilewright.kernels.streaming import Streaming

CALLED = "tilewright.island"
"""The function that a compiled network calls for what ONNX Runtime computes."""
NAME = "onnxruntime"
_MOST_BYTES = 1 << 30
"""Of weights, which are for a moment in one message of at most 2 GiB."""


class OnnxRuntime(Opaque):
    """Spec of ONNX Runtime; no knobs."""

    name = NAME
    builder = NAME

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """A single island."""
        return bool(reason_of(workload))

    def takes(self, workload: Workload, forms: tuple[Form, ...]) -> bool:
        """What can be said in ONNX nodes."""
        try:
            onnx_task(workload, forms)
        except Untranslatable:
            return False
        return workload.constant_bytes <= _MOST_BYTES

    def missing(self) -> str:
        """See `kernels.base.Library`."""
        return "" if find_spec(NAME) else NAME

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Islands in plain layouts; other tasks in those that change into plain ones."""
        if reason_of(workload):
            return super().valid(workload, target, resources, forms, settings)
        return self.takes(workload, forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Of a task, what any good kernel needs: tuners begin there and go by what is measured."""
        if reason_of(workload):
            return super().demand(workload, target, resources, forms, settings)
        return Demand(
            pieces=workload.result.elements,
            even=True,
            cycles=workload.flop / target.lanes(workload.computed_in),
            traffic={"memory": workload.bytes},
            launches=8.0,
        )

    def error_bound(self, workload: Workload) -> float:
        """Of a task, what sums and functions in its type may be off by."""
        if reason_of(workload):
            return super().error_bound(workload)
        return Streaming.error_bound(Streaming(), workload)


def reason_of(workload: Workload) -> str:
    """Why a workload is an island; empty for all others."""
    return _island(workload)[1]


def nodes_of(workload: Workload) -> tuple[str, ...]:
    """The nodes of an island as the model calls them; empty for all other workloads."""
    return tuple(_island(workload)[0])


def _island(workload: Workload) -> tuple[Sequence[str], str]:
    text = workload.steps[-1].named.get(ISLAND)
    return json.loads(str(text)) if text else ((), "")


SPEC = OnnxRuntime()
