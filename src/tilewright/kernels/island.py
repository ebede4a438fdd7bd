"""Islands: small ONNX models within a network that ONNX Runtime computes.

They have no kernel of ours: their shapes depend on the data, or nobody here knows their operators.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.generic import ISLAND, Opaque

CALLED = "tilewright.island"
"""The function that a compiled network calls for an island."""


class Island(Opaque):
    """Spec of islands; plain layouts, no knobs."""

    name = "onnxruntime"
    builder = "onnxruntime"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """A single island."""
        return len(workload.steps) == 1 and bool(workload.steps[0].named.get(ISLAND))


def reason_of(workload: Workload) -> str:
    """Why a workload is an island; empty for all others."""
    return _island(workload)[1]


def nodes_of(workload: Workload) -> tuple[str, ...]:
    """The nodes of an island as the model calls them; empty for all other workloads."""
    return tuple(_island(workload)[0])


def _island(workload: Workload) -> tuple[Sequence[str], str]:
    text = workload.steps[-1].named.get(ISLAND)
    return json.loads(str(text)) if text else ((), "")


SPEC = Island()
