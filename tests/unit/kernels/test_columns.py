"""Columns of numbered settings are those of the settings one by one; so are filters on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.records import Settings
from tilewright.kernels.columns import Bools, by_type, chosen, column
from tilewright.kernels.knobs import Knob
from tilewright.kernels.search_space import KnobSpace, each

NUMBERS = st.lists(st.integers(-9, 99), min_size=1, max_size=5, unique=True)
TEXTS = st.lists(st.text("xyz,", max_size=3), min_size=1, max_size=4, unique=True)
KNOBS = st.tuples(NUMBERS, TEXTS).map(
    lambda lists: (
        Knob(name="size", values=tuple(lists[0])),
        Knob(name="order", values=tuple(lists[1])),
        Knob(name="pack", values=(True, False)),
    )
)


@given(KNOBS)
def test_columns_are_those_of_the_settings(knobs: tuple[Knob, ...]) -> None:
    space = KnobSpace(knobs=knobs)
    together = space.columns(range(space.range_length))
    alone: list[Settings] = [space.settings(number) for number in range(space.range_length)]
    assert list(together) == alone and len(together) == len(alone)
    assert list(together[1:3]) == alone[1:3] and together[-1] == alone[-1]
    for name in ("size", "pack"):
        assert column(together, name).tolist() == column(alone, name).tolist()
    for knob in knobs:
        for value in (*knob.values, "none of them"):
            found = chosen(together, knob.name, value)
            assert found.dtype == np.bool_
            assert found.tolist() == chosen(alone, knob.name, value).tolist()
            assert found.tolist() == [one[knob.name] == value for one in alone]


def test_no_settings_and_an_unknown_knob() -> None:
    space = KnobSpace(knobs=(Knob(name="size", values=(1, 2)),))
    nothing = space.columns([])
    assert len(nothing) == len(column(nothing, "size")) == len(chosen([], "size", 1)) == 0
    with pytest.raises(KeyError, match="width"):
        column(space.columns([0]), "width")


@given(KNOBS, st.integers(-9, 99), st.booleans())
def test_a_filter_of_many_accepts_what_a_filter_of_one_does(
    knobs: tuple[Knob, ...], most: int, packed: bool
) -> None:
    def many(settings: Sequence[Settings]) -> Bools:
        return (column(settings, "size") <= most) & chosen(settings, "pack", packed)

    def one(settings: Settings) -> bool:
        return int(settings["size"]) <= most and settings["pack"] == packed

    fast, slow = KnobSpace(knobs=knobs, accepts=many), KnobSpace(knobs=knobs, accepts=each(one))
    every = range(slow.range_length)
    kept = [number for number in every if slow.valid(number)]
    for space in (fast, slow):
        assert space.listed().tolist() == list(space) == kept
        assert np.flatnonzero(space.accepted(every)).tolist() == kept
        assert [number for number in every if space.valid(number)] == kept
        assert all(space.neighbours(number) == slow.neighbours(number) for number in every)


@given(st.lists(st.sampled_from(["int8", "float32", "float64"])))
def test_each_type_is_asked_about_once(dtypes: list[str]) -> None:
    asked: list[str] = []

    def tell(dtype: str) -> float:
        asked.append(dtype)
        return len(dtype)

    assert by_type(dtypes, tell).tolist() == [len(dtype) for dtype in dtypes]
    assert sorted(asked) == sorted(set(dtypes))
