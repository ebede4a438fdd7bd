"""A device from others: weights, overheads and margins by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tilewright.predict.base import Column, Datasheet, Family, Features, Floats, Target
from tilewright.predict.transfer import (
    Forecast,
    MeasuredDevice,
    coordinates,
    device_weights,
    forecast,
    learn,
    likely_overhead,
    work_of,
)


def sheet(ridge: float, capability: float = 0.0) -> Datasheet:
    """A device that does so many operations in the time of moving a byte."""
    return Datasheet(
        device="d",
        bytes_per_s=1e9,
        flop_per_s=ridge * 1e9,
        multiprocessors=1,
        l2_bytes=1,
        capability=capability,
    )


@dataclass(frozen=True, slots=True)
class Constant:
    said: float

    def margin(self, values: Floats) -> Floats:
        return np.full(len(values), self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Keeps what it is given to learn."""

    members: int = 2
    threads: int = 1
    given: list[tuple[Floats, Floats, int, Floats]] = field(default_factory=list)

    def fit(self, values: Floats, margin: Floats, seed: int, weight: Any = None) -> Constant:
        self.given.append((values, margin, seed, weight))
        return Constant(float(seed))


def family(**named: Any) -> Family:
    fields: dict[str, Any] = {
        "name": "toy",
        "operands": (Column(name="n", meaning="elements"),),
        "targets": (Target(column=Column(name="time", meaning="time")),),
        "features": lambda columns, _sheet: columns,
    }
    return Family(**fields | named)


@pytest.mark.parametrize(
    ("new", "first", "second", "weight"),
    [
        # of ridges 16 and 4 one like the first is 0.9 of it: equal weights draw a little
        (sheet(16), sheet(16), sheet(4), 0.9),
        (sheet(8), sheet(16), sheet(4), 0.5),
        (sheet(64), sheet(16), sheet(4), 1.7),
        (sheet(4), sheet(4), sheet(4), 0.5),
        # a generation with tensor cores counts as much as a factor of four
        (sheet(16, 7.0), sheet(16, 8.0), sheet(16, 6.1), 0.9),
        (sheet(16, 6.9), sheet(16, 8.0), sheet(16, 6.1), 0.1),
    ],
)
def test_how_much_of_each_known_device_a_new_one_is(
    new: Datasheet, first: Datasheet, second: Datasheet, weight: float
) -> None:
    """The weights that add up to 1 and make Σ (ridge's error)² + 0.5 Σ weight² least, ridges as
    binary logarithms."""
    assert device_weights(new, [first, second]) == pytest.approx([weight, 1 - weight])


def test_a_forecast_is_the_weighted_sum_of_what_devices_say() -> None:
    known = [
        MeasuredDevice(sheet=sheet(16), overhead=3e-6, models=[Constant(-1.0), Constant(-2.0)]),
        MeasuredDevice(sheet=sheet(4), overhead=3e-6, models=[Constant(-3.0)]),
    ]
    assert known[0].margin(np.zeros((2, 1))).tolist() == [-1.5, -1.5]
    margins = np.array([[-1.5, -3.0], [-0.5, 4.0], [-100.0, -100.0]])
    scale = np.array([1e-5, 1e-5, 1e-5])
    found = forecast(family(), sheet(16), scale, known, margins)
    assert found.margin == pytest.approx([-0.9 * 1.5 - 0.3, -0.9 * 0.5 + 0.4, -12])
    assert found.overhead == pytest.approx(3e-6)
    assert found.times() == pytest.approx(3e-6 + 1e-5 * np.exp(-found.margin))
    assert found.times(np.zeros(3), 1e-6) == pytest.approx([1.1e-5] * 3)
    above = forecast(family(), sheet(16), scale, known, np.array([[2.0, 4.0]] * 3))
    assert above.margin.tolist() == [0, 0, 0], "no faster than the roofline"
    unbounded = forecast(family(roofed=False), sheet(16), scale, known, np.array([[2.0, 4.0]] * 3))
    assert unbounded.margin.tolist() == [3, 3, 3], "devices count alike"


