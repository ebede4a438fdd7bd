"""Which rows of a new device are measured, and what they change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.predict.base import Family, Features, nominal
from tilewright.predict.families import FAMILIES
from tilewright.predict.transfer import Forecast, calibrated, choose, coordinates

OVERHEAD_S = 2e-5
FACTS = Features(names=(), values=np.empty((0, 0)), scale=np.empty(0))
"""Of families whose misses follow none."""


def forecast(rows: int, distinct: int, seed: int = 0) -> tuple[dict[str, np.ndarray], Forecast]:
    """Softmaxes of a few different shapes, and what two known devices say of them."""
    random = np.random.default_rng(seed)
    which = random.integers(0, distinct, rows)
    b, h = (random.integers(64, 8192, distinct).astype(float)[which] for _ in "bh")
    margins = -random.uniform(0.2, 2, (distinct, 2))[which]
    scale = 8 * b * h / 3e11
    known = Forecast(margins=margins, margin=margins.mean(1), scale=scale, overhead=OVERHEAD_S)
    return {"b": b, "h": h}, known


@given(st.integers(30, 200), st.integers(1, 200), st.integers(5, 40), st.integers(0, 5))
@settings(deadline=None, max_examples=30)
def test_samples_are_different_rows(rows: int, distinct: int, count: int, seed: int) -> None:
    columns, known = forecast(rows, distinct)
    inputs = coordinates(FAMILIES["softmax"], columns, FACTS, known)
    chosen = choose(FAMILIES["softmax"], inputs, known, count, seed)
    assert 1 <= len(chosen) <= count
    assert len(set(chosen.tolist())) == len(chosen)
    assert chosen.min() >= 0 and chosen.max() < rows
    assert np.array_equal(chosen, choose(FAMILIES["softmax"], inputs, known, count, seed))


def test_samples_lie_in_every_cluster() -> None:
    columns, known = forecast(300, 300)
    inputs = coordinates(FAMILIES["softmax"], columns, FACTS, known)
    far = inputs.near.copy()
    far[:, 0] += 100 * (np.arange(300) % 8)
    spread = type(inputs)(near=far, linear=inputs.linear)
    assert set(choose(FAMILIES["softmax"], spread, known, 12, 0) % 8) == set(range(8))


def test_samples_correct_a_device_that_is_slower_than_forecast() -> None:
    columns, known = forecast(400, 400)
    target = OVERHEAD_S / 2 + known.scale * np.exp(-known.margin) * 3
    inputs = coordinates(FAMILIES["softmax"], columns, FACTS, known)
    sampled = choose(FAMILIES["softmax"], inputs, known, 30, 0)
    predicted, reach = calibrated(FAMILIES["softmax"], inputs, known, sampled, target)
    assert np.mean(np.abs(known.times() / target - 1)) > 0.3
    assert np.mean(np.abs(predicted / target - 1)) < 0.03
    assert 0 < reach < 0.2


def test_samples_that_all_failed_teach_nothing() -> None:
    columns, known = forecast(50, 50)
    inputs = coordinates(FAMILIES["softmax"], columns, FACTS, known)
    predicted, reach = calibrated(
        FAMILIES["softmax"], inputs, known, np.array([3, 4]), np.full(50, float("nan"))
    )
    assert predicted == pytest.approx(known.times())
    assert reach == float("inf")


def products(rows: int) -> tuple[dict[str, np.ndarray], Features, Forecast]:
    """Batched products, their facts on a nominal device, and what two known devices say."""
    random = np.random.default_rng(3)
    columns = {name: random.integers(8, 600, rows).astype(float) for name in "bmnk"}
    features = FAMILIES["bmm"].features(columns, nominal("new"))
    margins = -random.uniform(0.5, 0.9, (rows, 2))
    known = Forecast(
        margins=margins, margin=margins.mean(1), scale=features.scale, overhead=OVERHEAD_S
    )
    return columns, features, known


def error_after_samples(family: Family, target: np.ndarray) -> float:
    """The mean error of 500 products after 40 samples."""
    columns, features, known = products(len(target))
    inputs = coordinates(family, columns, features, known)
    sampled = choose(family, inputs, known, 40, 0)
    predicted, _ = calibrated(family, inputs, known, sampled, target)
    return float(np.mean(np.abs(predicted / target - 1)))


def test_samples_tell_which_tiles_a_device_uses() -> None:
    _, features, known = products(500)
    waste = features.values[:, features.names.index("waste_128x128")]
    target = OVERHEAD_S + known.scale * np.exp(-known.margin) * waste
    with_tiles = error_after_samples(FAMILIES["bmm"], target)
    assert with_tiles < 0.08
    assert with_tiles < 0.6 * error_after_samples(replace(FAMILIES["bmm"], trend=()), target)


def test_samples_go_where_work_counts() -> None:
    columns, known = forecast(400, 400)
    scale = np.where(np.arange(400) < 300, 1e-4 * OVERHEAD_S, known.scale)
    known = replace(known, scale=scale)
    inputs = coordinates(FAMILIES["softmax"], columns, FACTS, known)
    sampled = choose(FAMILIES["softmax"], inputs, known, 22, 0)
    assert (sampled >= 300).sum() >= 18


def test_half_of_the_samples_of_a_search_are_promising() -> None:
    random = np.random.default_rng(1)
    margins = random.standard_normal((1000, 2))
    known = Forecast(margins=margins, margin=margins.mean(1), scale=np.ones(1000), overhead=0.0)
    columns = {
        column.name: random.integers(1, 9, 1000).astype(float)
        for column in FAMILIES["knobs"].operands
    }
    sampled = choose(
        FAMILIES["knobs"], coordinates(FAMILIES["knobs"], columns, FACTS, known), known, 40, 0
    )
    assert len(sampled) >= 35
    best = {int(row) for view in (known.margin, *margins.T) for row in np.argsort(-view)[:50]}
    promising = len(best & set(sampled.tolist()))
    assert len(sampled) / 2 - 2 <= promising <= len(sampled) * 0.75
