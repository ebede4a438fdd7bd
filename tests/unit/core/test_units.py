"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tilewright.core.units import parse_duration

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
