"""A forest answers with the least expected relative error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor

from tilewright.predict.base import Features
from tilewright.predict.family_models import TrainingSet, fit_model
from tilewright.predict.regressors import Forest, Trees, relative_median

NUMBERS = st.lists(st.floats(0.05, 20), min_size=1, max_size=12)


@given(NUMBERS, st.integers(0, 10_000))
def test_the_median_makes_the_expected_relative_error_least(ratios: list[float], seed: int):
    truth = np.array(ratios)
    weights = np.random.default_rng(seed).uniform(0.01, 1, len(truth))
    (found,) = relative_median(weights[None, :], truth)

    def error(tried: float) -> float:
        return float(weights @ np.abs(tried / truth - 1))

    assert error(float(found)) <= min(error(float(other)) for other in truth) + 1e-9


def test_two_kernels_of_equal_chance_are_answered_by_the_fast_one():
    truths = np.array([0.25, 0.25, 4.0, 4.0])
    found = relative_median(np.array([[1.0, 1, 1, 1], [0, 0, 1, 1]]), truths)
    np.testing.assert_allclose(found, [0.25, 4.0])


def test_where_nothing_tells_which_kernel_runs_the_fast_one_is_expected():
    rng = np.random.default_rng(3)
    place = rng.uniform(0, 1, 240)
    slow = (place > 0.5) & (rng.uniform(size=240) < 0.5)
    target = np.where(slow, 8.0, 1.0) * rng.uniform(0.98, 1.02, 240)
    data = TrainingSet(
        family="coin",
        features=Features(names=("place",), values=place[:, None], scale=np.ones(240)),
        target=target,
        configurations=np.arange(240),
        groups=np.full(240, "coin", dtype=object),
    )
    train, test = np.arange(180), np.arange(180, 240)
    model = fit_model(data.part(train), Forest(members=4))
    said = model.predict(data.features.part(test))
    unclear = place[test] > 0.5
    assert np.median(said.predicted[unclear]) < 2, "the middle of the logarithms is 2.8"
    np.testing.assert_allclose(np.median(said.predicted[~unclear]), 1.0, rtol=0.1)
    held = np.abs(np.log(said.predicted / target[test])) <= said.reach
    assert held.mean() > 0.75


def facts(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Three features of rows, and margins that follow the first."""
    rng = np.random.default_rng(5)
    values = rng.uniform(0, 1, (rows, 3))
    return values, np.sin(6 * values[:, 0]) + 0.1 * rng.standard_normal(rows)


def test_a_forest_is_a_hundred_of_scikit_learns_trees_asked_for_their_leaves():
    """Each known row counts by how many of the trees have it in the asked row's leaf."""
    values, margin = facts()
    asked = np.random.default_rng(6).uniform(0, 1, (7, 3))
    for seed in (0, 3):
        fitted = Forest().fit(values, margin, seed)
        trees = ExtraTreesRegressor(n_estimators=100, min_samples_leaf=2, random_state=seed)
        trees.fit(values, margin)
        known, found = trees.apply(values), trees.apply(asked)
        np.testing.assert_array_equal(fitted.leaves, known)
        times = np.exp(-margin)
        for row, answer in zip(found, fitted.margin(asked), strict=True):
            alike = (known == row).sum(axis=1)
            counts = alike / times
            order = np.argsort(times)
            middle = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
            assert np.exp(-answer) == pytest.approx(times[order][middle])
        assert min(np.unique(leaves, return_counts=True)[1].min() for leaves in known.T) >= 2


def test_rows_of_a_forest_count_by_their_weight():
    """Two kinds of rows that no feature tells apart: the forest learns where to cut by the
    weighted ones."""
    values, margin = facts()
    weight = np.where(values[:, 1] > 0.5, 1.0, 1e-9)
    plain, weighted = Forest().fit(values, margin, 0), Forest().fit(values, margin, 0, weight)
    assert (plain.margin(values) != weighted.margin(values)).any()
    again = Forest(threads=2).fit(values, margin, 0)
    np.testing.assert_array_equal(again.margin(values), plain.margin(values))


def test_trees_are_of_the_depth_and_number_that_was_asked_for():
    values, margin = facts()
    fitted = Trees(rounds=7, depth=2, least_weight=1.0).fit(values, margin, 0)
    trees = fitted.booster.get_dump()
    assert len(trees) == 7
    assert all("leaf" in tree and tree.count("leaf") <= 4 for tree in trees)
    stump = Trees(rounds=1, depth=1, least_weight=1.0).fit(values, margin, 0)
    assert len(set(stump.margin(values))) == 2


def test_before_any_tree_the_answer_is_the_median():
    values, margin = facts()
    fitted = Trees(rounds=1, rate=1e-9).fit(values, margin, 0)
    np.testing.assert_allclose(fitted.margin(values), np.median(margin), atol=1e-6)


def test_a_time_too_long_counts_more_than_one_too_short():
    """Of equally many rows that take e^-0.5 and e^0.5 as long, the answer is nearer the short ones,
    as with relative errors; far apart, both count the same for every further step."""
    margin = np.where(np.arange(400) % 2 == 0, 0.5, -0.5)
    values = np.zeros((400, 1))
    fitted = Trees(rounds=200, rate=0.2, depth=1, least_weight=0.0).fit(values, margin, 0)
    (answer,) = set(fitted.margin(values))
    assert 0.3 < answer < 0.5
    weight = np.where(margin < 0, 50.0, 1.0)
    fitted = Trees(rounds=200, rate=0.2, depth=1, least_weight=0.0).fit(values, margin, 0, weight)
    assert (fitted.margin(values) < -0.4).all(), "fifty times the weight"
