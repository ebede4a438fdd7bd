"""This machine, with tile registers in software: kernels of AMX run anywhere."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.records import Placement
from tilewright.hardware.device import local_placement, parse_target
from tilewright.hardware.features import units_of
from tilewright.kernels.base import HALF

TILES = ("amx-bf16", "amx-int8", "amx-tile")
"""What a processor with tile registers has."""


def in_software(cpu: str = "") -> Placement:
    """Two threads of it, in bfloat16; of its instructions those that a `cpu` has."""
    found = parse_target(f"llvm -mcpu={cpu}", 2) if cpu else local_placement(2)
    place = replace(found, precision=HALF)
    features = tuple(name for name in place.target.features if not name.startswith("amx-"))
    units = units_of((*features, *TILES), place.target.vector_bytes)
    target = replace(place.target, features=features, units=units)
    return replace(place, device=replace(place.device, target=target))
