"""Devices and placements on them: the local CPU, or one described by a TVM target."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import TargetError
from tilewright.core.records import Device, Placement
from tilewright.core.targets import Binding, Resources, Target, threads_alone
from tilewright.hardware.features import AVX512, KNOWN_FEATURES, cpu_target
from tilewright.hardware.probe import (
    allotted_cores,
    allotted_cpus,
    default_threads,
    probe_cpu,
    read_text,
)
from tilewright.hardware.target import (
    described_target,
    read_target,
    target_architecture,
    target_features,
    text_of,
    tvm_text,
)

ELSEWHERE = ""
"""The instance of a device that is only described, not here."""


@cache
def local_instance() -> str:
    """A stable name of this machine that does not give it away."""
    return digest((read_text(Path("/etc/machine-id")) or "") + "/" + platform.node(), length=12)


def is_local(device: Device) -> bool:
    """Whether kernels for `device` can be run on this machine."""
    return device.instance == local_instance()


def class_name(target: Target) -> str:
    """What a device class's key begins with: the model and its widest vectors, of a GPU
    its architecture, for people."""
    model = re.sub(r"\((?:r|tm)\)", "", target.model.lower())
    model = re.sub(r"[^a-z0-9]+", "-", model).strip("-")
    if target.kind == "cuda":
        return f"{model[:40]}-{target.architecture.replace('_', '')}"
    features = set(target.features)
    vectors = next((name for name in ("avx2", "neon") if name in features), "sse")
    return f"{model[:40] or 'cpu'}-{'avx512' if set(AVX512) <= features else vectors}"


def class_key(target: Target) -> str:
    """The name of a device class: readable in front, a hash of all that counts behind.

    What follows from the instruction sets does not count, nor how many cores there are or may be
    used: two machines of one processor are of one class. GPUs of one model have more or fewer
    multiprocessors, which count.
    """
    counted = {
        "model": target.model,
        "architecture": target.architecture,
        "features": target.features,
        "target": json.loads(target.tvm or "{}"),
        "caches": [level.bytes for level in target.memory],
    }
    if target.kind == "cuda":
        counted |= {"caches": [], "cores": target.cores}
    return f"{class_name(target)}-{digest(canonical_json(counted), length=10)}"


def device_of(target: Target, instance: str) -> Device:
    """The device of a kind of processor."""
    return Device(
        class_key=class_key(target),
        instance=instance,
        target=target,
        access="here" if instance == local_instance() else "described",
    )


def local_placement(threads: int | None = None, root: Path = Path("/")) -> Placement:
    """This machine's CPU with `threads` threads, by default one per physical core allotted.

    Raises `TargetError` when more threads are asked for than logical CPUs are allotted.
    """
    cpu = probe_cpu(root)
    return _placed_here(replace(cpu, tvm=tvm_text(cpu)), threads, root)


def _placed_here(target: Target, threads: int | None, root: Path) -> Placement:
    cpus, default = allotted_cpus(root), default_threads(root)
    count = default if threads is None else threads
    if threads is not None and not 1 <= threads <= len(cpus):
        allotted = f"{len(cpus)} logical CPUs" if len(cpus) > 1 else "one logical CPU"
        raise TargetError(
            f"cannot use {threads} threads: this process is allotted {allotted}",
            hint=f"Use --threads with 1 to {len(cpus)}; the default here is {default}.",
        )
    return Placement(
        device=device_of(target, local_instance()),
        resources=Resources(cores=min(count, allotted_cores(root)), threads=count),
        binding=Binding(cpus=cpus),
    )


def parse_target(text: str, threads: int | None = None, root: Path = Path("/")) -> Placement:
    """Where a person means by `text`: `llvm`, TVM's JSON, or `llvm -mcpu=NAME`.

    `llvm` alone is the local CPU. A target whose instruction sets this machine has runs here, with
    this machine's caches; any other is only described (`instance` empty). Raises `TargetError` for
    what cannot be read; whether TVM accepts the values shows in the compiler.
    """
    given = read_target(text)
    wanted = threads if threads is not None else given.get("num-cores")
    if set(given) <= {"kind", "num-cores"} or given.get("mcpu") == "native":
        return local_placement(wanted, root)
    local = probe_cpu(root)
    features = target_features(given)
    missing = (set(features) & KNOWN_FEATURES) - set(local.features)
    if target_architecture(given) == local.architecture and not missing:
        return _placed_here(
            cpu_target(
                model=local.model,
                architecture=local.architecture,
                features=features,
                cache_bytes=[level.bytes for level in local.memory],
                cores=local.cores,
                tvm=text_of(given),
            ),
            wanted,
            root,
        )
    return described_placement(given, wanted)


def described_placement(given: dict[str, Any], threads: int | None) -> Placement:
    """A processor that is not here, from its TVM target; one thread unless more are asked for."""
    count = threads if threads is not None else 1
    if count < 1:
        raise TargetError(f"cannot use {count} threads", hint="Use --threads with 1 or more.")
    return Placement(
        device=device_of(described_target(given, cores=count), ELSEWHERE),
        resources=threads_alone(count),
        binding=Binding(cpus=tuple(range(count))),
    )
