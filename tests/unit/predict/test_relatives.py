"""The nearest known device class: by kernels measured on both, else by datasheets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_measuring import PLACEMENT
from hypothesis import given
from hypothesis import strategies as st
from kernels import rows
from placements import altered, with_cache

from tilewright.core.records import Placement
from tilewright.predict.collected import Row
from tilewright.predict.relatives import LEAST_PROBES, Nearest, Relative, nearest, unlikeness

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


def known(placement: Placement, measured: list[Row]) -> Relative:
    return Relative(placement=placement, rows=lambda: measured)


def test_probes_know_better_than_datasheets() -> None:
    classes = [known(TWIN, uneven()), known(STRANGER, slower(5))]
    assert nearest(NEW, [], classes) == Nearest(place=0)
    assert nearest(NEW, KERNELS, classes) == Nearest(place=1, probes=len(KERNELS))


@pytest.mark.parametrize("shared", [0, LEAST_PROBES - 1])
def test_too_few_kernels_in_common_say_nothing(shared: int) -> None:
    classes = [known(TWIN, uneven()), known(STRANGER, slower(5)[:shared])]
    assert nearest(NEW, KERNELS, classes) == Nearest(place=0)
    assert nearest(NEW, KERNELS[:shared], classes) == Nearest(place=0)


def test_a_single_class_is_not_read() -> None:
    def read() -> list[Row]:
        raise AssertionError("nobody needs its rows")

    assert nearest(NEW, KERNELS, [Relative(placement=STRANGER, rows=read)]) == Nearest(place=0)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.floats(0.01, 100))
def test_speed_alone_is_no_unlikeness(ratios: list[float], factor: float) -> None:
    assert unlikeness([factor] * len(ratios)) == pytest.approx(0, abs=1e-9)
    faster = [factor * ratio for ratio in ratios]
    assert unlikeness(faster) == pytest.approx(unlikeness(ratios), abs=1e-9)
