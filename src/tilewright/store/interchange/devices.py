"""Devices as logs name them: by a target alone."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec

from tilewright.core.errors import TargetError
from tilewright.core.fingerprints import canonical_json
from tilewright.core.records import Device
from tilewright.hardware.device import ELSEWHERE, class_key
from tilewright.hardware.target import facts_of_target, read_target
from tilewright.store.interchange.lines import Json, NotUnderstood


@lru_cache(maxsize=64)
def described_device(target: str) -> Device:
    """The device class of a log's target, somewhere else by definition.

    A log tells neither caches nor threads, so even where this machine has the instruction set the
    class is another one than this machine's: modest caches, and one thread unless the target says
    `num-cores`. Raises `NotUnderstood` for targets that are no CPU.
    """
    try:
        given = read_target(target)
    except TargetError as error:
        raise NotUnderstood(error.message) from error
    threads = int(given.get("num-cores", 1))
    facts = facts_of_target(given, cores=threads)
    text = canonical_json({**given, "num-cores": threads})
    return Device(
        class_key=class_key(facts, target=text, threads=threads, cores=threads),
        instance=ELSEWHERE,
        target=text,
        threads=threads,
        cpus=tuple(range(threads)),
        cpu=facts,
    )


def target_words(device: Device | None) -> str:
    """A device's target in the older form that AutoTVM logs use; `llvm` for no device."""
    if device is None:
        return "llvm"
    given: dict[str, Any] = json.loads(device.target)
    words = [str(given.pop("kind", "llvm"))]
    for name, value in given.items():
        words.append(f"-{name}={','.join(value) if isinstance(value, list) else value}")  # pyright: ignore[reportUnknownArgumentType]
    return " ".join(words)


def device_entry(device: Device) -> Json:
    """A device as an entry that comes along with a record."""
    return {"record": "device", **msgspec.to_builtins(device)}
