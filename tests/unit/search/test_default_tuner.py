"""The default tuner and its model of log time."""

from __future__ import annotations

from statistics import median
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from scipy.integrate import quad
from scipy.optimize import check_grad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from threadpoolctl import threadpool_info, threadpool_limits

from tilewright.core.records import Candidate
from tilewright.kernels.knobs import choice, split
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners import surrogate
from tilewright.search.tuners.base import PriorTrials, TuningTask
from tilewright.search.tuners.default import DefaultTuner
from tilewright.search.tuners.surrogate import (
    GaussianProcess,
    Outlook,
    _negative_likelihood,  # pyright: ignore[reportPrivateUsage]
    expected_improvement,
)
from tilewright.search.tuners.unguided import RandomTuner
from tilewright.testing.landscapes import failed, measured, part, smooth
from tilewright.testing.tuners import CHECKS

HILL, GUIDED = smooth(), smooth(estimated=True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check) -> None:
    check(DefaultTuner)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [1, 4])
def test_the_gradient_of_the_likelihood(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (12, width))
    features[3] = features[4]
    values = np.sin(features.sum(axis=1)) + 0.1 * rng.standard_normal(12)
    squares = (features[:, None, :] - features[None, :, :]) ** 2
    at = np.append(rng.normal(0, 0.5, width + 1), np.log(0.01))
    wrong = check_grad(
        lambda p: _negative_likelihood(p, squares, values)[0],
        lambda p: _negative_likelihood(p, squares, values)[1],
        at,
        epsilon=1e-6,
    )
    assert wrong < 1e-3 * np.linalg.norm(_negative_likelihood(at, squares, values)[1])


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(0.05, 3), st.floats(-3, 3))
def test_expected_improvement_is_the_integral(mean: float, deviation: float, least: float) -> None:
    (found,) = expected_improvement(np.array([mean]), np.array([deviation]), least)
    low = mean - 12 * deviation
    wanted = (
        quad(lambda v: (least - v) * norm.pdf(v, mean, deviation), low, least, points=[mean])[0]
        if least > low
        else 0.0
    )
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_expected_improvement_likes_low_means_and_wide_spreads() -> None:
    ones = np.ones(3)
    assert (np.diff(expected_improvement(np.array([0.0, 0.5, 1.0]), ones, 0.2)) < 0).all()
    assert (np.diff(expected_improvement(ones, np.array([0.1, 1.0, 2.0]), 0.2)) > 0).all()
    assert (expected_improvement(5 * ones, 1e-3 * ones, 0.0) >= 0).all()


def test_the_model_meets_its_data_and_knows_where_it_knows_nothing() -> None:
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (30, 2))
    values = np.sin(2 * features[:, 0])
    process = GaussianProcess(2)
    process.fit(features, values)
    known = Outlook(process, features)
    np.testing.assert_allclose(known.mean, values, atol=0.02)
    far = Outlook(process, np.full((1, 2), 50.0))
    assert far.deviation[0] > 5 * known.deviation.max()
    new = rng.uniform(-0.9, 0.9, (50, 2))
    guess = Outlook(process, new).mean
    assert np.abs(guess - np.sin(2 * new[:, 0])).max() < 0.1


