"""Devices behind a TVM RPC tracker: kernels are built here and timed there."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import InternalError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.meters import KernelEnergy
from tilewright.hardware.remote import read_remote, read_tracker, remote_place, remote_placement
from tilewright.measure.accesses.base import BuiltByTvm
from tilewright.measure.base import Measurer
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.remote import RemoteMeasurer, server_facts
from tilewright.measure.remote_networks import BoardNetworks
from tilewright.measure.tracker import Tracker


class _Rpc(BuiltByTvm):
    name = "rpc"

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """The servers of a key, as one of them describes itself."""
        remote = read_remote(target)
        if remote is None:
            return None
        address = read_tracker(tracker)
        return remote_placement(
            remote, address, server_facts(Tracker(*address), remote.key), threads
        )

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        return (
            TargetRow(
                name="rpc:KEY",
                usable=False,
                detail="devices of a TVM RPC tracker; usable with --tracker HOST:PORT",
                target="",
            ),
        )

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> Measurer:
        return RemoteMeasurer(placement, *_tracker(placement), seed=seed)

    def networks(self, placement: Placement) -> NetworkRunner:
        return BoardNetworks(placement, *_tracker(placement))


def _tracker(placement: Placement) -> tuple[Tracker, str]:
    """The tracker that knows a placement's devices, and their key there."""
    place = remote_place(placement.device)
    if place is None:
        raise InternalError(f"{placement.device.instance!r} names no tracker")
    key, host, port = place
    return Tracker(host, port), key


RPC = _Rpc()
