"""Devices as databases and files named them before version 5: with threads in their class.

    amd-epyc-avx512-2t-747cbc7c2d   is now   amd-epyc-avx512-9c172e064d with resources 2t

A class of before is carried over where the device's facts are known; its rows then belong to the
new class. Rows whose device nobody described keep the class they had, and the threads that its
name tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tilewright.core.codec import canonical_json, digest
from tilewright.core.records import Device, Placement, PlacementKey
from tilewright.core.targets import Resources, Target, parse_resources, threads_alone
from tilewright.hardware.device import ELSEWHERE, class_key, class_name
from tilewright.hardware.features import cpu_target
from tilewright.hardware.remote import PREFIX
from tilewright.hardware.target import text_of

_MOST_THREADS = 1024
"""Classes of more are not looked for: each is a hash."""

_THREADS = re.compile(r"-([1-9]\d{0,3})t-[0-9a-f]{10}$")


class _CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was known of a CPU."""

    model: str
    architecture: str
    features: tuple[str, ...]
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    physical_cores: int


class _Device(msgspec.Struct, frozen=True, kw_only=True):
    """What a device was; threads and CPUs were part of it."""

    class_key: str
    instance: str
    target: str
    threads: int
    cpu: _CpuFacts


def is_legacy(fields: Mapping[str, Any]) -> bool:
    """Whether the fields of a device are those of before."""
    return "cpu" in fields


def read_device(fields: Mapping[str, Any]) -> tuple[Device, str, Resources]:
    """A device of before as it is now, the class that it had, and the resources which were part of
    that. Raises ValueError, of which msgspec.ValidationError is one, for what is no device."""
    found = msgspec.convert(fields, _Device)
    cpu = found.cpu
    target = cpu_target(
        model=cpu.model,
        architecture=cpu.architecture,
        features=cpu.features,
        cache_bytes=(cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes),
        cores=cpu.physical_cores,
        tvm=text_of(msgspec.json.decode(found.target, type=dict[str, Any])),
    )
    access = "described" if found.instance == ELSEWHERE else "here"
    usual, circumstances = _apart(found.class_key)
    device = Device(
        class_key=class_key(target) + circumstances,
        instance=found.instance,
        target=target,
        access="rpc" if found.instance.startswith(PREFIX) else access,
    )
    return device, found.class_key, _resources(usual, target, found.threads)


def read_placement(fields: Mapping[str, Any], resources: str) -> Placement:
    """A device as files name it, now or before, and its resources as a text; for a device of before
    they are its own. Raises ValueError for what is none."""
    if is_legacy(fields):
        device, _, own = read_device(fields)
        return Placement(device=device, resources=own)
    device = msgspec.convert(fields, Device)
    return Placement(device=device, resources=parse_resources(resources))


def class_of_before(target: Target, resources: Resources) -> str:
    """The class that a processor had with these resources."""
    counted = {
        "model": target.model,
        "architecture": target.architecture,
        "features": target.features,
        "target": target.tvm_target(resources),
        "cores": resources.cores,
        "threads": resources.threads,
        "caches": [level.bytes for level in target.memory],
    }
    tail = digest(canonical_json(counted), length=10)
    return f"{class_name(target)}-{resources.threads}t-{tail}"


def folder_of(parent: Path, placement: Placement) -> Path:
    """The folder in `parent` of what belongs to a device class and its resources; one that is named
    as before is renamed. It need not be there."""
    found, before = parent / str(placement.key), parent / name_of_before(placement)
    if before.is_dir() and not found.exists():
        try:
            before.rename(found)
        except OSError:
            return before
    return found


def name_of_before(placement: Placement) -> str:
    """The class that a placement's device had."""
    _, circumstances = _apart(placement.device.class_key)
    return class_of_before(placement.target, placement.resources) + circumstances


def _apart(key: str) -> tuple[str, str]:
    """A class without its circumstances, and these."""
    usual, plus, circumstances = key.partition("+")
    return usual, plus + circumstances


def _resources(key: str, target: Target, threads: int) -> Resources:
    """What a class of before had: its name is a hash of it, so the cores are found by trying."""
    if threads < 1:
        raise ValueError(f"a device of {threads} threads is none")
    tried = (
        Resources(cores=cores, threads=threads)
        for cores in range(min(threads, _MOST_THREADS), 0, -1)
    )
    fitting = (one for one in tried if class_of_before(target, one) == key)
    return next(fitting, Resources(cores=max(1, min(threads, target.cores)), threads=threads))


class ClassesOfBefore:
    """Which class and resources stand behind the class keys of before.

    Known from the start are the classes that some processors had, with as many threads as they have
    cores or twice as many.
    """

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self.known: dict[str, PlacementKey] = {}
        for device in devices:
            _, circumstances = _apart(device.class_key)
            cores = device.target.cores
            with suppress(ValueError, TypeError):  # of a target that is no JSON object
                for threads in range(1, min(2 * cores, _MOST_THREADS) + 1):
                    for used in (threads, max(1, min(threads, cores))):
                        resources = Resources(cores=used, threads=threads)
                        self.known.setdefault(
                            class_of_before(device.target, resources) + circumstances,
                            PlacementKey(device_class=device.class_key, resources=resources),
                        )

    def read(self, fields: Mapping[str, Any]) -> Device:
        """A device of before as it is now; the class that it had is known from then on. Raises
        ValueError for what is no device."""
        try:
            device, before, resources = read_device(fields)
        except ValueError as error:
            raise ValueError(f"a device of before cannot be read: {error}") from error
        self.known[before] = PlacementKey(device_class=device.class_key, resources=resources)
        return device

    def of(self, before: str) -> PlacementKey:
        """What stands behind a class of before: without a device, the class itself with the threads
        that its name tells, one where it tells none."""
        for known, circumstances in ((before, ""), _apart(before)):
            if known in self.known:
                found = self.known[known]
                return replace(found, device_class=found.device_class + circumstances)
        told = _THREADS.search(_apart(before)[0])
        return PlacementKey(
            device_class=before, resources=threads_alone(int(told[1]) if told else 1)
        )
