"""This machine: kernels and networks run in child processes of this one."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import UsageError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.device import local_placement, parse_target
from tilewright.hardware.meters import KernelEnergy
from tilewright.measure.accesses.base import BuiltByTvm
from tilewright.measure.base import Measurer
from tilewright.measure.kernels import KernelMeasurer
from tilewright.measure.networks import NetworkRunner, NetworkWorker


class _Here(BuiltByTvm):
    name = "here"
    here = True

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement:
        """This machine, or a target of TVM that is only described."""
        if tracker is not None:
            raise UsageError(
                f"A tracker is for rpc: targets; the target {target!r} is none.",
                hint="Write --target rpc:KEY --tracker HOST:PORT.",
            )
        return parse_target(target, threads)

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        placement = local_placement(threads)
        return (
            TargetRow(
                name="llvm",
                usable=True,
                detail=f"this CPU: {placement.target.model}",
                target=placement.tvm_target,
                threads=placement.resources.threads,
                vector_bytes=placement.target.vector_bytes,
            ),
        )

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> Measurer:
        return KernelMeasurer(placement, seed=seed, energy=energy)

    def networks(self, placement: Placement) -> NetworkRunner:
        return NetworkWorker(placement)


ACCESS = _Here()
