"""What runs compiled networks in this process: TVM's machine on the CPU, or a GPU's driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.core.records import Placement
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.hardware.gpus import gpu_of, gpu_target
from tilewright.kernels.cuda.base import CUDA

if TYPE_CHECKING:
    from tilewright.compiler.cuda.execute import WeightsOnGpu
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
    """What makes callers of networks, with how many threads each, and what opens networks that lie
    in a folder."""

    caller: Callable[[], Caller]
    threads: int
    open: Opening


def engine_of(machine: Machine, threads: int | None, *, shared: bool = False) -> Engine:
    """The engine of networks for a machine, as a manifest has it; `threads` are for those on the
    CPU. With `shared` all that it opens hold the weights that they share once. Raises TargetError
    for more threads than there are CPUs."""
    if machine.kind == CUDA:
        opening = _OnGpu(machine.architecture, shared=shared)
        return Engine(caller=_InTurn, threads=machine.threads, open=opening)
    return on_cpu(local_placement(threads), shared=shared)


def on_cpu(placement: Placement, *, shared: bool = False) -> Engine:
    """TVM's machine, with the threads and CPUs of a placement."""
    from tilewright.compiler.execute import Caller as OnThreads
    from tilewright.compiler.execute import LoadedNetwork as OnCpu
    from tilewright.compiler.execute import WeightsPool

    pool = WeightsPool() if shared else None
    threads, cpus = placement.resources.threads, placement.binding.cpus
    return Engine(
        caller=lambda: OnThreads(threads, cpus),
        threads=threads,
        open=lambda folder, order: OnCpu.open(folder, order, pool),
    )


class _OnGpu:
    """Opens networks on the first GPU here of an architecture. Raises TargetError where there is
    none."""

    def __init__(self, architecture: str, *, shared: bool) -> None:
        self._target = gpu_target(gpu_of({"arch": architecture}))
        self._shared = shared
        self._pool: WeightsOnGpu | None = None

    def __call__(self, folder: Path, order: Sequence[str]) -> LoadedNetwork:
        from tilewright.compiler.cuda import nvidia
        from tilewright.compiler.cuda.execute import LoadedCudaNetwork, WeightsOnGpu

        driver = nvidia.open_driver(self._target)
        if self._shared and self._pool is None:
            self._pool = WeightsOnGpu(driver)
        return LoadedCudaNetwork.open(folder, order, driver, self._pool)


class _InTurn:
    """Calls functions one at a time, in the thread that asks."""

    def __init__(self) -> None:
        self._turn = Lock()

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        with self._turn:
            return function()
