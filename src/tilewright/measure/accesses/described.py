"""Targets that are described and no device of which is at hand: their kernels can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.meters import KernelEnergy
from tilewright.measure.accesses.base import BuiltByTvm

DESCRIBED = "described"
_EXAMPLE = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}'


class _Described(BuiltByTvm):
    name = DESCRIBED
    runs_networks = False

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
                detail="a GPU, for `explain op:...` only: its kernels before they run",
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
    return TargetError(
        f"the target {placement.tvm_target} cannot run on this machine",
        hint="Kernels for it can be looked at: `tilewright show op:... --asm --target ...`.",
    )


ACCESS = _Described()
