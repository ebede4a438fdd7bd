"""What a datasheet says of a device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

from tilewright.core.errors import ModelError
from tilewright.core.input_files import require_regular
from tilewright.cost.floors import Peaks
from tilewright.hardware.gpus import known_capability

_GIGA, _MEGA, _MEBI = 1e9, 1e6, 2.0**20
_FIELDS = {
    "memory_bandwidth_gb_s": ("bytes_per_s", _GIGA),
    "peak_fp32_gflop_s": ("flop_per_s", _GIGA),
    "multiprocessors": ("multiprocessors", 1.0),
    "l2_cache_mb": ("l2_bytes", _MEBI),
    "clock_mhz": ("clock_hz", _MEGA),
}
"""By the file's names ours, and what turns the value into SI units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """A device's peaks. `capability` is NVIDIA's compute capability, 0 where there is none."""

    device: str
    bytes_per_s: float
    flop_per_s: float
    multiprocessors: float
    l2_bytes: float
    clock_hz: float
    capability: float = 0.0

    @property
    def peaks(self) -> Peaks:
        """A datasheet says nothing of what caches give: they count like memory."""
        return Peaks(
            flop_per_s=self.flop_per_s,
            bytes_per_s=self.bytes_per_s,
            cache_bytes_per_s=self.bytes_per_s,
        )

    @property
    def ridge(self) -> float:
        """FLOP per byte at which compute and memory take equally long."""
        return self.flop_per_s / self.bytes_per_s


def nominal(device: str) -> Datasheet:
    """A stand-in for a device without datasheet. Its peaks scale the target and nothing else."""
    return Datasheet(
        device=device,
        bytes_per_s=500e9,
        flop_per_s=8e12,
        multiprocessors=28,
        l2_bytes=4 * _MEBI,
        clock_hz=1.5e9,
    )


def read_datasheets(path: Path) -> dict[str, Datasheet]:
    """Datasheets by device from a JSON list of objects.

    Each has `device`, `memory_bandwidth_gb_s`, `peak_fp32_gflop_s`, `multiprocessors`,
    `l2_cache_mb`, `clock_mhz`, and may have `compute_capability`. Raises ModelError for a file
    that is missing or something else, naming the entry and the field.
    """
    try:
        require_regular(path)
        entries: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON: {error}") from error
    if not isinstance(entries, list):
        raise ModelError(f"{path} is no list of datasheets")
    sheets: dict[str, Datasheet] = {}
    for number, entry in enumerate(cast("list[Any]", entries)):
        sheet = _sheet(entry, f"entry {number} of {path}")
        if sheet.device in sheets:
            raise ModelError(f"{path} has two datasheets of {sheet.device}")
        sheets[sheet.device] = sheet
    return sheets


def _sheet(entry: Any, where: str) -> Datasheet:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    device = fields.get("device")
    if not isinstance(device, str):
        raise ModelError(f"{where} is no object with a device")
    values = {own: _number(fields, name, where) * si for name, (own, si) in _FIELDS.items()}
    capability = known_capability(device)
    if "compute_capability" in fields:
        capability = _number(fields, "compute_capability", where)
    return Datasheet(device=device, capability=capability, **values)


def _number(entry: Mapping[str, Any], name: str, where: str) -> float:
    value = entry.get(name)
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    if not isfinite(number) or number <= 0:
        raise ModelError(f"{where} has no {name} above zero")
    return float(number)
