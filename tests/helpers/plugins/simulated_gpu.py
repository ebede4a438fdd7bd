"""A simulated H100: networks are compiled to CUDA C++ and executed on the CPU, times of kernels are
their estimates."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.builders.registry import builder_named
from tilewright.core import results
from tilewright.core.records import Device, Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.hardware.device import class_key
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.meters import KernelEnergy
from tilewright.hardware.target import parse_gpu
from tilewright.measure import simulation
from tilewright.measure.cuda_networks import CudaNetworks

TARGET = "simulated-gpu"
POINTS = {"tilewright.accesses": {TARGET: "helpers.plugins.simulated_gpu:ACCESS"}}
_PEAKS = {"flop_per_s": 6e13, "bytes_per_s": 3e12, "cache_bytes_per_s": 5e12}


def h100() -> Placement:
    """All of a H100."""
    target = gpu_target(parse_gpu("cuda -model=H100"))
    device = Device(class_key=class_key(target), instance=TARGET, target=target, access=TARGET)
    resources = threads_alone(target.cores)
    return Placement(device=device, resources=resources, binding=Binding(cpus=(0,)))


class SimulatedGpu:
    name = TARGET
    here = True
    runs_networks = True
    note = "Kernels are executed on the CPU."

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        return h100() if target == TARGET else None

    def rows(self, threads: int | None) -> Sequence[results.TargetRow]:
        return (results.TargetRow(name=TARGET, usable=True, detail="made up", target=TARGET),)

    def refusal(self, placement: Placement) -> str | None:
        return None

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> simulation.SimulatedMeasurer:
        return simulation.SimulatedMeasurer(
            placement, lambda _candidate: builder_named("null"), _PEAKS
        )

    def networks(self, placement: Placement) -> CudaNetworks:
        return CudaNetworks(placement, "helpers.processes.simulated_gpu_networks")


ACCESS = SimulatedGpu()
