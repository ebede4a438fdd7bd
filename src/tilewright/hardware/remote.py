"""Devices behind a TVM RPC tracker: reading `rpc:` targets, and describing what answers there."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, replace
from typing import Any

from tilewright.core.errors import InternalError, TargetError, UsageError
from tilewright.core.records import Device, Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.hardware.device import class_key
from tilewright.hardware.features import KNOWN_FEATURES, is_x86
from tilewright.hardware.target import (
    described_target,
    read_target,
    target_architecture,
    tvm_text,
)

PREFIX = "rpc:"
_FORM = 'rpc:KEY, or rpc:KEY={"kind": "llvm", "mtriple": …, "mcpu": …} where servers cannot tell'
_TRACKER_FORM = "--tracker HOST:PORT, as in --tracker 10.0.0.1:9190."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """What a person wrote: the tracker's key, and the TVM target if they gave one."""

    key: str
    target: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says about itself.

    `triple`, `cpu` (both in LLVM's words) and `features` are empty when no compiler is there to
    ask; `threads` is the size of its thread pool; `flushes` whether it can empty its caches.
    """

    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    threads: int = 1
    flushes: bool = False


def is_behind_tracker(name: str) -> bool:
    """Whether a device of this name is one of a tracker's, or one of several copies of that."""
    return name.strip().startswith(PREFIX)


def read_remote(text: str) -> RemoteTarget | None:
    """The remote target in `text`, None when it is none. Raises `TargetError` for a broken one.

    Forms: `rpc:KEY`, `rpc:KEY={JSON of a TVM target}`, `rpc:KEY -mcpu=NAME -mtriple=…`.
    """
    if not is_behind_tracker(text):
        return None
    rest = text.strip().removeprefix(PREFIX)
    key, described, written = (part.strip() for part in rest.partition("="))
    if not described or " " in key:
        key, _, options = rest.partition(" ")
        described, written = options.strip(), f"llvm {options}"
    given = read_target(written) if described else None
    if not key or not key.isprintable():
        raise TargetError(f"target {text!r} names no key of a tracker", hint=f"Write {_FORM}.")
    return RemoteTarget(key=key, target=given)


def read_tracker(text: str | None) -> tuple[str, int]:
    """Host and port of a tracker. Raises `UsageError` when it is missing or malformed."""
    if not text:
        raise UsageError("An rpc: target needs the address of its tracker.", hint=_TRACKER_FORM)
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(f"{text!r} is no address of a tracker.", hint=f"Write {_TRACKER_FORM}")
    return host, int(port)


def remote_place(device: Device) -> tuple[str, str, int]:
    """Key, host and port of the tracker that a remote device is reached by."""
    if not device.instance.startswith(PREFIX):
        raise InternalError(f"{device.instance!r} names no tracker")
    key, _, address = device.instance[len(PREFIX) :].rpartition("/")
    return (key, *read_tracker(address))


def remote_instance(key: str, host: str, port: int) -> str:
    """The name of one device of a key; rows carry it."""
    return f"{PREFIX}{key}@{host}:{port}"


def remote_placement(
    remote: RemoteTarget, tracker: tuple[str, int], facts: ServerFacts, threads: int | None
) -> Placement:
    """The placement behind a key, from what a person gave or else from what a server told.

    Caches cannot be asked for: modest sizes are taken, so the class differs from the one the same
    machine has when it is local. Raises `TargetError` when too little is known, or when more
    threads are wanted than the server's pool has.
    """
    given = remote.target or {}
    wanted = threads if threads is not None else given.get("num-cores")
    if wanted is not None and wanted > facts.threads:
        raise TargetError(
            f"cannot use {wanted} threads: a server of {remote.key!r} has {facts.threads}",
            hint=f"Start the servers with TVM_NUM_THREADS={wanted}, or use fewer --threads.",
        )
    count = facts.threads if wanted is None else wanted
    if count < 1:
        raise TargetError(f"cannot use {count} threads", hint="Use --threads with 1 or more.")
    cpu = described_target(given or _told(remote.key, facts), cores=facts.threads)
    if not given:
        cpu = replace(cpu, model=facts.cpu or cpu.model)
    device = Device(
        class_key=class_key(cpu),
        instance=f"{PREFIX}{remote.key}/{tracker[0]}:{tracker[1]}",
        target=cpu,
        access="rpc",
    )
    return Placement(
        device=device, resources=threads_alone(count), binding=Binding(cpus=tuple(range(count)))
    )


def same_kind(placement: Placement, facts: ServerFacts, told: ServerFacts | None) -> bool:
    """Whether a server with `facts` belongs to the class of a device and has its threads.

    `told` is what another server said that did.
    """
    if facts.threads < placement.resources.threads:
        return False
    if told is not None:
        return replace(facts, threads=0) == replace(told, threads=0)
    if not facts.features:
        return True
    target = placement.target
    named = target.model in (json.loads(target.tvm).get("mcpu"), facts.cpu)
    return named and set(target.features) <= set(facts.features)


def _told(key: str, facts: ServerFacts) -> dict[str, Any]:
    """The TVM target for what a server told."""
    if not facts.triple:
        raise TargetError(
            f"the servers of {key!r} run without a compiler and cannot tell what CPU they have",
            hint=f"Give the target yourself: {_FORM}.",
        )
    plain: dict[str, Any] = {"kind": "llvm", "mtriple": facts.triple}
    architecture = target_architecture(plain)
    features = tuple(sorted(set(facts.features) & KNOWN_FEATURES))
    if not features and not is_x86(architecture):
        return {**plain, "mcpu": facts.cpu or "generic"}
    cpu = replace(described_target(plain, cores=facts.threads), features=features)
    target: dict[str, Any] = read_target(tvm_text(cpu))
    same = architecture == platform.machine() and "linux" in facts.triple
    return target if same else {**target, "mtriple": facts.triple}
