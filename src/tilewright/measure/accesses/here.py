"""This machine, whose kernels and networks run in child processes of this one; and targets that are
only described: no device of them is at hand, but their kernels can be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilewright.core.errors import TargetError, UsageError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.device import local_placement, parse_target
from tilewright.hardware.meters import KernelEnergy
from tilewright.measure import base, kernels
from tilewright.measure.accesses import cuda
from tilewright.measure.accesses.base import BuiltByTvm
from tilewright.measure.networks import NetworkRunner, NetworkWorker

_EXAMPLE = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}'


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
    ) -> base.Measurer:
        return kernels.KernelMeasurer(placement, seed=seed, energy=energy)

    def networks(self, placement: Placement) -> NetworkRunner:
        return NetworkWorker(placement)


class _Described(BuiltByTvm):
    name = "described"
    runs_networks = False

    def refusal(self, placement: Placement) -> str | None:
        """What TVM says; of a GPU nothing, as its target was made of what is known of GPUs."""
        return None if placement.target.kind == "cuda" else super().refusal(placement)

    def placement(self, target: str, tracker: str | None, threads: int | None) -> None:
        """Nothing: what describes a target may mean this machine, whose access reads it."""

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        return (
            TargetRow(
                name=_EXAMPLE,
                usable=False,
                detail="any TVM llvm target as JSON; foreign ones for `show` only",
                target=_EXAMPLE,
            ),
            TargetRow(
                name="cuda -model=H100",
                usable=False,
                detail="any GPU that is known, described: its kernels before they run",
                target="",
            ),
        )

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> NoReturn:
        raise cannot_run(placement)

    def networks(self, placement: Placement) -> NoReturn:
        raise cannot_run(placement)


def cannot_run(placement: Placement) -> TargetError:
    """The error for a target that nothing here runs."""
    if placement.target.kind == "cuda":
        return cuda.cannot_run(placement.target)
    return TargetError(
        f"the target {placement.tvm_target} cannot run on this machine",
        hint="Kernels for it can be looked at: `tilewright show op:... --asm --target ...`.",
    )


HERE, DESCRIBED = _Here(), _Described()
