"""Numbers as people read them: scaled units, a dash where nothing is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

from tilewright.core.units import format_bytes, format_joules, format_seconds

MISSING = "–"
_LONGEST, _CUT = 60, 24


def _known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number that can be shown."""
    return value is not None and math.isfinite(value)


def seconds(value_s: float | None) -> str:
    """`0.0123` → `12.3 ms`."""
    return format_seconds(value_s) if _known(value_s) else MISSING


def joules(value_j: float | None) -> str:
    """`0.0123` → `12.3 mJ`."""
    return format_joules(value_j) if _known(value_j) else MISSING


def size(value_bytes: float | None) -> str:
    """`1536` → `1.5 KiB`."""
    return format_bytes(value_bytes) if _known(value_bytes) else MISSING


def speed(bytes_per_s: float | None) -> str:
    """`1.25e10` → `12.5 GB/s`, `3e6` → `3 MB/s`."""
    if bytes_per_s is None:
        return MISSING
    unit, name = (1e9, "GB/s") if bytes_per_s >= 1e9 else (1e6, "MB/s")
    return f"{bytes_per_s / unit:.3g} {name}"


def percent(fraction: float | None) -> str:
    """`0.123` → `12.3 %`."""
    return number(fraction * 100, 3, " %") if fraction is not None else MISSING


def rate(value: float | None, unit: str = "") -> str:
    """Three digits, without exponent for the usual range: `231.4` → `231`."""
    return number(value, 3, f" {unit}" if unit else "")


def ratio(value: float | None) -> str:
    """`1.1666` → `1.17×`."""
    if not _known(value):
        return MISSING
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def speedup(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`1.42× (1.38 to 1.47)`; the ratio alone where it has no interval."""
    if low is None or high is None or ratio(low) == ratio(high):
        return ratio(value)
    return f"{ratio(value)} ({ratio(low)[:-1]} to {ratio(high)[:-1]})"


def error(value: float | None) -> str:
    """`1.234e-6` → `1.2e-06`."""
    return f"{value:.1e}" if value is not None and not math.isnan(value) else MISSING


def decibels(raw: float | None, centred: float | None = None) -> str:
    """`48.3 dB, 45.1 dB of what differs between inputs`."""
    text, other = (number(ratio, suffix=" dB") for ratio in (raw, centred))
    return text if centred is None else f"{text}, {other} of what differs between inputs"


def number(value: float | None, digits: int = 3, suffix: str = "") -> str:
    """`digits` significant digits, plain notation from 0.001 to a million."""
    if not _known(value):
        return MISSING
    size_of = abs(float(f"{value:.{digits - 1}e}"))
    if size_of and not 1e-3 <= size_of < 1e6:
        return f"{value:.{digits - 1}e}{suffix}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size_of))) if size_of else 0
    return f"{value:.{decimals}f}{suffix}"


def whole(value: int | None) -> str:
    """`12345` → `12 345`."""
    return f"{value:,}".replace(",", "\u202f") if value is not None else MISSING


def plain(value: object) -> str:
    """A value's text: `True` → `yes`, `None` → `–`."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def pairs(values: Mapping[str, object]) -> str:
    """`{"oc": 16, "unroll": True}` → `oc=16 unroll=yes`."""
    words = {True: "yes", False: "no"}
    return " ".join(
        f"{key}={words[value] if isinstance(value, bool) else brief(value)}"
        for key, value in values.items()
    )


def brief(value: object) -> str:
    """A value's text; a long one, such as a schedule's trace, is cut and its length told."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_CUT]}… ({len(text)} characters)"
