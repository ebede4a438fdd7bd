"""Kernels of no machine: numpy computes them, and their times are the implementations' estimates.

Everything above compilers can be tried with them, in milliseconds and on any machine.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.builders.base import SimulatedBuilder, SimulatedKernel
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.evaluate import run_workload
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation


class _Null(SimulatedBuilder):
    name = "null"

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> SimulatedKernel:
        """No kernel: what numpy makes of the workload."""
        return SimulatedKernel(
            self.identify(workload, candidate, target, resources),
            lambda arrays: np.asarray(run_workload(workload, arrays)),
            estimate_s(workload, candidate, target, resources),
        )


def estimate_s(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> float:
    """What a candidate's implementation says of it, in seconds."""
    spec = implementation(candidate.implementation)
    settings = dict(candidate.settings)
    facts = spec.facts(workload, target, resources, candidate.forms, [settings])
    return float(np.asarray(facts["estimate_s"], dtype=np.float64).reshape(-1)[0])


BUILDER = _Null()
