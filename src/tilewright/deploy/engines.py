"""What runs compiled networks in this process: TVM's machine on the CPU, or a GPU's driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.core.records import Placement
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.hardware.gpus import gpu_of, gpu_target
from tilewright.kernels.cuda.base import CUDA

if TYPE_CHECKING:
    from tilewright.compiler.execute import WeightsPool
    from tilewright.deploy.manifest import Machine

_Answer = TypeVar("_Answer")


class LoadedNetwork(Protocol):
    """A network in memory: inputs in the model's order in, outputs in order out."""

    @property
    def input_count(self) -> int:
        """How many arrays a run takes."""
        ...

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once."""
        ...


class Caller(Protocol):
    """Calls functions where networks can run, one at a time."""

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        """What the function answers or raises."""
        ...


Opening = Callable[[Path, Sequence[str]], LoadedNetwork]
"""(folder, names of the constants in order) → the network in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What calls networks, with how many threads, and what opens those that lie in a folder."""

    call: Caller
    threads: int
    open: Opening


def engine_of(machine: Machine, threads: int | None, pool: WeightsPool | None = None) -> Engine:
    """The engine of networks for a machine, as a manifest has it; `threads` and a `pool` of weights
    are for those on the CPU. Raises TargetError for more threads than there are CPUs."""
    if machine.kind == CUDA:
        return Engine(
            call=_InTurn(), threads=machine.threads, open=partial(_on_gpu, machine.architecture)
        )
    return on_cpu(local_placement(threads), pool)


def on_cpu(placement: Placement, pool: WeightsPool | None = None) -> Engine:
    """TVM's machine, with the threads and CPUs of a placement."""
    from tilewright.compiler.execute import Caller as OnThreads
    from tilewright.compiler.execute import LoadedNetwork as OnCpu

    threads, cpus = placement.resources.threads, placement.binding.cpus
    return Engine(
        call=OnThreads(threads, cpus),
        threads=threads,
        open=lambda folder, order: OnCpu.open(folder, order, pool),
    )


def _on_gpu(architecture: str, folder: Path, order: Sequence[str]) -> LoadedNetwork:
    """A network on the first GPU here of an architecture. Raises TargetError where there is
    none."""
    from tilewright.compiler.cuda import nvidia
    from tilewright.compiler.cuda.execute import LoadedCudaNetwork

    driver = nvidia.open_driver(gpu_target(gpu_of({"arch": architecture})))
    return LoadedCudaNetwork.open(folder, order, driver)


class _InTurn:
    """Calls functions one at a time, in the thread that asks."""

    def __init__(self) -> None:
        self._turn = Lock()

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        with self._turn:
            return function()