@pytest.mark.parametrize("fitted", [False, True])
def test_the_process_is_scikit_learns_with_the_same_parameters(fitted: bool) -> None:
    """A Matérn kernel with one length per feature, scaled, beside noise: means, deviations and
    covariances; and its likelihood, but for a constant and weak priors on lengths and noise."""
    rng = np.random.default_rng(4)
    features, asked = rng.uniform(-1, 1, (20, 3)), rng.uniform(-1.2, 1.2, (9, 3))
    values = np.sin(2 * features[:, 0]) + 0.3 * features[:, 1] + 0.1 * rng.standard_normal(20)
    process = GaussianProcess(3)
    if fitted:
        process.fit(features, values)
    else:
        process.condition(features, values)
    *logs, scale, noise = process._parameters
    assert (process.scale, process.noise) == pytest.approx((np.exp(scale), np.exp(noise) + 1e-8))
    kernel = process.scale * Matern(np.exp(logs), nu=2.5)
    other = GaussianProcessRegressor(kernel, alpha=process.noise, optimizer=None)
    other.fit(features, values)
    outlook = Outlook(process, asked)
    mean, deviation = other.predict(asked, return_std=True)
    np.testing.assert_allclose(outlook.mean, mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(outlook.deviation, deviation, rtol=1e-5)
    np.testing.assert_allclose(process.covariance(features, asked), kernel(features, asked))
    priors = sum(log**2 / 8 for log in logs) + (noise - np.log(1e-3)) ** 2 / 18
    squares = (features[:, None, :] - features[None, :, :]) ** 2
    found, _ = _negative_likelihood(process._parameters, squares, values)
    constant = 10 * np.log(2 * np.pi)
    assert found == pytest.approx(-other.log_marginal_likelihood_value_ - constant + priors)
    if fitted:
        start, _ = _negative_likelihood(GaussianProcess(3)._parameters, squares, values)
        assert found < start - 1, "fitting makes the data more likely"
        assert logs[0] < min(logs[1:]), "the feature that matters has the shortest length"


def test_a_process_without_a_factor_is_unlikely() -> None:
    """Equal rows of so large a variance that rounding swallows the noise have no factor: they are
    told as very unlikely, and no slope leads on."""
    at = np.array([0.0, 60.0, -60.0])
    found, slope = _negative_likelihood(at, np.zeros((3, 3, 1)), np.ones(3))
    assert found == 1e10 and not slope.any()


def test_equal_rows_and_equal_values_break_nothing() -> None:
    process = GaussianProcess(3)
    process.fit(np.ones((6, 3)), np.zeros(6))
    outlook = Outlook(process, np.zeros((2, 3)))
    assert np.isfinite(outlook.mean).all() and np.isfinite(outlook.deviation).all()


def test_the_model_keeps_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else small matrices take the cores from what is measured, and the model thirty times as long
    where several processes do so."""
    within: list[set[int]] = []

    def watched(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments, **named):
            within.append(threads())
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    def threads() -> set[int]:
        return {blas["num_threads"] for blas in threadpool_info() if blas["user_api"] == "blas"}

    watched(surrogate, "_negative_likelihood")
    watched(linalg, "cholesky")
    watched(linalg, "solve_triangular")
    features = np.random.default_rng(0).uniform(-1, 1, (12, 2))
    process = GaussianProcess(2)
    with threadpool_limits(limits=2, user_api="blas"):
        process.fit(features, features[:, 0])
        Outlook(process, features).assume(3)
        after = threads()
    assert len(within) > 3 and set[int].union(*within) == {1}
    assert after == {2}


def test_assuming_the_mean_is_conditioning_on_it() -> None:
    rng = np.random.default_rng(2)
    features = rng.uniform(-1, 1, (40, 2))
    values = np.sin(2 * features[:, 0]) + features[:, 1]
    process = GaussianProcess(2)
    process.fit(features[:12], values[:12])
    outlook, assumed = Outlook(process, features), features[:12]
    expected = values[:12]
    for row in (30, 20, 35):
        outlook.assume(row)
        assumed = np.vstack([assumed, features[row]])
        expected = np.append(expected, outlook.mean[row])
    process.condition(assumed, expected)
    again = Outlook(process, features)
    np.testing.assert_allclose(outlook.mean, again.mean, atol=1e-5)
    np.testing.assert_allclose(outlook.deviation, again.deviation, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_without_estimates_the_first_batch_is_balanced(seed: int) -> None:
    """Each of eight values of either knob is used once or twice by the first eight."""
    knobs = [split(name, 128, policy="power2") for name in ("a", "b")]
    asked = DefaultTuner(TuningTask(space=SearchSpace([part("even", knobs)]), seed=seed)).ask(8)
    for name in ("a", "b"):
        values = [candidate.setting(name) for candidate in asked]
        assert max(values.count(value) for value in values) <= 2


def test_estimates_lead_the_first_batch() -> None:
    estimates = GUIDED.space.estimates_s(GUIDED.space.listed)
    assert estimates is not None
    asked = DefaultTuner(TuningTask(space=GUIDED.space)).ask(8)
    numbers = [GUIDED.space.number(candidate) for candidate in asked]
    found = GUIDED.space.estimates_s([n for n in numbers if n is not None])
    assert found is not None and found.min() == estimates.min()
    assert found.max() <= np.quantile(estimates, 0.05)


def test_the_model_beats_chance() -> None:
    for hill in (HILL, GUIDED):
        ours = median(hill.regret(DefaultTuner, 40, seed=seed) for seed in range(3))
        chance = median(hill.regret(RandomTuner, 40, seed=seed) for seed in range(7))
        assert ours < 0.5 * chance


def test_wrong_estimates_are_overcome() -> None:
    knobs = [split("a", 4096, policy="power2"), split("b", 4096, policy="power2")]

    def log(s, name: str) -> float:
        return float(np.log2(int(s[name])))

    misled = part("misled", knobs, estimate=lambda s: 1e-4 * 2 ** (log(s, "a") + log(s, "b")))
    tuner = DefaultTuner(TuningTask(space=SearchSpace([misled])))
    best = np.inf
    for _ in range(5):
        asked = tuner.ask(8)
        seconds = [1e-4 * (1 + (log(c_, "a") - 9) ** 2 + (log(c_, "b") - 9) ** 2)
                   for c_ in (dict(c.settings) for c in asked)]  # fmt: skip
        tuner.tell([measured(c, s) for c, s in zip(asked, seconds, strict=True)])
        best = min(best, *seconds)
    assert best <= 3.0e-4


def test_failures_drive_it_away() -> None:
    """Half of the space gives no time; the later batches hold few of that half."""
    knobs = [choice("bad", (False, True)), split("a", 4096, policy="power2"),
             split("b", 4096, policy="power2")]  # fmt: skip
    tuner = DefaultTuner(TuningTask(space=SearchSpace([part("half", knobs)]), seed=3))
    late: list[Candidate] = []

    def away(candidate: Candidate, name: str) -> float:
        return abs(float(np.log2(int(candidate.setting(name)))) - 5)

    for number in range(8):
        asked = tuner.ask(8)
        late += asked if number >= 4 else []
        tuner.tell(
            [
                failed(c)
                if c.setting("bad")
                else measured(c, 1e-4 * (1 + away(c, "a") + away(c, "b")))
                for c in asked
            ]
        )
    assert sum(bool(c.setting("bad")) for c in late) < 0.4 * len(late)


def told(space: SearchSpace, wanted, count: int = 60) -> PriorTrials:
    assert space.listed is not None
    numbers = [int(n) for n in space.listed[:: max(1, len(space.listed) // count)]]
    times = np.array([wanted(dict(space.candidate(n).settings)) for n in numbers])
    return PriorTrials(features=space.features(numbers), relative=times / times.min())


def test_prior_trials_move_the_first_guesses() -> None:
    """Without estimates of its own the first batch is drawn evenly; prior_trials lead it."""

    def slow(s) -> float:
        return 1.0 if s["order"] == "inner" else 3.0

    prior = told(HILL.space, slow, 240)
    moved = DefaultTuner(TuningTask(space=HILL.space, prior_trials=(prior,))).ask(8)
    assert all(candidate.setting("order") == "inner" for candidate in moved)
    plain = DefaultTuner(TuningTask(space=HILL.space)).ask(8)
    assert not all(candidate.setting("order") == "inner" for candidate in plain)


def test_a_good_prior_saves_measurements_and_a_bad_one_is_overcome() -> None:
    def after(prior_trials: tuple[PriorTrials, ...], count: int) -> float:
        found = []
        for seed in range(3):
            tuner = DefaultTuner(TuningTask(space=HILL.space, seed=seed, prior_trials=prior_trials))
            outcomes = HILL.search(tuner, count)
            found.append(min(o.latency_s for o in outcomes) / HILL.best_s - 1.0)
        return median(found)

    good = told(HILL.space, lambda s: HILL.times(s) or 1.0, 240)
    bad = told(HILL.space, lambda s: 1e-8 / (HILL.times(s) or 1.0), 240)
    assert after((good,), 8) < after((), 8)
    chance = median(HILL.regret(RandomTuner, 48, seed=seed) for seed in range(11))
    assert after((bad,), 48) < chance
