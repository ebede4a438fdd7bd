"""Devices behind a TVM RPC tracker: kernels are built here and timed there."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import InternalError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.remote import read_remote, read_tracker, remote_place, remote_placement
from tilewright.measure.accesses.refusals import refused_by_tvm
from tilewright.measure.base import Measurer
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.remote import RemoteMeasurer, server_facts
from tilewright.measure.remote_networks import BoardNetworks
from tilewright.measure.tracker import Tracker


class _Rpc:
    name = "rpc"
    here = False
    runs_networks = True
    note = ""

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """The servers of a key, as one of them describes itself."""
        remote = read_remote(target)
        if remote is None:
            return None
        host, port = read_tracker(tracker)
        facts = server_facts(Tracker(host=host, port=port), remote.key)
        return remote_placement(remote, (host, port), facts, threads)

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        return (
            TargetRow(
                name="rpc:KEY",
                usable=False,
                detail="devices of a TVM RPC tracker; usable with --tracker HOST:PORT",
                target="",
            ),
        )

    def refusal(self, placement: Placement) -> str | None:
        """What TVM says against the target."""
        return refused_by_tvm(placement)

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> Measurer:
        tracker, key = _tracker(placement)
        return RemoteMeasurer(placement, tracker, key, seed=seed)

    def networks(self, placement: Placement) -> NetworkRunner:
        tracker, key = _tracker(placement)
        return BoardNetworks(placement, tracker, key)


def _tracker(placement: Placement) -> tuple[Tracker, str]:
    """The tracker that knows a placement's devices, and their key there."""
    place = remote_place(placement.device)
    if place is None:
        raise InternalError(f"{placement.device.instance!r} names no tracker")
    key, host, port = place
    return Tracker(host=host, port=port), key


ACCESS = _Rpc()
