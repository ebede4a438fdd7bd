"""Devices behind a TVM RPC tracker: kernels are built here and timed there."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core import records, results
from tilewright.hardware.meters import KernelEnergy
from tilewright.hardware.remote import read_remote, read_tracker, remote_place, remote_placement
from tilewright.measure import base, remote_networks
from tilewright.measure.accesses.base import BuiltByTvm
from tilewright.measure.boards import Tracker
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.remote import RemoteMeasurer, server_facts


class _Rpc(BuiltByTvm):
    name = "rpc"

    def placement(
        self, target: str, tracker: str | None, threads: int | None
    ) -> records.Placement | None:
        """The servers of a key, as one of them describes itself."""
        remote = read_remote(target)
        if remote is None:
            return None
        address = read_tracker(tracker)
        return remote_placement(
            remote, address, server_facts(Tracker(*address), remote.key), threads
        )

    def rows(self, threads: int | None) -> Sequence[results.TargetRow]:
        return (
            results.TargetRow(
                name="rpc:KEY",
                usable=False,
                detail="devices of a TVM RPC tracker; usable with --tracker HOST:PORT",
                target="",
            ),
        )

    def measurer(
        self, placement: records.Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> base.Measurer:
        return RemoteMeasurer(placement, *_tracker(placement), seed=seed)

    def networks(self, placement: records.Placement) -> NetworkRunner:
        return remote_networks.BoardNetworks(placement, *_tracker(placement))


def _tracker(placement: records.Placement) -> tuple[Tracker, str]:
    """The tracker that knows a placement's devices, and their key there."""
    key, host, port = remote_place(placement.device)
    return Tracker(host, port), key


RPC = _Rpc()
