"""A made-up CPU that builds nothing: times are the implementations' estimates, results numpy's.

It lets everything above compilers be tried in seconds, on any machine, with the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tilewright.compiler.builders.base import Builder
from tilewright.compiler.builders.registry import builder_named
from tilewright.core import results, targets
from tilewright.core.records import Candidate, Device, Placement
from tilewright.hardware.device import class_key
from tilewright.hardware.meters import KernelEnergy
from tilewright.hardware.target import described_target
from tilewright.measure import base, simulation
from tilewright.measure.networks import NetworkRunner

_NAME = "simulated"
_TARGET = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}
_TEXT = json.dumps(_TARGET)
_CORES = 4
_PEAKS = {"flop_per_s": 1e11, "bytes_per_s": 1e10, "cache_bytes_per_s": 1e11}


def _builds_nothing(_candidate: Candidate) -> Builder:
    """In place of what an implementation names."""
    return builder_named("null")


class _Simulated:
    name = _NAME
    here = False
    runs_networks = True
    note = (
        "This is a made-up device: nothing is built and times are estimates, "
        "but other engines really run on this machine."
    )

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """Four cores with AVX2, of which `threads` are used."""
        if target.strip() != _NAME:
            return None
        count = min(threads or 1, _CORES)
        cpu = replace(described_target(_TARGET, cores=_CORES), model=_NAME, tvm=_TEXT)
        device = Device(class_key=class_key(cpu), instance=_NAME, target=cpu, access=_NAME)
        return Placement(
            device=device,
            resources=targets.threads_alone(count),
            binding=targets.Binding(cpus=tuple(range(count))),
        )

    def rows(self, threads: int | None) -> Sequence[results.TargetRow]:
        return (
            results.TargetRow(
                name=_NAME,
                usable=True,
                detail="a made-up CPU: nothing is built, times are estimates",
                target=_TEXT,
                threads=threads or 1,
            ),
        )

    def refusal(self, placement: Placement) -> str | None:
        """None: no compiler sees it."""
        return None

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> base.Measurer:
        return simulation.SimulatedMeasurer(placement, _builds_nothing, _PEAKS)

    def networks(self, placement: Placement) -> NetworkRunner:
        return simulation.SimulatedNetworks(placement, _builds_nothing)


SIMULATED = _Simulated()
