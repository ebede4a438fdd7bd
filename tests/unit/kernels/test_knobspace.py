"""Numbers stand for settings, both ways, and nothing is listed that need not be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.kernels.knobs import Knob, choice, order, split
from tilewright.kernels.search_space import KnobSpace, each

FINGERPRINT = "e5677e49ed3ea5f5"
VALUES = st.one_of(st.integers(-9, 99), st.text("xyz,", max_size=3), st.booleans())


def _distinct(values) -> tuple[type, object]:
    return type(values), values


KNOBS = st.lists(
    st.lists(VALUES, min_size=1, max_size=5, unique_by=_distinct), min_size=0, max_size=4
).map(
    lambda lists: tuple(Knob(name=f"k{i}", values=tuple(values)) for i, values in enumerate(lists))
)


@given(KNOBS, st.data())
def test_both_ways(knobs: tuple[Knob, ...], data: st.DataObject) -> None:
    space = KnobSpace(knobs=knobs)
    assert space.range_length == len(list(product(*(knob.values for knob in knobs))))
    number = data.draw(st.integers(0, space.range_length - 1))
    found = space.settings(number)
    assert list(found) == [knob.name for knob in knobs]
    assert space.number(found) == number
    digits = space.digits(np.array([number]))
    assert digits.shape == (1, len(knobs))
    assert [knob.values[d] for knob, d in zip(knobs, digits[0], strict=True)] == list(
        found.values()
    )
    assert space.compose(digits).tolist() == [number]


@given(KNOBS)
def test_all_numbers_differ(knobs: tuple[Knob, ...]) -> None:
    space = KnobSpace(knobs=knobs)
    every = [
        tuple((type(v), v) for v in space.settings(n).values()) for n in range(space.range_length)
    ]
    assert len(set(every)) == space.range_length
    numbers = np.arange(space.range_length)
    assert (space.compose(space.digits(numbers)) == numbers).all()


def test_the_first_knob_is_least_significant() -> None:
    space = KnobSpace(knobs=(choice("a", (10, 20, 30)), choice("b", ("x", "y"))))
    assert [tuple(space.settings(n).values()) for n in range(6)] == [
        (10, "x"), (20, "x"), (30, "x"), (10, "y"), (20, "y"), (30, "y"),
    ]  # fmt: skip


def test_what_is_not_of_the_space() -> None:
    space = KnobSpace(knobs=(choice("a", (0, 1)), choice("b", (False, True))))
    assert space.number({"a": 0, "b": True}) == 2
    assert space.number({"a": 0}) is None
    assert space.number({"a": 0, "b": True, "c": 1}) is None
    assert space.number({"a": 2, "b": True}) is None
    # equal in Python, yet other values
    assert space.number({"a": False, "b": True}) is None
    assert space.number({"a": 0, "b": 1}) is None
    for number in (-1, 4):
        with pytest.raises(IndexError):
            space.settings(number)


@given(KNOBS, st.data())
def test_neighbours_differ_in_one_knob(knobs: tuple[Knob, ...], data: st.DataObject) -> None:
    space = KnobSpace(knobs=knobs)
    number = data.draw(st.integers(0, space.range_length - 1))
    own = space.digits(np.array([number]))[0]
    others = space.neighbours(number)
    assert len(others) == len(set(others)) == sum(length - 1 for length in space.lengths)
    steps = np.abs(space.digits(np.array(others, dtype=np.int64)) - own)
    assert ((steps != 0).sum(axis=1) == 1).all()
    assert (np.diff(steps.sum(axis=1)) >= 0).all()


def test_filters_hold_everywhere() -> None:
    space = KnobSpace(
        knobs=(split("a", 24), split("b", 24)),
        accepts=each(lambda s: int(s["a"]) * int(s["b"]) <= 24, lambda s: s["a"] != 3),
    )
    expected = [
        (a, b) for b in space.knobs[1].values for a in space.knobs[0].values
        if int(a) * int(b) <= 24 and a != 3
    ]  # fmt: skip
    assert [tuple(space.settings(n).values()) for n in space] == expected
    for number in space:
        assert all(space.valid(other) for other in space.neighbours(number))


@given(KNOBS, st.data())
def test_another_space_has_another_fingerprint(
    knobs: tuple[Knob, ...], data: st.DataObject
) -> None:
    assume(knobs)
    space = KnobSpace(knobs=knobs)
    assert KnobSpace(knobs=tuple(knobs)).fingerprint == space.fingerprint
    place = data.draw(st.integers(0, len(knobs) - 1))
    knob = knobs[place]
    fewer = replace(knob, values=knob.values[:-1])
    changes = [
        fewer,
        replace(knob, name="other"),
        replace(knob, kind="order"),
        replace(knob, values=(*knob.values, "new")),
        *([replace(knob, values=knob.values[::-1])] if len(knob.values) > 1 else []),
    ]
    for change in changes:
        changed = KnobSpace(knobs=(*knobs[:place], change, *knobs[place + 1 :]))
        assert changed.fingerprint != space.fingerprint
    more = KnobSpace(knobs=(*knobs, choice("last", (1,))))
    assert more.fingerprint != space.fingerprint


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    space = KnobSpace(knobs=(split("tile", 8), order("nest", "ab"), choice("flag", (False, True))))
    assert space.fingerprint == FINGERPRINT, "old records of unchanged spaces would be lost"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9 - 1))
def test_a_large_space_is_never_listed(number: int) -> None:
    looks = 0

    def odd(s) -> bool:
        nonlocal looks
        looks += 1
        return sum(int(v) for v in s.values()) % 2 == 1

    knobs = tuple(
        split(f"k{i}", 1000, policy="candidates", candidates=range(1, 1001)) for i in range(3)
    )
    space = KnobSpace(knobs=knobs, accepts=each(odd))
    assert space.range_length == 10**9
    assert space.number(space.settings(number)) == number
    assert looks == 0
    space.valid(number)
    assert looks == 1
    first = next(iter(space))
    assert space.valid(first) and looks <= 4
    space.neighbours(number)
    assert looks <= 4 + 3 * 999
