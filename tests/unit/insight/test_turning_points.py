"""A step is told from a slope and from noise."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.records.predictor_kernels import candidates, relu
from tilewright.insight.turning_points import Sweep, change_at, turning_points
from tilewright.predict.base import Features

VALUES = [16, 20, 24, 28, 32, 36]


def costs(step: float, place: int, *, slope: float = 0.0, noise: float = 0.0) -> list[float]:
    random = np.random.default_rng(3)
    return [
        (value / 16) ** slope
        * (step if number >= place else 1.0)
        * float(np.exp(noise * random.normal()))
        for number, value in enumerate(VALUES)
    ]


def test_a_step_on_a_slope_is_found_where_it_is() -> None:
    change = change_at(VALUES, costs(1.4, 3, slope=-0.3, noise=0.01), 3)
    assert change is not None and change.clear
    assert change.value == 28
    assert change.ratio == pytest.approx(1.4, rel=0.06)


def test_a_step_elsewhere_is_named() -> None:
    change = change_at(VALUES, costs(1.4, 4, noise=0.005), 3)
    assert change is not None and change.value == 32


@pytest.mark.parametrize("slope", [0.0, -0.7, 1.0])
def test_a_slope_is_no_step(slope: float) -> None:
    change = change_at(VALUES, costs(1.0, 3, slope=slope), 3)
    assert change is not None and not change.clear
    assert change.ratio == pytest.approx(1.0)


def test_noise_is_no_step() -> None:
    random = np.random.default_rng(0)
    found = [
        change_at(VALUES, np.exp(0.05 * random.normal(size=6)).tolist(), 3) for _ in range(200)
    ]
    alarms = sum(change is not None and change.clear and change.value == 28 for change in found)
    assert alarms < 20


def test_a_step_within_what_repeats_differ_by_does_not_count() -> None:
    change = change_at(VALUES, costs(1.02, 3), 3)
    assert change is not None and not change.clear


def test_too_few_values_and_places_at_the_edge() -> None:
    assert change_at(VALUES[:4], [1.0] * 4, 2) is None
    assert change_at(VALUES, [1.0] * 6, 1) is None
    assert change_at(VALUES, [1.0] * 6, 5) is None


def test_jumps_are_where_a_cache_overflows_or_threads_idle() -> None:
    features = Features(
        names=("schedule.balance", "schedule.tile_bytes_of_l1", "op.flop"),
        values=np.array([[1.0, -1.0, 5.0], [1.0, -0.2, 6.0], [0.6, 0.1, 7.0], [0.7, 0.4, 8.0]]),
        scale=np.ones(4),
    )
    workloads = [relu(size) for size in (100, 200, 200, 400)]
    kernels = [(workload, candidates(workload, 1)[0]) for workload in workloads]
    sweep = Sweep(values=[8, 16, 17, 32], kernels=kernels)
    found = turning_points("c", sweep, features, np.array([1.0, 2.0, 6.0, 12.0]))
    assert {(point.value, point.fact) for point in found} == {
        (17, "schedule.balance"),
        (17, "schedule.tile_bytes_of_l1"),
    }
    assert all(point.ratio == pytest.approx(3.0) for point in found)
