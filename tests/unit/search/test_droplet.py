"""Coordinate descent: where it starts, when it moves, what it does at the bottom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from tilewright.core.records import Candidate
from tilewright.kernels.knobs import Knob, choice, split
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.droplet import (
    DropletTuner,
    _faster,  # pyright: ignore[reportPrivateUsage]
)
from tilewright.testing.landscapes import failed, measured, part, smooth

LINE = SearchSpace([part("line", [split("x", 40, policy="candidates", candidates=range(1, 41))])])
PLANE = SearchSpace(
    [part("plane", [Knob(name=name, values=tuple(range(20)), kind="split") for name in "ab"])]
)


def at(x: int):
    return LINE.candidate(x - 1)


def asked(tuner: DropletTuner, count: int) -> list[int]:
    return [int(c.setting("x")) for c in tuner.ask(count)]


def test_it_starts_from_the_best_known() -> None:
    tuner = DropletTuner(TuningTask(space=LINE))
    tuner.tell([measured(at(5), 9e-4), measured(at(20), 1e-4), measured(at(35), 5e-4)])
    assert set(asked(tuner, 2)) == {19, 21}


def test_it_starts_from_the_best_estimate() -> None:
    knob = split("x", 40, policy="candidates", candidates=range(1, 41))
    space = SearchSpace([part("line", [knob], estimate=lambda s: 1.0 + abs(int(s["x"]) - 12))])
    tuner = DropletTuner(TuningTask(space=space))
    first = [int(c.setting("x")) for c in tuner.ask(3)]
    assert first[0] == 12 and set(first[1:]) == {11, 13}


def test_it_goes_on_in_the_direction_that_helped() -> None:
    tuner = DropletTuner(TuningTask(space=LINE))
    tuner.tell([measured(at(20), 5e-4), measured(at(19), 6e-4), measured(at(21), 4e-4)])
    asked(tuner, 1)
    assert DropletTuner(TuningTask(space=LINE)).ask(1) != []
    again = DropletTuner(TuningTask(space=LINE))
    again.tell([measured(at(20), 5e-4)])
    assert set(asked(again, 2)) == {19, 21}
    again.tell([measured(at(19), 6e-4), measured(at(21), 4e-4)])
    assert asked(again, 1) == [22]


def test_a_step_that_is_only_luck_is_not_taken() -> None:
    noisy = (1.0e-4, 1.4e-4, 0.6e-4, 1.2e-4, 0.8e-4)
    for samples, moves in ((tuple(0.97 * s for s in noisy), False), ((0.5e-4,) * 5, True)):
        tuner = DropletTuner(TuningTask(space=LINE))
        tuner.tell([measured(at(20), *noisy)])
        assert set(asked(tuner, 2)) == {19, 21}
        tuner.tell([measured(at(19), 2e-4, 2.1e-4), measured(at(21), *samples)])
        # next to the old centre, only the ring two steps away is left
        assert asked(tuner, 1) == [22] if moves else set(asked(tuner, 2)) == {18, 22}


def test_what_helped_in_each_knob_is_tried_together() -> None:
    tuner = DropletTuner(TuningTask(space=PLANE))
    centre = PLANE.candidate(10 * 20 + 10)

    def seconds(candidate) -> float:
        a, b = (int(candidate.setting(name)) for name in "ab")
        return 1e-4 * (1.0 + abs(a - 16) + abs(b - 4))

    tuner.tell([measured(centre, seconds(centre))])
    around = tuner.ask(4)
    tuner.tell([measured(c, seconds(c)) for c in around])
    joint = tuner.ask(1)[0]
    assert (joint.setting("a"), joint.setting("b")) == (11, 9)


def test_at_the_bottom_it_starts_anew() -> None:
    tuner = DropletTuner(TuningTask(space=LINE))
    tuner.tell([measured(at(20), 1e-4)])
    near = [asked(tuner, 2) for _ in range(3)]
    tuner.tell([measured(at(x), 3e-4) for pair in near for x in pair])
    assert {x for pair in near for x in pair} == {17, 18, 19, 21, 22, 23}
    anew = asked(tuner, 4)
    assert len(anew) == 4 and not {20} & set(anew)
    # the descent goes on from the best of the new starts, though the first bottom was deeper
    slow = {x: 1e-3 + 1e-5 * abs(x - 33) for x in range(1, 41)}
    tuner.tell([measured(at(x), slow[x]) for x in anew])
    best = min(anew, key=lambda x: slow[x])
    assert all(abs(x - best) <= 3 for x in asked(tuner, 1))


def test_failures_around_a_start_do_not_stop_it() -> None:
    hill = smooth()
    tuner = DropletTuner(TuningTask(space=hill.space))
    for _ in range(6):
        candidates = tuner.ask(8)
        assert len(candidates) == 8
        tuner.tell([failed(candidate) for candidate in candidates])
    found = hill.search(tuner, 80)
    assert len(found) == 80
    times = [o.latency_s for o in found if hasattr(o, "samples_s")]
    assert min(times) < 1.2 * hill.best_s
    assert np.isfinite(times).all()


SAMPLES = st.lists(st.floats(1e-5, 1e-3), min_size=2, max_size=7)


@given(SAMPLES, SAMPLES)
def test_faster_is_welchs_test_on_one_side(new: list[float], old: list[float]) -> None:
    assume(np.ptp(new) > 1e-6 and np.ptp(old) > 1e-6)
    chance = ttest_ind(old, new, equal_var=False, alternative="greater").pvalue
    if abs(chance - 0.05) > 1e-6:
        assert _faster(new, old) == (chance < 0.05)


def test_single_and_equal_samples_are_just_compared() -> None:
    for new, old in (
        ([1.0], [2.0]),
        ([1.0], [2.0, 9.0]),
        ([1.0, 9.0], [6.0]),
        ([1.0] * 3, [2.0] * 3),
    ):
        assert _faster(new, old) and not _faster(old, new)
    assert not _faster([1.0], [1.0]) and not _faster([1.0] * 2, [1.0] * 2)


def pair(candidate: Candidate) -> tuple[int, int]:
    return int(candidate.setting("a")), int(candidate.setting("b"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_step_that_helped_is_made_again_before_others(seed: int, step: tuple[int, int]) -> None:
    """Of two knobs, whichever of the four steps was the one; then the nearer settings come before
    the farther ones."""
    tuner = DropletTuner(TuningTask(space=PLANE, seed=seed))
    tuner.tell([measured(PLANE.candidate(10 * 20 + 10), 5e-4)])
    around = tuner.ask(4)
    assert {pair(c) for c in around} == {(9, 10), (11, 10), (10, 9), (10, 11)}
    moved = (10 + step[0], 10 + step[1])
    tuner.tell([measured(c, 4e-4 if pair(c) == moved else 6e-4) for c in around])
    asked = [pair(c) for c in tuner.ask(6)]
    assert asked[0] == (10 + 2 * step[0], 10 + 2 * step[1])
    away = [abs(a - moved[0]) + abs(b - moved[1]) for a, b in asked]
    assert away == sorted(away) and away[2] == 1


@pytest.mark.parametrize("seed", range(3))
def test_all_words_of_a_choice_are_one_step_away_and_its_numbers_are_in_order(seed: int) -> None:
    words, numbers = choice("order", tuple("vwxyz")), choice("unroll", (1, 2, 4, 8, 16))
    space = SearchSpace([part("both", [words, numbers])])
    first = next(
        space.candidate(int(n))
        for n in space.listed
        if dict(space.candidate(int(n)).settings) == {"order": "v", "unroll": 1}
    )
    tuner = DropletTuner(TuningTask(space=space, seed=seed))
    tuner.tell([measured(first, 1e-4)])
    asked = [(str(c.setting("order")), int(c.setting("unroll"))) for c in tuner.ask(7)]
    assert set(asked[:5]) == {("w", 1), ("x", 1), ("y", 1), ("z", 1), ("v", 2)}
    assert asked[5:] == [("v", 4), ("v", 8)]


def test_estimates_order_what_is_equally_near() -> None:
    knobs = [Knob(name=name, values=tuple(range(20)), kind="split") for name in "ab"]
    space = SearchSpace([part("plane", knobs, estimate=lambda s: 1.0 + 3 * s["a"] + s["b"])])
    tuner = DropletTuner(TuningTask(space=space))
    tuner.tell([measured(space.candidate(10 * 20 + 10), 1e-4)])
    assert [pair(c) for c in tuner.ask(4)] == [(9, 10), (10, 9), (10, 11), (11, 10)]


def large(estimate=None) -> SearchSpace:
    """A space of too many settings to be listed."""
    knobs = [Knob(name=name, values=tuple(range(1000)), kind="split") for name in "abc"]
    space = SearchSpace([part("large", knobs, estimate=estimate)])
    assert space.listed is None
    return space


def test_in_a_large_space_it_starts_from_the_best_of_some_that_are_drawn() -> None:
    space = large(lambda s: 1.0 + s["a"])
    first = DropletTuner(TuningTask(space=space)).ask(1)[0]
    assert int(first.setting("a")) < 10, "of two thousand the best is among the first hundredth"
    starts = DropletTuner(TuningTask(space=large())).ask(8)
    assert len({space.number(c) for c in starts}) == 8
    assert np.ptp([int(c.setting("a")) for c in starts]) > 200, "without estimates they are random"
