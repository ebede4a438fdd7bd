"""Devices: the local CPU, or one described by a TVM target."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from tilewright.core.errors import TargetError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import CpuFacts, Device
from tilewright.hardware.features import AVX512, KNOWN_FEATURES, vector_shape
from tilewright.hardware.probe import probe_cpu
from tilewright.hardware.target import (
    facts_of_target,
    local_target,
    read_target,
    target_architecture,
    target_features,
)
from tilewright.hardware.topology import (
    allotted_cores,
    allotted_cpus,
    default_threads,
    read_text,
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


def _short_features(facts: CpuFacts) -> str:
    if set(AVX512) <= set(facts.features):
        return "avx512"
    return next((name for name in ("avx2", "neon") if name in facts.features), "sse")


def class_key(facts: CpuFacts, *, target: str, threads: int, cores: int) -> str:
    """The name of a device class: readable in front, a hash of all that counts behind.

    `target` is the JSON text; `threads` what a kernel may use; `cores` the physical cores in use.
    """
    model = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((?:r|tm)\)", "", facts.model.lower())).strip("-")
    counted = {
        "model": facts.model,
        "architecture": facts.architecture,
        "features": facts.features,
        "target": target,
        "cores": cores,
        "threads": threads,
        "caches": [facts.l1_bytes, facts.l2_bytes, facts.l3_bytes],
    }
    tail = digest(canonical_json(counted), length=10)
    return f"{model[:40] or 'cpu'}-{_short_features(facts)}-{threads}t-{tail}"


def _checked_threads(threads: int | None, cpus: tuple[int, ...], default: int) -> int:
    if threads is None:
        return default
    if not 1 <= threads <= len(cpus):
        allotted = f"{len(cpus)} logical CPUs" if len(cpus) > 1 else "one logical CPU"
        raise TargetError(
            f"cannot use {threads} threads: this process is allotted {allotted}",
            hint=f"Use --threads with 1 to {len(cpus)}; the default here is {default}.",
        )
    return threads


def local_device(threads: int | None = None, root: Path = Path("/")) -> Device:
    """This machine's CPU with `threads` threads, by default one per physical core allotted.

    Raises `TargetError` when more threads are asked for than logical CPUs are allotted.
    """
    cpus = allotted_cpus(root)
    count = _checked_threads(threads, cpus, default_threads(root))
    facts = probe_cpu(root)
    target = local_target(facts, count)
    cores = min(count, allotted_cores(root))
    return Device(
        class_key=class_key(facts, target=target, threads=count, cores=cores),
        instance=local_instance(),
        target=target,
        threads=count,
        cpus=cpus,
        cpu=facts,
    )


def parse_target(text: str, threads: int | None = None, root: Path = Path("/")) -> Device:
    """The device a person means by `text`: `llvm`, TVM's JSON, or `llvm -mcpu=NAME`.

    `llvm` alone is the local CPU. A target whose instruction sets this machine has runs here, with
    this machine's caches; any other is only described (`instance` empty). Raises `TargetError` for
    what cannot be read; whether TVM accepts the values shows in the compiler.
    """
    given = read_target(text)
    wanted = threads if threads is not None else given.get("num-cores")
    if set(given) <= {"kind", "num-cores"} or given.get("mcpu") == "native":
        return local_device(wanted, root)
    local = probe_cpu(root)
    features = target_features(given)
    missing = (set(features) & KNOWN_FEATURES) - set(local.features)
    here = target_architecture(given) == local.architecture and not missing
    if here:
        cpus = allotted_cpus(root)
        count = _checked_threads(wanted, cpus, default_threads(root))
        vector_bytes, registers = vector_shape(features, local.architecture)
        facts = replace(
            local,
            features=features,
            vector_bytes=vector_bytes,
            vector_registers=registers,
        )
        cores = min(count, allotted_cores(root))
    else:
        count = wanted if wanted is not None else 1
        if count < 1:
            raise TargetError(f"cannot use {count} threads", hint="Use --threads with 1 or more.")
        cpus, cores = tuple(range(count)), count
        facts = facts_of_target(given, cores=count)
    target = canonical_json({**given, "num-cores": count})
    return Device(
        class_key=class_key(facts, target=target, threads=count, cores=cores),
        instance=local_instance() if here else ELSEWHERE,
        target=target,
        threads=count,
        cpus=cpus,
        cpu=facts,
    )
