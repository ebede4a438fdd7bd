"""Compiling whole networks for a GPU, running and timing them there, in a process of their own.

What a kernel spoils on a GPU is spoilt for its process: that process ends, and the next request
starts another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.core import records
from tilewright.core.errors import TargetError
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.networks import (
    COMPILE_TIMEOUT_S,
    RUN_TIMEOUT_S,
    Array,
    NetworkWorker,
    packed_weights,
)
from tilewright.measure.peers.base import Peer, PrecisionRequest, Tensors, make_peer

WORKER = "tilewright.measure.cuda_network_worker"
NO_PEERS = "it runs on this machine's CPU here, and networks on the GPU"


class CudaNetworks(NetworkWorker):
    """A child process that holds networks on a GPU by name. Use as a context manager.

    `worker` is the module that it runs, the usual one where none is named.
    """

    def __init__(self, placement: records.Placement, worker: str = "") -> None:
        super().__init__(placement, worker or WORKER, here=False)
        self._preparing = ("prepare", placement.target)

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> CompiledNetwork:
        """Write network and weights into `folder`.

        Raises TargetError where something else than a CUDA kernel computes a call, and where
        nothing here compiles CUDA C++.
        """
        with packed_weights(plan, constants, folder) as packed:
            message = ("compile", plan, self.placement, packed, folder)
            return self._ask(message, COMPILE_TIMEOUT_S - RUN_TIMEOUT_S)

    def peer(self, name: str) -> Peer:
        """None of the peers runs on a GPU yet."""
        return _NotOnTheGpu(name)


class _NotOnTheGpu:
    """A peer that would run elsewhere than networks do: nobody compares their times."""

    def __init__(self, name: str) -> None:
        known = make_peer(name)
        self.name, self.package, self.precision = known.name, known.package, known.precision

    def available(self) -> str | None:
        return NO_PEERS

    def start(
        self,
        model_path: Path,
        threads: int,
        cpus: Sequence[int],
        precision: PrecisionRequest = "fp32",
    ) -> None:
        raise TargetError(f"{self.name} cannot be used: {NO_PEERS}")

    def run(self, inputs: Mapping[str, Array]) -> Tensors:
        raise TargetError(f"{self.name} has not been started")

    def time(self, inputs: Mapping[str, Array], repeats: int, warmup: int) -> list[float]:
        raise TargetError(f"{self.name} has not been started")

    def stop(self) -> None:
        """Nothing runs."""
