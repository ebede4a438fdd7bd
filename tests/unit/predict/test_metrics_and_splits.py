"""Errors, intervals and splits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helpers.records.predictor_kernels import score
from tilewright.predict.base import (
    configuration_groups,
    conformal_reach,
    folds_of,
    rank_correlation,
)

positive = st.floats(1e-6, 1e6)


def test_errors_by_hand() -> None:
    judged = score(np.array([1.0, 1.1, 2.0, 4.0]), np.array([1.0, 1.0, 1.0, 8.0]))
    assert judged.n == 4
    assert judged.mape == pytest.approx((0 + 0.1 + 1 + 0.5) / 4)
    assert judged.median_ape == pytest.approx(0.3)
    assert judged.within_10 in (0.25, 0.5)
    assert judged.coverage_90 == 0


@given(arrays.arrays(float, st.integers(2, 30), elements=positive), st.floats(0.1, 10))
def test_errors_keep_their_promises(measured: np.ndarray, factor: float) -> None:
    exact = score(measured, measured, np.zeros(len(measured)))
    assert exact.mape == 0 and exact.within_10 == 1 and exact.coverage_90 == 1
    off = score(measured * factor, measured)
    assert off.mape == pytest.approx(abs(factor - 1), abs=1e-9)
    assert off.median_ape <= off.p90_ape + 1e-12
    if len(np.unique(measured * factor)) == len(np.unique(measured)) > 1:
        assert off.spearman == pytest.approx(1)


@given(arrays.arrays(float, 12, elements=positive), arrays.arrays(float, 12, elements=positive))
def test_rank_correlation_knows_no_scale(first: np.ndarray, second: np.ndarray) -> None:
    found = rank_correlation(first, second)
    if found is None:
        assert np.ptp(first) == 0 or np.ptp(second) == 0
        return
    assert -1 - 1e-9 <= found <= 1 + 1e-9
    assert found == pytest.approx(rank_correlation(second, first))
    assert rank_correlation(-first, second) == pytest.approx(-found)


def test_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="nothing"):
        score(np.empty(0), np.empty(0))


def test_reach_of_few_residuals_is_unknown() -> None:
    assert math.isinf(conformal_reach(np.zeros(8)))
    assert conformal_reach(np.arange(9.0)) == 8
    assert conformal_reach(-np.arange(99.0)) == 89


@given(st.integers(10, 400), st.integers(0, 99))
def test_reach_covers_at_least_its_share_of_what_it_saw(count: int, seed: int) -> None:
    residuals = np.random.default_rng(seed).standard_normal(count)
    assert np.mean(np.abs(residuals) <= conformal_reach(residuals)) >= 0.9


@given(
    arrays.arrays(np.int64, st.tuples(st.integers(5, 60), st.just(3)), elements=st.integers(0, 2)),
    st.integers(2, 6),
    st.integers(0, 9),
)
def test_equal_configurations_share_a_fold(table: np.ndarray, folds: int, seed: int) -> None:
    columns = {name: table[:, place].astype(float) for place, name in enumerate("abc")}
    groups = configuration_groups(columns, "abc")
    assigned = folds_of(groups, folds, seed)
    by_row: dict[tuple[int, ...], int] = {}
    for row, fold, group in zip(table.tolist(), assigned, groups, strict=True):
        assert by_row.setdefault(tuple(row), int(fold)) == fold
        assert 0 <= fold < folds
        assert 0 <= group < len(np.unique(table, axis=0))
    assert np.array_equal(assigned, folds_of(groups, folds, seed))
    fold_of_group = {int(group): int(fold) for group, fold in zip(groups, assigned, strict=True)}
    sizes = np.bincount(list(fold_of_group.values()), minlength=folds)
    assert sizes.max() - sizes.min() <= 1
