"""Scaling SI numbers for people; used only where something is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_DURATION = re.compile(
    rf"(?:{_COUNT}h)?(?:{_COUNT}m)?(?:{_COUNT}s)?(?:{_COUNT}ms)?(?:{_COUNT}(?:us|µs))?", re.ASCII
)
_SECONDS = (3600.0, 60.0, 1.0, 1e-3, 1e-6)


def format_seconds(value_s: float) -> str:
    """`0.0123` → `12.3 ms`."""
    return _scaled(value_s, _TIME, 3)


def format_joules(value_j: float) -> str:
    """`0.0123` → `12.3 mJ`."""
    return _scaled(value_j, _ENERGY, 3)


def format_bytes(value_bytes: float) -> str:
    """`1536` → `1.5 KiB`."""
    return _scaled(value_bytes, _BYTES, 4)


def _scaled(value: float, units: Sequence[tuple[float, str]], digits: int) -> str:
    """A number in the largest unit that it reaches, in the smallest one where it reaches none."""
    scale, unit = next((each for each in units if abs(value) >= each[0]), units[-1])
    return f"{value / scale:.{digits}g} {unit}"


def parse_duration(text: str) -> float | None:
    """Seconds in `90s`, `10m`, `1.5h`, `1h30m`, `20ms`; None when `text` is no duration.

    Each unit comes once at most, the larger before the smaller; what comes first may be more than
    the next unit would hold, as in `90m`.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return None
    parts = zip(found.groups("0"), _SECONDS, strict=True)
    total_s = sum(float(count) * scale for count, scale in parts)
    return total_s if isfinite(total_s) else None


def parse_bytes(text: str) -> int | None:
    """Bytes in `500MB`, `2.5GiB`, `0`; None when `text` is no size."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _FACTORS[found[2].upper()])
