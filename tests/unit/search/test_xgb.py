"""The boosted trees, the annealing, and the family of tuners made of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from tilewright.core.records import Candidate
from tilewright.kernels.knobs import split
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners.base import PriorTrials, TuningTask
from tilewright.search.tuners.registry import tuner_factory
from tilewright.search.tuners.walking import anneal
from tilewright.search.tuners.xgb import BoostedTrees, XgbTuner
from tilewright.testing.landscapes import failed, measured, part, smooth

HILL = smooth()


def seconds(candidate: Candidate) -> float:
    value = HILL.times(dict(candidate.settings))
    assert value is not None
    return value


@cache
def every() -> list[Candidate]:
    assert HILL.space.listed is not None
    return [HILL.space.candidate(int(number)) for number in HILL.space.listed]


@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_trees_learn_an_order(objective) -> None:
    rng = np.random.default_rng(0)
    features = rng.random((120, 4))
    goodness = 1.0 / (1.0 + features[:, 0] + 0.5 * features[:, 2])
    model = BoostedTrees(objective, 0)
    assert (model.predict(features) == 0).all()
    model.fit([(features[:80], goodness[:80], 1.0)])
    predicted, truth = model.predict(features[80:]), goodness[80:]
    pairs = [(i, j) for i in range(40) for j in range(40) if truth[i] > truth[j]]
    right = np.mean([predicted[i] > predicted[j] for i, j in pairs])
    assert right > 0.85


@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_weights_decide_between_groups(objective) -> None:
    features = np.linspace(0, 1, 40)[:, None]
    up, down = features[:, 0], 1.0 - features[:, 0]
    model = BoostedTrees(objective, 0)
    model.fit([(features, up, 1.0), (features, down, 0.05)])
    predicted = model.predict(np.array([[0.1], [0.9]]))
    assert predicted[1] > predicted[0]
    model.fit([(features, up, 0.05), (features, down, 1.0)])
    predicted = model.predict(np.array([[0.1], [0.9]]))
    assert predicted[1] < predicted[0]


def test_nothing_to_rank_is_nothing_learnt() -> None:
    model = BoostedTrees("rank", 0)
    model.fit([(np.eye(3), np.zeros(3), 1.0)])
    assert (model.predict(np.eye(3)) == 0).all()
    model.fit([])
    assert (model.predict(np.eye(3)) == 0).all()


@pytest.mark.parametrize("shift", [-1e3, 0.0, 1e3])
def test_annealing_does_not_mind_the_sign_of_scores(shift: float) -> None:
    """AutoTVM dropped whatever scored below zero, which is half of all rank margins."""
    knobs = [split(f"k{i}", 99, policy="candidates", candidates=range(1, 51)) for i in range(4)]
    space = SearchSpace([part("large", knobs, filters=[lambda s: int(s["k0"]) % 2 == 0])])
    assert space.listed is None

    def score(numbers) -> np.ndarray:
        digits = space.digits(numbers)[:, 1:]
        return shift - np.abs(digits - 31.0).sum(axis=1)

    start = space.sample(np.random.default_rng(3), 4)
    numbers, scores = anneal(space, score, start, np.random.default_rng(0))
    assert len(set(numbers.tolist())) == len(numbers) > 96
    assert all(space.valid(int(number)) for number in numbers[:50])
    assert (np.diff(scores) <= 0).all() and set(start) <= set(numbers.tolist())
    drawn = score(np.array(space.sample(np.random.default_rng(1), len(numbers))))
    assert scores[0] - shift > -15 > drawn.max() - shift - 15
    assert scores[0] > drawn.max()


def test_one_measurement_of_each_kind_of_trouble() -> None:
    tuner = tuner_factory("xgb_rank_knob")(TuningTask(space=HILL.space))
    first = tuner.ask(16)
    tuner.tell([failed(c) for c in first[:15]])
    tuner.tell([measured(first[15], 1e-4)])
    assert len(tuner.ask(8)) == 8


class FakeCompiler:
    """Features of kernels from the settings; some kernels do not lower."""

    def __init__(self, broken: str = "") -> None:
        self.asked: list[Candidate] = []
        self.kinds: set[str] = set()
        self.broken = broken

    def __call__(self, kind: str, candidates: Sequence[Candidate]) -> np.ndarray:
        self.asked += candidates
        self.kinds.add(kind)
        rows = np.array([[1.0 / seconds(c), 1.0, 2.0] for c in candidates])
        rows[[c.setting("order") == self.broken for c in candidates]] = np.nan
        return rows


@pytest.mark.parametrize("kind", ["itervar", "curve", "store"])
def test_features_of_lowered_kernels_decide_among_the_shortlist(kind: str) -> None:
    compiler = FakeCompiler()
    tuner = tuner_factory(f"xgb_{kind}")(TuningTask(space=HILL.space, featurizer=compiler))
    assert isinstance(tuner, XgbTuner) and tuner.features == kind and not tuner.problem
    found = HILL.search(tuner, 48)
    assert compiler.kinds == {kind}
    # each kernel is lowered once, and far from all are
    assert len(compiler.asked) == len(set(compiler.asked)) < 48 + 5 * 32
    knob = [HILL.regret(lambda t: tuner_factory("xgb_knob")(t), 48, seed=s) for s in range(5)]
    times = [seconds(outcome.candidate) for outcome in found]
    assert min(times) / HILL.best_s - 1.0 <= max(knob)


def test_kernels_that_do_not_lower_are_passed_over() -> None:
    compiler = FakeCompiler(broken="inner")
    tuner = tuner_factory("xgb_itervar")(TuningTask(space=HILL.space, featurizer=compiler))
    first = tuner.ask(16)
    tuner.tell([HILL.outcome(candidate) for candidate in first])
    later: list[Candidate] = []
    for _ in range(5):
        new = tuner.ask(8)
        later += new
        tuner.tell([HILL.outcome(candidate) for candidate in new])
    assert len(later) == 40
    # random ones remain, a tenth of each batch
    assert sum(c.setting("order") == "inner" for c in later) < 10


def test_without_a_compiler_it_says_what_it_does() -> None:
    for name in ("xgb", "xgb_curve", "xgb_rank_itervar"):
        tuner = tuner_factory(name)(TuningTask(space=HILL.space))
        assert isinstance(tuner, XgbTuner)
        assert tuner.features == "knob" and "no compiler" in tuner.problem
    knob = tuner_factory("xgb_knob")(TuningTask(space=HILL.space))
    assert isinstance(knob, XgbTuner) and not knob.problem


def prior(count: int, *, upside_down: bool = False) -> PriorTrials:
    """What measuring `count` settings of a task with the same landscape gave."""
    chosen = [every()[i] for i in np.random.default_rng(5).permutation(len(every()))[:count]]
    times = np.array([seconds(candidate) for candidate in chosen])
    relative = times / times.min()
    rows = [HILL.space.encode(candidate) for candidate in chosen]
    return PriorTrials(
        features=np.array(rows), relative=relative.max() / relative if upside_down else relative
    )


@pytest.mark.parametrize("name", ["xgb_knob", "xgb_rank_knob"])
@pytest.mark.parametrize("count", [30, 400])
def test_similar_tasks_give_a_start_however_few_their_records(name: str, count: int) -> None:
    """AutoTVM ignored fewer than 500 records."""

    def first_batch(prior_trials) -> float:
        found: list[float] = []
        for seed in range(5):
            task = TuningTask(space=HILL.space, seed=seed, prior_trials=prior_trials)
            found += [seconds(candidate) for candidate in tuner_factory(name)(task).ask(8)]
        return float(np.median(found))

    assert first_batch((prior(count),)) < 0.7 * first_batch(())


@pytest.mark.parametrize("name", ["xgb_knob", "xgb_rank_knob"])
def test_misleading_tasks_are_forgotten(name: str) -> None:
    wrong = (prior(300, upside_down=True),)

    def regret(seed: int) -> float:
        tuner = tuner_factory(name)(TuningTask(space=HILL.space, seed=seed, prior_trials=wrong))
        found = HILL.search(tuner, 96)
        return min(seconds(outcome.candidate) for outcome in found) / HILL.best_s - 1.0

    assert np.median([regret(seed) for seed in range(3)]) < 0.2


def test_the_library_is_loaded_late() -> None:
    module = "tilewright.search.tuners.registry"
    code = f"import sys, {module} as t; t.TUNERS.usable(); sys.exit('xgboost' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
