"""The general fallback: computes any workload of the vocabulary, in any type; never fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob
from tilewright.kernels.streaming import Unpacked

NAME = "generic"
_FLOP_PER_S = 2e8
_BYTES_PER_S = 2e9
_LAUNCH_S = 1e-5


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

    def facts(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Mapping[str, FactColumn]:
        """A pessimistic time, so that whatever else applies is preferred."""
        seconds = workload.flop / _FLOP_PER_S + workload.bytes / _BYTES_PER_S
        ones = np.ones(len(settings))
        return {
            "estimate_s": ones * (seconds / resources.threads + _LAUNCH_S),
            "parallel_extent": ones * workload.result.elements,
        }


SPEC = Generic()
