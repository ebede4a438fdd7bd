"""The united numbers of several implementations, and their features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.knobs import choice, order, split
from tilewright.kernels.search_space import LISTED, SearchSpace
from tilewright.search.tuners.walking import changed, crossed, valid_mask
from tilewright.testing.landscapes import part

FIRST = [split("tile", 8), choice("flag", (False, True)), order("nest", "ab")]
SECOND = [split("tile", 12), choice("depth", (1, 3))]


def united() -> SearchSpace:
    fits = part("second", SECOND, filters=[lambda s: s["tile"] != 12])
    return SearchSpace([part("first", FIRST), part("single", []), fits])


def test_numbers_run_through_the_parts() -> None:
    space = united()
    assert space.range_length == 4 * 2 * 2 + 1 + 6 * 2
    assert space.listed is not None and len(space.listed) == 16 + 1 + 10
    names = [space.candidate(number).implementation for number in range(space.range_length)]
    assert names == ["first"] * 16 + ["single"] + ["second"] * 12
    for number in range(space.range_length):
        candidate = space.candidate(number)
        assert space.number(candidate) == number
        assert space.number(structs.replace(candidate, forms=(blocked(8),))) is None
        assert space.number(structs.replace(candidate, implementation="third")) is None
        assert space.valid(number) == (number in space.listed)
        owner, inner = space.located([number])
        assert (owner[0], inner[0]) == space.part_of(number)


def test_neighbours_stay_in_their_part() -> None:
    space = united()
    for number in space.listed:
        for other in space.neighbours(int(number)):
            assert space.valid(other)
            assert space.part_of(other)[0] == space.part_of(int(number))[0]
    assert space.neighbours(16) == []


def test_features_have_the_same_columns_everywhere() -> None:
    space = united()
    table = space.features(space.listed)
    assert np.isfinite(table).all()
    # parts 3, tile 1, flag 2, nest 2, depth 1
    assert table.shape == (27, 9)
    assert len({row.tobytes() for row in table}) == 27
    assert (table[:, :3].sum(axis=1) == 1).all()
    eight = space.number(space.candidate(3))
    assert eight is not None and space.candidate(eight).setting("tile") == 8
    assert space.features([eight])[0, 3] == 3.0
    digits = space.digits([16])
    assert digits.tolist() == [[1, -1, -1, -1, -1]]


@given(st.integers(0, 28))
def test_encoding_ones_own_candidate_gives_its_features(number: int) -> None:
    space = united()
    encoded = space.encode(space.candidate(number))
    assert encoded is not None
    assert (encoded == space.features([number])[0]).all()


def test_a_foreign_candidate_is_encoded_as_far_as_it_fits() -> None:
    space = united()
    own = space.candidate(0)
    strange = structs.replace(own, settings=(("flag", True), ("nest", "b,a"), ("tile", 32)))
    encoded = space.encode(strange)
    assert encoded is not None and encoded[3] == 5.0
    assert space.encode(structs.replace(own, implementation="third")) is None


def test_another_space_has_another_fingerprint() -> None:
    space = united()
    assert united().fingerprint == space.fingerprint
    assert SearchSpace(space.parts[:2]).fingerprint != space.fingerprint
    assert SearchSpace(space.parts[::-1]).fingerprint != space.fingerprint
    moved = [replace(space.parts[0], forms=(blocked(8), PLAIN)), *space.parts[1:]]
    assert SearchSpace(moved).fingerprint != space.fingerprint


def test_estimates_only_where_all_tell_them() -> None:
    told = part("told", FIRST, estimate=lambda s: float(s["tile"]))
    assert SearchSpace([told]).estimates_s([0, 3]).tolist() == [1.0, 8.0]
    assert SearchSpace([told, part("silent", SECOND)]).estimates_s([0, 20]) is None


def test_sampling() -> None:
    rng = np.random.default_rng(0)
    space = united()
    drawn = space.sample(rng, 20)
    assert len(set(drawn)) == 20 and all(space.valid(number) for number in drawn)
    assert len(space.sample(rng, 100)) == 27
    names = ("a", "b", "c")
    knobs = [split(n, 1000, policy="candidates", candidates=range(1, 1001)) for n in names]
    large = SearchSpace([part("large", knobs, filters=[lambda s: int(s["a"]) % 2 == 0])])
    assert large.range_length > LISTED and large.listed is None
    drawn = large.sample(rng, 50)
    assert len(set(drawn)) == 50 and all(large.valid(number) for number in drawn)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 28), min_size=1, max_size=20), st.integers(0, 9))
def test_a_change_is_one_knob(numbers: list[int], seed: int) -> None:
    space, rng = united(), np.random.default_rng(seed)
    rows = np.array(numbers)
    for near in (0.0, 1.0):
        moved = changed(space, rows, rng, near=near)
        apart = (space.digits(moved) != space.digits(rows)).sum(axis=1)
        assert (apart[rows != 16] == 1).all()
        assert (apart[rows == 16] == 0).all()
    assert (valid_mask(space, moved) == [space.valid(int(n)) for n in moved]).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 28), min_size=2, max_size=20), st.integers(0, 9))
def test_a_child_has_its_parents_values(numbers: list[int], seed: int) -> None:
    space, rng = united(), np.random.default_rng(seed)
    mothers = np.array(numbers)
    fathers = rng.permutation(mothers)
    children = crossed(space, mothers, fathers, rng)
    ours, theirs, own = (space.digits(n) for n in (mothers, fathers, children))
    strangers = ours[:, 0] != theirs[:, 0]
    assert (children[strangers] == mothers[strangers]).all()
    assert ((own == ours) | (own == theirs))[~strangers].all()
