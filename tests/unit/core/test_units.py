"""Durations as people write them, and numbers as they read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tilewright.core.units import (
    format_bytes,
    format_joules,
    format_seconds,
    parse_bytes,
    parse_duration,
)

pytestmark = pytest.mark.regression

SECONDS = {
    "90s": 90.0,
    "10m": 600.0,
    "90m": 5400.0,
    "1.5h": 5400.0,
    "1h30m": 5400.0,
    "1h30m15s": 5415.0,
    "2m30s": 150.0,
    "1h5s": 3605.0,
    "0s": 0.0,
    ".5m": 30.0,
    "1.h": 3600.0,
}
NONE_OF_IT = (
    *("", "h", "10", "1e3s", "-1s", "1h-30m", "30m1h", "1m1m", "1 h", "1d", "1h30", "infs", "nans"),
    *("١s", "1_0s", "9" * 400 + "h"),
)


@pytest.mark.parametrize(("text", "seconds"), SECONDS.items())
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", NONE_OF_IT)
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_seconds(0.0123456), "12.3 ms"),
        (format_seconds(1.0), "1 s"),
        (format_seconds(0.9994e-3), "999 µs"),
        (format_seconds(3e-12), "0.003 ns"),
        (format_seconds(-0.002), "-2 ms"),
        (format_joules(0.0123456), "12.3 mJ"),
        (format_joules(12.3456), "12.3 J"),
        (format_joules(2e-9), "0.002 µJ"),
        (format_bytes(1536), "1.5 KiB"),
        (format_bytes(1234567), "1.177 MiB"),
        (format_bytes(5 * 2**30), "5 GiB"),
        (format_bytes(1023), "1023 B"),
    ],
)
def test_numbers_are_scaled_to_the_largest_unit_they_reach(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500MB", 500_000_000),
        ("2.5 GiB", 5 << 29),
        (" 1kib ", 1024),
        ("3 b", 3),
        ("7", 7),
        *((text, None) for text in ("", "GB", "-1", "1e3", "1.2345 MB", "1 PB", "1 i")),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_bytes(text) == size


counts = some.one_of(
    some.none(), some.integers(0, 10_000), some.decimals(0, 10_000, places=3).map(float)
)


@given(hours=counts, minutes=counts, seconds=counts)
def test_every_combination_of_units_adds_up(
    hours: float | None, minutes: float | None, seconds: float | None
) -> None:
    parts = ((hours, "h", 3600), (minutes, "m", 60), (seconds, "s", 1))
    text = "".join(f"{count}{unit}" for count, unit, _ in parts if count is not None)
    total_s = sum(count * scale for count, _, scale in parts if count is not None)
    assert parse_duration(text) == (pytest.approx(total_s) if text else None)


@given(some.text())
def test_any_text_gives_a_finite_number_or_none(text: str) -> None:
    found = parse_duration(text)
    assert found is None or 0 <= found < float("inf")


@pytest.mark.parametrize(
    ("text", "seconds"), [("20ms", 0.02), ("150us", 150e-6), ("150µs", 150e-6), ("1s5ms", 1.005)]
)
def test_short_times(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
