"""Features of kernels have names that people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.report.features import feature_label, feature_value

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "predict.md"


def test_every_documented_feature_has_a_label() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([a-z]+\.[a-zA-Z0-9_.]+)`", row)]
    assert len(names) > 50
    assert not [name for name in names if feature_label(name) == name]
    assert feature_label("something else") == "something else"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("op.flop", 10.0, "1024"),
        ("op.extent_0", 3.0, "8.00"),
        ("op.constant_bytes", 21.0, "2 MiB"),
        ("schedule.estimate_s", -10.0, "977 µs"),
        ("schedule.workspace_bytes", 1024.0, "1 KiB"),
        ("op.halo", 2.25, "2.25"),
        ("roofline time", 0.001, "1 ms"),
        ("op.halo", None, "–"),
    ],
)
def test_values_have_units_and_are_no_logarithms(name: str, value: float | None, text: str) -> None:
    assert feature_value(name, value) == text
