"""What known rows that are alike say of a prediction's error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.predict.base import Facts, Family, Trees
from tilewright.predict.crossfit import cross_fit
from tilewright.predict.locally import Likeness, relative_median, strength

NUMBERS = st.lists(st.floats(0.05, 20), min_size=1, max_size=12)


@given(NUMBERS, st.integers(0, 10_000))
def test_the_factor_makes_the_expected_relative_error_least(ratios: list[float], seed: int):
    truth = np.array(ratios)
    weights = np.random.default_rng(seed).uniform(0.01, 1, len(truth))
    (factor,) = relative_median(weights[None, :], truth)

    def error(tried: float) -> float:
        return float(weights @ np.abs(tried / truth - 1))

    assert error(float(factor)) <= min(error(float(other)) for other in truth) + 1e-9


def test_two_kernels_of_equal_chance_are_answered_by_the_fast_one():
    ratios = np.array([0.25, 0.25, 4.0, 4.0])
    factors = relative_median(np.array([[1.0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]), ratios)
    np.testing.assert_allclose(factors, [0.25, 4.0, 1.0])


def test_factors_that_help_nobody_are_not_taken():
    ratios = np.full(20, 1.0)
    assert strength(np.full(20, 1.3), ratios) == 0.0
    assert strength(np.full(20, 1.3), ratios * 1.3) == 1.0


@pytest.fixture(scope="module")
def likeness() -> Likeness:
    values = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    return Likeness(values, np.where(values[:, 0] > 0, 2.0, -2.0))


def test_rows_are_alike_that_take_the_same_side(likeness: Likeness):
    (above,) = likeness.weights(np.array([[0.6, 0.1, -0.3]]))
    sides = np.random.default_rng(0).uniform(-1, 1, (200, 3))[:, 0] > 0
    assert above[sides].sum() > 5 * above[~sides].sum()
    assert above.min() >= 0
    assert above.max() <= 1


def test_known_rows_say_nothing_of_their_own_part(likeness: Likeness):
    parts = np.arange(200) % 4
    among = likeness.among_known(parts)
    assert (among[parts[:, None] == parts[None, :]] == 0).all()
    assert (among.sum(axis=1) > 0).all()
    np.testing.assert_allclose(among, among.T)


def test_where_nothing_tells_which_kernel_runs_the_fast_one_is_expected():
    rng = np.random.default_rng(3)
    place = rng.uniform(0, 1, 240)
    slow = (place > 0.5) & (rng.uniform(size=240) < 0.5)
    target = np.where(slow, 8.0, 1.0) * rng.uniform(0.98, 1.02, 240)
    family = Family(
        name="coin", operands=(), targets=(), facts=lambda *_: facts, smooth=True,
        trees=Trees(rounds=30, rate=0.2, depth=3, members=4),
    )  # fmt: skip
    facts = Facts(names=("place",), values=place[:, None], scale=np.ones(240))
    train, test = np.arange(180), np.arange(180, 240)
    fitted = cross_fit(family, facts, target, np.arange(240), (train, test))
    unclear = place[test] > 0.5
    assert np.median(fitted.predicted[unclear]) < 2, "the middle of the logarithms is 2.8"
    np.testing.assert_allclose(np.median(fitted.predicted[~unclear]), 1.0, rtol=0.1)
    held = np.abs(np.log(fitted.predicted / target[test])) <= fitted.reach
    assert held.mean() > 0.75
