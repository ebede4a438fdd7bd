"""Targets that can be used here; TVM has the last word, asked in a process of its own."""

from __future__ import annotations

import json

from tilewright.core.errors import TargetError, UsageError
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.device import is_local, local_placement, parse_target
from tilewright.hardware.remote import read_remote, read_tracker, remote_place, remote_placement
from tilewright.measure.kernels import WORKER
from tilewright.measure.remote import server_facts
from tilewright.measure.tracker import Tracker

_TIMEOUT_S = 60.0


def usable_placement(placement: Placement) -> Placement:
    """The placement itself; raises TargetError when TVM refuses its target or it is elsewhere."""
    describable_placement(placement)
    if not is_local(placement.device) and remote_place(placement.device) is None:
        raise TargetError(
            f"the target {placement.tvm_target} cannot run on this machine",
            hint="Kernels for it can be looked at: `tilewright show op:... --asm --target ...`.",
        )
    return placement


def placement_of(target: str, tracker: str | None, threads: int | None) -> Placement:
    """The placement a person means: this CPU, one that is described, or those behind a tracker.

    Raises `UsageError` when `tracker` is missing or not needed, `TargetError` when a tracker or its
    devices cannot be had.
    """
    remote = read_remote(target)
    if remote is None:
        if tracker is not None:
            raise UsageError(
                f"A tracker is for rpc: targets; the target {target!r} is none.",
                hint="Write --target rpc:KEY --tracker HOST:PORT.",
            )
        return parse_target(target, threads)
    host, port = read_tracker(tracker)
    facts = server_facts(Tracker(host=host, port=port), remote.key)
    return remote_placement(remote, (host, port), facts, threads)


def describable_placement(placement: Placement) -> Placement:
    """The placement itself, wherever it is; raises TargetError when TVM refuses its target."""
    if placement.target.tvm == local_placement(None).target.tvm:
        return placement
    refusal = refused_by_tvm(placement)
    if refusal is not None:
        raise TargetError(
            f"TVM refuses the target {placement.tvm_target}: {refusal}",
            hint="`tilewright targets` lists what can be used here.",
        )
    return placement


def refused_by_tvm(placement: Placement) -> str | None:
    """Why TVM does not take the target, None when it does."""
    with Child(WORKER) as child:
        try:
            child.request(("target", placement.tvm_target), _TIMEOUT_S)
        except RemoteError as error:
            lines = error.message.strip().splitlines() or ["no reason given"]
            return lines[-1]
        except ChildError as error:
            return str(error)
    return None


def target_rows(threads: int | None) -> tuple[TargetRow, ...]:
    """What `--target` takes: this CPU, and the form for others."""
    placement = local_placement(threads)
    described = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    return (
        TargetRow(
            name="llvm",
            usable=True,
            detail=f"this CPU: {placement.target.model}",
            target=placement.tvm_target,
            threads=placement.resources.threads,
            vector_bytes=placement.target.vector_bytes,
        ),
        TargetRow(
            name=described,
            usable=False,
            detail="any TVM llvm target as JSON; foreign ones for `show` only",
            target=described,
        ),
        TargetRow(
            name="rpc:KEY",
            usable=False,
            detail="devices of a TVM RPC tracker; usable with --tracker HOST:PORT",
            target="",
        ),
        TargetRow(
            name="cuda -model=H100",
            usable=False,
            detail="a GPU, for `explain op:...` only: its kernels before they run",
            target="",
        ),
    )
