"""Devices as logs name them: by a target alone."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tilewright.core.codec import to_builtins
from tilewright.core.errors import TargetError
from tilewright.core.records import Device, Placement
from tilewright.core.targets import Resources
from tilewright.hardware.device import described_placement
from tilewright.hardware.target import read_target
from tilewright.store.interchange.lines import Json, NotUnderstood


@lru_cache(maxsize=64)
def described_by(target: str) -> Placement:
    """Where a log's target says that it was, somewhere else by definition.

    A log tells neither caches nor threads, so even where this machine has the instruction set the
    class is another one than this machine's: modest caches, and one thread unless the target says
    `num-cores`. Raises `NotUnderstood` for targets that are no CPU.
    """
    try:
        given = read_target(target)
    except TargetError as error:
        raise NotUnderstood(error.message) from error
    return described_placement(given, given.get("num-cores"))


def target_words(device: Device | None, resources: Resources) -> str:
    """A device's target in the older form that AutoTVM logs use; `llvm` for no device."""
    if device is None:
        return "llvm"
    given: dict[str, Any] = json.loads(device.target.tvm_target(resources))
    words = [str(given.pop("kind", "llvm"))]
    for name, value in given.items():
        words.append(f"-{name}={','.join(value) if isinstance(value, list) else value}")  # pyright: ignore[reportUnknownArgumentType]
    return " ".join(words)


def device_entry(device: Device) -> Json:
    """A device as an entry that comes along with a record."""
    return {"record": "device", **to_builtins(device)}
