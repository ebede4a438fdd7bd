"""A forest answers with the least expected relative error."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.predict.base import Features
from tilewright.predict.family_models import TrainingSet, fit_model
from tilewright.predict.regressors import Forest, relative_median

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
