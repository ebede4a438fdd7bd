"""A machine's pace beside the one whose kernels came along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_measuring import PLACEMENT
from hypothesis import given, settings
from hypothesis import strategies as st
from predictor_rows import PEAKS, fitted, rows_of_convolutions

from tilewright.predict.collected import Row
from tilewright.predict.pace import enough, pace


def at(factor: float, rows: list[Row]) -> list[Row]:
    return [replace(row, latency_s=factor * row.latency_s) for row in rows]


def of(rows: list[Row]) -> float:
    return pace(rows, fitted(), PLACEMENT, PEAKS)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.2, 5.0))
def test_a_common_factor_is_found(factor: float) -> None:
    rows = rows_of_convolutions()
    bare = pace(at(10.0, rows), fitted(), PLACEMENT, PEAKS) / 10
    found = of(at(factor, rows))
    assert found == pytest.approx(factor * bare) or (found == 1 and abs(factor * bare - 1) < 0.04)


def test_a_few_kernels_that_are_far_off_change_nothing() -> None:
    rows = at(0.5, rows_of_convolutions())
    assert of([*at(100.0, rows[:8]), *rows[8:]]) == pytest.approx(of(rows), rel=0.05)


def test_an_operator_with_many_settings_counts_once() -> None:
    rows = rows_of_convolutions()
    first = [row for row in rows if row.workload.key == rows[0].workload.key]
    others = [row for row in rows if row.workload.key != rows[0].workload.key]
    assert of([*at(9.0, first * 8), *at(0.5, others)]) == pytest.approx(of(at(0.5, rows)), rel=0.1)


def test_too_few_say_nothing() -> None:
    rows = rows_of_convolutions()
    one_operator = [row for row in rows if row.workload.key == rows[0].workload.key] * 3
    for few in ([], at(2.0, rows[:19]), at(2.0, one_operator)):
        assert not enough(few)
        assert of(few) == 1
    assert enough(rows)
