"""Small changes to settings, mixtures of two, and chains that walk uphill."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.kernels.knobs import choice
from tilewright.kernels.search_space import Floats, Numbers, SearchSpace
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.walking import GeneticTuner, anneal, changed, crossed, valid_mask
from tilewright.testing.landscapes import measured, part

WIDE = part("wide", [choice("a", range(10)), choice("only", (7,)), choice("b", range(6))])
NARROW = part("narrow", [choice("a", range(3)), choice("c", ("x", "y"))])
FIXED = part("fixed", [choice("only", (7,))])
SPACE = SearchSpace([WIDE, NARROW, FIXED])
HALF = SearchSpace(
    [
        part(
            "half",
            [choice("a", range(20)), choice("b", range(20))],
            filters=[lambda s: s["a"] >= s["b"]],
        )
    ]
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.0]))
def test_one_knob_is_changed(seed: int, near: float) -> None:
    """To another of its values; of an implementation with nothing to choose nothing changes."""
    numbers = np.arange(SPACE.range_length)
    found = changed(SPACE, numbers, np.random.default_rng(seed), near=near)
    before, after = SPACE.digits(numbers), SPACE.digits(found)
    assert (before[:, 0] == after[:, 0]).all(), "the implementation stays"
    movable = before[:, 0] != before[-1, 0]
    assert ((before != after).sum(axis=1) == movable).all()
    if near == 1.0:
        assert (np.abs(before - after).sum(axis=1) == movable).all(), "to the value beside"


def test_any_other_value_is_as_likely_as_the_next() -> None:
    start = np.full(4000, 4)
    found = SPACE.digits(changed(SPACE, start, np.random.default_rng(0)))
    a = found[found[:, 1] != 4, 1]
    assert set(a) == set(range(10)) - {4}
    counts = np.bincount(a)
    assert counts[counts > 0].min() > 150 and counts.max() < 300, "of about 2000 changes of `a`"
    near = SPACE.digits(changed(SPACE, np.full(4000, 0), np.random.default_rng(0), near=1.0))
    assert set(near[:, 1]) == {0, 1}, "from the first value it is the second"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_a_child_has_each_value_from_one_of_its_parents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mothers, fathers = (rng.integers(SPACE.range_length, size=200) for _ in range(2))
    children = crossed(SPACE, mothers, fathers, rng)
    ours, theirs, found = (SPACE.digits(n) for n in (mothers, fathers, children))
    alike = ours[:, 0] == theirs[:, 0]
    assert (found == np.where(alike[:, None] & (found != ours), theirs, ours)).all()
    assert (children[~alike] == mothers[~alike]).all(), "other implementations have other knobs"
    mixed = alike & (children != mothers) & (children != fathers)
    assert mixed.any()


def peak(numbers: Numbers) -> Floats:
    """A hill whose top is at a = 13, b = 5."""
    digits = HALF.digits(numbers)
    return -((digits[:, 1] - 13.0) ** 2) - (digits[:, 2] - 5.0) ** 2


@pytest.mark.parametrize("seed", range(3))
def test_chains_find_the_top_of_a_hill(seed: int) -> None:
    start = [int(HALF.listed[0])]
    numbers, scores = anneal(HALF, peak, start, np.random.default_rng(seed))
    assert scores[0] == 0.0 and (np.diff(scores) <= 0).all()
    assert len(set(numbers.tolist())) == len(numbers) and start[0] in numbers
    np.testing.assert_array_equal(scores, peak(numbers))
    assert valid_mask(HALF, numbers).all()


def test_chains_end_when_nothing_gets_better() -> None:
    asked: list[Numbers] = []

    def flat(numbers: Numbers) -> Floats:
        asked.append(numbers)
        return np.zeros(len(numbers))

    starts = HALF.listed[:5].tolist()
    anneal(HALF, flat, starts, np.random.default_rng(0))
    assert len(asked) == 1 + 13, "after more than twelve steps"
    assert asked[0][:5].tolist() == starts
    assert {len(numbers) for numbers in asked} == {len(asked[0])}
    assert 91 <= len(asked[0]) == len(set(asked[0].tolist())) <= 96, "chains begin apart"
    nothing = SearchSpace([part("none", [choice("a", range(4))], filters=[lambda _: False])])
    numbers, scores = anneal(nothing, flat, [], np.random.default_rng(0))
    assert len(numbers) == len(scores) == 0


def test_which_numbers_the_filters_accept() -> None:
    numbers = np.arange(HALF.range_length)
    digits = HALF.digits(numbers)
    assert (valid_mask(HALF, numbers) == (digits[:, 1] >= digits[:, 2])).all()


@pytest.mark.parametrize("seed", range(3))
def test_children_are_of_the_fastest(seed: int) -> None:
    """Random settings first; what is proposed then lies nearer the top than those do."""
    tuner = GeneticTuner(TuningTask(space=HALF, seed=seed))
    rounds: list[list[float]] = []
    for _ in range(8):
        asked = tuner.ask(8)
        numbers = [int(HALF.number(candidate) or 0) for candidate in asked]
        assert len(set(numbers)) == 8 and all(map(HALF.valid, numbers))
        rounds.append([float(1.0 - peak(np.array([number]))[0]) for number in numbers])
        tuner.tell([measured(c, 1e-4 * s) for c, s in zip(asked, rounds[-1], strict=True)])
    assert np.mean(rounds[3:]) < 0.7 * np.mean(rounds[:2])


def test_one_parent_has_no_children() -> None:
    alone = GeneticTuner(TuningTask(space=HALF))
    alone.tell([measured(HALF.candidate(int(HALF.listed[0])), 1e-4)])
    assert len(alone.ask(20)) == 20
