"""Compiling whole networks for a GPU, running and timing them there, in a process of their own.

What a kernel spoils on a GPU is spoilt for its process: that process ends, and the next request
starts another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from tilewright.compiler.cuda import nvidia
from tilewright.core import records
from tilewright.core.errors import TargetError
from tilewright.core.targets import Target
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.networks import (
    COMPILE_TIMEOUT_S,
    RUN_TIMEOUT_S,
    Array,
    NetworkWorker,
    packed_weights,
)
from tilewright.measure.peers.base import (
    Peer,
    PrecisionRequest,
    ProcessPeer,
    Tensors,
    make_peer,
)

WORKER = "tilewright.measure.cuda_network_worker"
NOT_ON_GPUS = "it knows nothing of GPUs, and networks run on one"
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""JAX would take three quarters of the GPU's memory, which others need beside it."""


class CudaNetworks(NetworkWorker):
    """A child process that holds networks on a GPU by name. Use as a context manager.

    `worker` is the module that it runs, the usual one where none is named.
    """

    def __init__(self, placement: records.Placement, worker: str = "") -> None:
        super().__init__(placement, worker or WORKER, here=False)
        self.environment |= nvidia.environment_of(placement)
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
        """A peer that computes on the same GPU, not started."""
        peer = make_peer(name)
        if not isinstance(peer, ProcessPeer):
            return _NotOnTheGpu(peer, NOT_ON_GPUS)
        try:
            device = self.placement.device
            peer.place(device.target.kind, environment_of(device.target, device.instance))
        except TargetError as error:
            return _NotOnTheGpu(peer, f"networks run on a GPU, and {error.message}")
        return peer


def environment_of(target: Target, instance: str = "", library: Any = None) -> dict[str, str]:
    """In which a process sees one GPU, that of a target, the `instance` of several, and takes no
    more of its memory than it needs. Raises TargetError where there is none. `library` is as for
    `nvidia.find_cards`."""
    cards = nvidia.find_cards(library)
    card = cards[nvidia.number_of(cards, target, instance)]
    several = {nvidia.VISIBLE: f"GPU-{UUID(card.identity)}"} if len(cards) > 1 else {}
    return {**_ENVIRONMENT, **several}


class _NotOnTheGpu:
    """A peer that would run elsewhere than networks do: nobody compares their times."""

    def __init__(self, known: Peer, reason: str) -> None:
        self.name, self.package, self.precision = known.name, known.package, known.precision
        self._reason = reason

    def available(self) -> str | None:
        return self._reason

    def start(
        self,
        model_path: Path,
        threads: int,
        cpus: Sequence[int],
        precision: PrecisionRequest = "fp32",
    ) -> None:
        raise TargetError(f"{self.name} cannot be used: {self._reason}")

    def run(self, inputs: Mapping[str, Array]) -> Tensors:
        raise TargetError(f"{self.name} has not been started")

    def time(self, inputs: Mapping[str, Array], repeats: int, warmup: int) -> list[float]:
        raise TargetError(f"{self.name} has not been started")

    def stop(self) -> None:
        """Nothing runs."""