def test_a_device_is_learnt_beneath_its_overhead() -> None:
    """The overhead is a little less than the shortest times; of a time at least a fiftieth is
    work, and rows count by the square of the part that is."""
    regressor = Kept()
    target = np.array([1e-5] * 10 + [3e-5, 1e-4])
    features = Features(names=("n",), values=np.arange(12.0)[:, None], scale=np.full(12, 2e-6))
    found = learn(family(regressor=regressor), sheet(4), features, target)
    assert found.overhead == pytest.approx(0.97e-5) and len(found.models) == 2
    assert [seed for _, _, seed, _ in regressor.given] == [0, 1]
    _, margin, _, weight = regressor.given[0]
    work_s = np.array([0.03e-5] * 10 + [2.03e-5, 9.03e-5])
    assert np.exp(margin) == pytest.approx(2e-6 / work_s)
    assert weight == pytest.approx((work_s / target) ** 2)
    unroofed = Kept()
    assert learn(family(regressor=unroofed, roofed=False), sheet(4), features, target).overhead == 0
    assert np.exp(unroofed.given[0][1]) == pytest.approx(2e-6 / target)
    work, share = work_of(np.array([1.0, 2.0]), 1.99)
    assert work == pytest.approx([0.02, 0.04]) and share == pytest.approx([0.02, 0.02])


def test_an_overhead_has_the_least_relative_error() -> None:
    """Of 1 and 3 µs: each step towards the larger one costs more at the smaller one."""
    assert likely_overhead([1e-6, 3e-6]) == pytest.approx(1e-6)
    assert likely_overhead([1e-6, 3e-6, 3.1e-6, 3e-6, 3e-6, 3e-6]) == pytest.approx(3e-6, rel=0.01)
    assert likely_overhead([1e-6, 0.0]) == 0, "one without any"


def test_where_rows_lie() -> None:
    """By how each device differs from their mean, the forecast, the operands that vary, the part of
    the time that is work, and the trend; all centred."""
    margins = np.array([[-1.0, -3.0], [-2.0, -2.0], [-1.0, -1.0]])
    scale = np.array([1.0, 4.0, 16.0])
    known = Forecast(margins=margins, margin=margins.mean(1), scale=scale, overhead=2.0)
    columns = {
        "n": np.array([1.0, 2.0, 8.0]),
        "pad": np.array([0.0, 1.0, 3.0]),
        "same": np.full(3, 7.0),
        "mode": np.array(["a", "b", "a"], dtype=object),
    }
    operands = (
        Column(name="n", meaning="elements"),
        Column(name="pad", meaning="padding", signed=True),
        Column(name="same", meaning="equal in all rows"),
        Column(name="mode", meaning="how", text=True),
    )
    features = Features(names=("waste",), values=np.array([[1.0], [2.0], [4.0]]), scale=scale)
    roofed = family(operands=operands, trend=("waste",))
    found = coordinates(roofed, columns, features, known)
    share = 1 - 2.0 / known.times()
    wanted = np.column_stack(
        [
            [1, 0, 0],
            [-1, 0, 0],
            [-2, -2, -1],
            0.35 * np.array([0, 1, 3]),
            0.35 * np.array([0, 1, 2]),
            2 * share,
            0.35 * np.array([0, 2, 4]),
            0.3 * np.array([0, 1, 2]),
        ]
    )
    np.testing.assert_allclose(found.near, wanted - wanted.mean(0))
    wanted = np.column_stack([margins, 0.2 * np.array([0, 1, 2])])
    np.testing.assert_allclose(found.linear, wanted - wanted.mean(0))
    searched = coordinates(replace(roofed, roofed=False, trend=()), columns, features, known)
    n, pad = columns["n"], columns["pad"]
    wanted = np.column_stack(
        [[1, 0, 0], [-1, 0, 0], [-2, -2, -1], n / n.std() / 2, pad / pad.std() / 2]
    )
    np.testing.assert_allclose(searched.near, wanted - wanted.mean(0))
    np.testing.assert_allclose(searched.linear, margins - margins.mean(0))
