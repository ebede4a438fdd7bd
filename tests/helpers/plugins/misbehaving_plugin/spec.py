"""An implementation of relu on eight elements whose candidates go wrong in every way."""

from __future__ import annotations

import numpy as np

from tilewright.core.forms import PLAIN
from tilewright.cost.demand import Demand
from tilewright.kernels.base import Knob

WAYS = ("right", "refuse", "abort", "hang", "memory", "wrong", "segfault", "crowded")


class Misbehaving:
    name = "misbehaving"
    anchors = frozenset({"elementwise"})

    def applies(self, workload, target, resources):
        return [step.operator for step in workload.steps] == ["relu"] and (
            workload.result.shape == (8,)
        )

    def port_forms(self, workload, target, resources):
        return ((PLAIN,) * (len(workload.arguments) + 1),)

    def knobs(self, workload, target, resources, forms):
        return (Knob(name="way", values=WAYS),)

    def valid(self, workload, target, resources, forms, settings):
        return True

    def demand(self, workload, target, resources, forms, settings):
        cycles = np.array([1.0 + 1e9 * WAYS.index(s["way"]) for s in settings])
        return Demand(pieces=1, cycles=cycles)

    def error_bound(self, workload):
        return 1e-6

    def packed_shapes(self, workload, candidate):
        return {}

    def pack(self, workload, candidate, constants):
        return dict(constants)


SPEC = Misbehaving()
