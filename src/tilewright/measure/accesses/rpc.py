"""Devices behind a TVM RPC tracker: kernels are built here and timed there."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import InternalError, TargetError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.remote import read_remote, read_tracker, remote_place, remote_placement
from tilewright.measure.accesses.refusals import refused_by_tvm
from tilewright.measure.base import Measurer
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.remote import RemoteMeasurer, server_facts
from tilewright.measure.tracker import Tracker


class _Rpc:
    name = "rpc"
    here = False
    runs_networks = False
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
        place = remote_place(placement.device)
        if place is None:
            raise InternalError(f"{placement.device.instance!r} names no tracker")
        key, host, port = place
        return RemoteMeasurer(placement, Tracker(host=host, port=port), key, seed=seed)

    def networks(self, placement: Placement) -> NetworkRunner:
        raise TargetError(
            "whole networks are not run on rpc: targets; their tasks are tuned, and what was "
            "measured is kept",
            hint="Kernels: `tilewright show TASK --asm` with the same --target and --tracker.",
        )


ACCESS = _Rpc()
