"""Scaling SI numbers for people; used only where something is shown."""

from __future__ import annotations

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_ENERGY = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


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
    """Seconds in `90s`, `10m`, `1.5h`; None when `text` is no duration."""
    scales = {"s": 1.0, "m": 60.0, "h": 3600.0}
    if len(text) < 2 or text[-1] not in scales:
        return None
    try:
        value = float(text[:-1])
    except ValueError:
        return None
    return value * scales[text[-1]] if 0 <= value < float("inf") else None
