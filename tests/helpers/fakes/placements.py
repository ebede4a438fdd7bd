"""Placements that differ from others in a few things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.core.records import Placement
from tilewright.core.targets import Binding, Target, threads_alone


def altered(
    placement: Placement,
    *,
    class_key: str | None = None,
    instance: str | None = None,
    access: str | None = None,
    threads: int | None = None,
    cpus: Sequence[int] | None = None,
    **target: Any,
) -> Placement:
    """A placement with another class, instance, access, threads, CPUs or facts of its target."""
    device = replace(
        placement.device,
        class_key=placement.device.class_key if class_key is None else class_key,
        instance=placement.device.instance if instance is None else instance,
        access=placement.device.access if access is None else access,
        target=replace(placement.target, **target),
    )
    return Placement(
        device=device,
        resources=placement.resources if threads is None else threads_alone(threads),
        binding=placement.binding if cpus is None else Binding(cpus=tuple(cpus)),
    )


def with_cache(target: Target, level: int, size_bytes: int) -> dict[str, Any]:
    """The fact `memory` of a target whose cache of a level holds so many bytes."""
    memory = list(target.memory)
    memory[level - 1] = replace(memory[level - 1], bytes=size_bytes)
    return {"memory": tuple(memory)}
