"""Targets that are described and no device of which is at hand: their kernels can be looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.measure.accesses.refusals import refused_by_tvm
from tilewright.measure.base import Measurer
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.networks import NetworkRunner

DESCRIBED = "described"
_EXAMPLE = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}


class _Described:
    name = DESCRIBED
    here = False
    runs_networks = False
    note = ""

    def placement(self, target: str, tracker: str | None, threads: int | None) -> None:
        """Nothing: what describes a target may mean this machine, whose access reads it."""

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        example = json.dumps(_EXAMPLE)
        return (
            TargetRow(
                name=example,
                usable=False,
                detail="any TVM llvm target as JSON; foreign ones for `show` only",
                target=example,
            ),
            TargetRow(
                name="cuda -model=H100",
                usable=False,
                detail="a GPU, for `explain op:...` only: its kernels before they run",
                target="",
            ),
        )

    def refusal(self, placement: Placement) -> str | None:
        """What TVM says against the target."""
        return refused_by_tvm(placement)

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> Measurer:
        raise cannot_run(placement)

    def networks(self, placement: Placement) -> NetworkRunner:
        raise cannot_run(placement)


def cannot_run(placement: Placement) -> TargetError:
    """The error for a target that nothing here runs."""
    return TargetError(
        f"the target {placement.tvm_target} cannot run on this machine",
        hint="Kernels for it can be looked at: `tilewright show op:... --asm --target ...`.",
    )


ACCESS = _Described()
