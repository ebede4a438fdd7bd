"""Scaling SI numbers for people; used only where something is shown."""

from __future__ import annotations

import re
from math import isfinite

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_ENERGY = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([kmgt]?i?b|)", re.IGNORECASE)
_FACTORS = {
    "": 1,
    "B": 1,
    **{f"{unit}B": 1000**power for power, unit in enumerate("KMGT", start=1)},
    **{f"{unit}IB": 1024**power for power, unit in enumerate("KMGT", start=1)},
}
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))

_COUNT = r"(\d+(?:\.\d*)?|\.\d+)"
_DURATION = re.compile(rf"(?:{_COUNT}h)?(?:{_COUNT}m)?(?:{_COUNT}s)?", re.ASCII)
_SECONDS = (3600.0, 60.0, 1.0)


def format_seconds(value_s: float) -> str:
    """`0.0123` → `12.3 ms`."""
    for scale, unit in _TIME:
        if abs(value_s) >= scale:
            return f"{value_s / scale:.3g} {unit}"
    return f"{value_s / 1e-9:.3g} ns"


def format_joules(value_j: float) -> str:
    """`0.0123` → `12.3 mJ`."""
    for scale, unit in _ENERGY:
        if abs(value_j) >= scale:
            return f"{value_j / scale:.3g} {unit}"
    return f"{value_j / 1e-6:.3g} µJ"


def format_bytes(value_bytes: float) -> str:
    """`1536` → `1.5 KiB`."""
    for scale, unit in _BYTES:
        if abs(value_bytes) >= scale:
            return f"{value_bytes / scale:.4g} {unit}"
    return "0 B"


def parse_duration(text: str) -> float | None:
    """Seconds in `90s`, `10m`, `1.5h`, `1h30m`; None when `text` is no duration.

    Each unit comes once at most, the larger before the smaller; what comes first may be more than
    the next unit would hold, as in `90m`.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return None
    parts = zip(found.groups(), _SECONDS, strict=True)
    total_s = sum(float(count) * scale for count, scale in parts if count is not None)
    return total_s if isfinite(total_s) else None


def parse_bytes(text: str) -> int | None:
    """Bytes in `500MB`, `2.5GiB`, `0`; None when `text` is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    factor = _FACTORS[match[2].upper()]
    return int(float(match[1]) * factor)
