"""Targets that can be used here; TVM has the last word, asked in a process of its own."""

from __future__ import annotations

import json

from tilewright.core.errors import TargetError, UsageError
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Device
from tilewright.core.results import TargetRow
from tilewright.hardware.device import is_local, local_device, parse_target
from tilewright.hardware.remote import read_remote, read_tracker, remote_device, remote_place
from tilewright.measure.kernels import WORKER
from tilewright.measure.remote import server_facts
from tilewright.measure.tracker import Tracker

_TIMEOUT_S = 60.0


def usable_device(device: Device) -> Device:
    """The device itself; raises TargetError when TVM refuses its target or it is elsewhere."""
    describable_device(device)
    if not is_local(device) and remote_place(device) is None:
        raise TargetError(
            f"the target {device.target} cannot run on this machine",
            hint="Kernels for it can be looked at: `tilewright show op:... --asm --target ...`.",
        )
    return device


def device_of(target: str, tracker: str | None, threads: int | None) -> Device:
    """The device a person means: this CPU, one that is described, or those behind a tracker.

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
    return remote_device(remote, (host, port), facts, threads)


def describable_device(device: Device) -> Device:
    """The device itself, wherever it is; raises TargetError when TVM refuses its target."""
    if device.target == local_device(None).target:
        return device
    refusal = refused_by_tvm(device)
    if refusal is not None:
        raise TargetError(
            f"TVM refuses the target {device.target}: {refusal}",
            hint="`tilewright targets` lists what can be used here.",
        )
    return device


def refused_by_tvm(device: Device) -> str | None:
    """Why TVM does not take the target, None when it does."""
    with Child(WORKER) as child:
        try:
            child.request(("target", device.target), _TIMEOUT_S)
        except RemoteError as error:
            lines = error.message.strip().splitlines() or ["no reason given"]
            return lines[-1]
        except ChildError as error:
            return str(error)
    return None


def target_rows(threads: int | None) -> tuple[TargetRow, ...]:
    """What `--target` takes: this CPU, and the form for others."""
    device = local_device(threads)
    described = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    return (
        TargetRow(
            name="llvm",
            usable=True,
            detail=f"this CPU: {device.cpu.model}",
            target=device.target,
            threads=device.threads,
            vector_bytes=device.cpu.vector_bytes,
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
