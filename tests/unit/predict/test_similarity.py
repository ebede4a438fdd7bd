"""The nearest known device class: by kernels measured on both, else by datasheets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered, with_cache
from helpers.records.predictor_kernels import PEAKS, rows
from helpers.records.predictor_rows import fitted, rows_of_convolutions
from tilewright.predict.collected import (
    LEAST_PROBES,
    Row,
    enough,
    nearest,
    slowdown,
    unlikeness,
)

TWIN = altered(PLACEMENT, class_key="twin", model="another")
STRANGER = altered(PLACEMENT, class_key="stranger", **with_cache(PLACEMENT.target, 2, 1 << 28))
NEW = altered(PLACEMENT, class_key="new")
KERNELS = rows(4, 5)


def slower(factor: float) -> list[Row]:
    return [replace(row, latency_s=factor * row.latency_s) for row in KERNELS]


def uneven() -> list[Row]:
    return [
        replace(row, latency_s=row.latency_s * (1 + number % 3))
        for number, row in enumerate(KERNELS)
    ]


def found(own: list[Row], *measured: list[Row]) -> tuple[int, int]:
    """The nearest of the twin and the stranger, on which these kernels were measured."""
    return nearest(NEW, own, [TWIN, STRANGER], lambda place: measured[place])


def test_probes_know_better_than_datasheets() -> None:
    assert found([], uneven(), slower(5)) == (0, 0)
    assert found(KERNELS, uneven(), slower(5)) == (1, len(KERNELS))


@pytest.mark.parametrize("shared", [0, LEAST_PROBES - 1])
def test_too_few_kernels_in_common_say_nothing(shared: int) -> None:
    assert found(KERNELS, uneven(), slower(5)[:shared]) == (0, 0)
    assert found(KERNELS[:shared], uneven(), slower(5)) == (0, 0)


def test_a_single_class_is_not_read() -> None:
    def read(place: int) -> list[Row]:
        raise AssertionError(f"nobody needs the rows of {place}")

    assert nearest(NEW, KERNELS, [STRANGER], read) == (0, 0)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.floats(0.01, 100))
def test_speed_alone_is_no_unlikeness(ratios: list[float], factor: float) -> None:
    assert unlikeness([factor] * len(ratios)) == pytest.approx(0, abs=1e-9)
    faster = [factor * ratio for ratio in ratios]
    assert unlikeness(faster) == pytest.approx(unlikeness(ratios), abs=1e-9)


def at(factor: float, rows: list[Row]) -> list[Row]:
    return [replace(row, latency_s=factor * row.latency_s) for row in rows]


def of(rows: list[Row]) -> float:
    return slowdown(rows, fitted(), PLACEMENT, PEAKS)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.2, 5.0))
def test_a_common_factor_is_found(factor: float) -> None:
    rows = rows_of_convolutions()
    bare = slowdown(at(10.0, rows), fitted(), PLACEMENT, PEAKS) / 10
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
    assert enough(rows)
