"""What a way to reach devices must offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright.core import processes, results
from tilewright.core.records import Placement
from tilewright.hardware.meters import KernelEnergy
from tilewright.measure import base, kernels
from tilewright.measure.networks import NetworkRunner

_TIMEOUT_S = 60.0


class Access(Protocol):
    """A way to reach devices. Each device names its access.

    `here` says that kernels run on this machine; only then can its meters be read, the state of its
    caches be set, and other kernels be run beside a kernel. `runs_networks` says that whole
    networks run there, too.
    """

    name: str
    """What `Device.access` holds."""
    here: bool
    runs_networks: bool
    note: str
    """A sentence that is shown with every answer from there; may be empty."""

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """The placement that `--target`, `--tracker` and `--threads` mean, None where the target is
        not for this access.

        Raises UsageError or TargetError for one that is and cannot be had.
        """
        ...

    def rows(self, threads: int | None) -> Sequence[results.TargetRow]:
        """What `targets` lists of it."""
        ...

    def refusal(self, placement: Placement) -> str | None:
        """Why the target cannot be compiled for, None where it can."""
        ...

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> base.Measurer:
        """A measurer of kernels there, of their energy too where that is given; only an access that
        is `here` is given any. Raises TargetError where nothing can be measured."""
        ...

    def networks(self, placement: Placement) -> NetworkRunner:
        """What compiles, runs and times whole networks there. Raises TargetError where they do not
        run."""
        ...


class BuiltByTvm:
    """What accesses share whose kernels TVM builds: it has the last word on a target, asked in a
    process of its own."""

    here = False
    runs_networks = True
    note = ""

    def refusal(self, placement: Placement) -> str | None:
        """What TVM says against the target."""
        with processes.Child(kernels.WORKER) as child:
            try:
                child.request(("target", placement.tvm_target), _TIMEOUT_S)
            except processes.RemoteError as error:
                return (error.message.strip().splitlines() or ["no reason given"])[-1]
            except processes.ChildError as error:
                return str(error)
        return None
