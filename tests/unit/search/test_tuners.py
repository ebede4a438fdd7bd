"""All tuners: what each must keep, their names, and that they are worth having."""

from __future__ import annotations

from functools import cache
from statistics import median

import numpy as np
import pytest

from tilewright.core.errors import UsageError
from tilewright.kernels.knobs import split
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners.base import LateTuner, TuningTask
from tilewright.search.tuners.registry import TUNERS, replayable, tuner_factory
from tilewright.testing.landscapes import measured, part, smooth
from tilewright.testing.tuners import CHECKS

OURS = ("grid", "random", "genetic", "droplet", "neighbourhood", "xgb_knob", "xgb_rank_knob")
HILL = smooth()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", OURS)
def test_conformance(name: str, check) -> None:
    check(tuner_factory(name))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("gridsearch", "grid"),
        ("ga", "genetic"),
        ("random", "random"),
        ("xgb-rank", "xgb_rank"),
        ("xgb-rank-knob", "xgb_rank_knob"),
        ("xgb-knob", "xgb_knob"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert tuner_factory(alias) is TUNERS.named(name)


@pytest.mark.parametrize(
    "name",
    [
        "xgb", "xgb-rank", "xgb_rank", "xgb_knob", "xgb_itervar", "xgb_curve", "xgb_store",
        "xgb_rank_knob", "xgb_rank_itervar", "xgb_rank_curve", "ga", "random", "gridsearch",
        "grid", "genetic", "droplet", "neighbourhood",
    ],
)  # fmt: skip
def test_every_name_searches_a_stored_space(name: str) -> None:
    tuner = tuner_factory(name)(TuningTask(space=HILL.space))
    assert len(HILL.search(tuner, 24)) == 24


def test_an_unknown_name_has_close_matches() -> None:
    with pytest.raises(UsageError, match="no tuner is called 'dropplet'") as caught:
        tuner_factory("dropplet")
    assert "droplet" in str(caught.value.hint)


def test_what_is_worth_replaying() -> None:
    names = replayable()
    assert names[0] == "default"
    assert {"random", "genetic", "droplet", "xgb_knob", "xgb_rank_knob"} <= set(names)
    assert not {"xgb", "xgb_itervar", "xgb_rank_curve", "metaschedule"} & set(names)


@cache
def regret(name: str) -> float:
    """Median regret after 48 of 2,412 settings, over seeds."""
    return median(HILL.regret(tuner_factory(name), 48, seed=seed) for seed in range(11))


@pytest.mark.parametrize("name", [n for n in OURS if n not in ("grid", "random")])
def test_better_than_chance(name: str) -> None:
    assert regret(name) < 0.75 * regret("random")


def test_chance_is_what_it_should_be() -> None:
    """The median best rank of 48 draws of 2,412 is about 2,412 × (1 - 0.5^(1/48)) = 34."""
    times = sorted(HILL.times(dict(HILL.space.candidate(int(n)).settings)) for n in listed())
    expected = times[34] / times[0] - 1.0
    assert 0.4 * expected < regret("random") < 2.5 * expected


def listed() -> np.ndarray:
    assert HILL.space.listed is not None
    return HILL.space.listed


def test_the_grid_goes_in_order() -> None:
    tuner = tuner_factory("grid")(TuningTask(space=HILL.space))
    first, second = tuner.ask(5), tuner.ask(3)
    numbers = [HILL.space.number(candidate) for candidate in (*first, *second)]
    assert numbers == listed()[:8].tolist()


def test_a_guess_takes_nothing_out_of_the_grid() -> None:
    guess = HILL.space.candidate(int(listed()[40]))
    tuner = tuner_factory("grid")(TuningTask(space=HILL.space, guesses=(guess,)))
    asked = [*tuner.ask(4), *tuner.ask(4)]
    assert asked[0] == guess
    numbers = [HILL.space.number(candidate) for candidate in asked[1:]]
    assert numbers == listed()[:7].tolist()


@pytest.mark.parametrize("name", OURS)
def test_a_predictors_guesses_are_a_start(name: str) -> None:
    """The optimum among the guesses is measured in the first batch, and found for good."""
    every = [HILL.space.candidate(int(n)) for n in listed()]
    best = min(every, key=lambda c: HILL.times(dict(c.settings)) or 1.0)
    task = TuningTask(space=HILL.space, guesses=(every[100], best, every[7]))
    tuner = tuner_factory(name)(task)
    assert tuner.ask(8)[:3] == [every[100], best, every[7]]


def test_what_is_told_early_reaches_a_late_tuner() -> None:
    made: list[str] = []

    def make():
        made.append("now")
        return tuner_factory("grid")(TuningTask(space=HILL.space))

    late = LateTuner(make)
    late.tell([measured(HILL.space.candidate(int(listed()[0])), 1e-4)])
    assert not made
    (first,) = late.ask(1)
    assert made and HILL.space.number(first) == listed()[1]


@pytest.mark.parametrize("name", ["genetic", "droplet", "xgb_knob", "xgb_rank_knob"])
def test_a_large_space_is_searched_better_than_by_chance(name: str) -> None:
    knobs = [
        split(f"k{i}", 999, policy="candidates", candidates=[2**n for n in range(20)])
        for i in range(6)
    ]
    space = SearchSpace([part("large", knobs)])

    def found(tuner_name: str, seed: int) -> float:
        tuner = tuner_factory(tuner_name)(TuningTask(space=space, seed=seed))
        least = np.inf
        for _ in range(10):
            candidates = tuner.ask(8)
            logs = [np.log2([int(v) for _, v in c.settings]) for c in candidates]
            seconds = [1e-4 * (1.0 + float(((log - 7.0) ** 2).sum())) for log in logs]
            tuner.tell([measured(c, s) for c, s in zip(candidates, seconds, strict=True)])
            least = min(least, *seconds)
        return least

    assert median(found(name, s) for s in range(3)) < median(found("random", s) for s in range(3))
