"""What the knobs offer."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.kernels.knobs import Knob, annotate, choice, order, split, split_sizes

EXTENTS = st.integers(1, 400)


@given(EXTENTS)
def test_factors_divide(extent: int) -> None:
    values = split("s", extent).values
    assert set(values) == {size for size in range(1, extent + 1) if extent % size == 0}


@given(EXTENTS)
def test_powers_of_two_reach_the_extent(extent: int) -> None:
    values = [int(v) for v in split("s", extent, policy="power2").values]
    assert values == [1 << n for n in range(extent.bit_length())]


@given(EXTENTS)
def test_tails_waste_at_most_an_eighth(extent: int) -> None:
    tails = set(split("s", extent, policy="tails").values)
    assert set(split("s", extent).values) <= tails
    assert set(split("s", extent, policy="power2").values) <= tails
    for size in range(1, extent + 1):
        wasted = -(-extent // size) * size - extent
        if 8 * wasted <= extent:
            assert size in tails
        elif size & (size - 1):
            assert size not in tails


@given(EXTENTS, st.integers(1, 50))
def test_most_limits_every_inner_part(extent: int, most: int) -> None:
    for policy in ("factors", "power2", "tails"):
        assert max(map(int, split("s", extent, policy=policy, most=most).values)) <= most


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 96), st.sampled_from(["factors", "power2"]), st.sampled_from([3, 4]))
def test_more_parts_nest(extent: int, policy, parts: int) -> None:
    knob = split("s", extent, parts=parts, policy=policy)
    assert len(set(knob.values)) == len(knob.values) > 0
    for value in knob.values:
        sizes = split_sizes(value)
        assert len(sizes) == parts - 1
        assert prod(sizes) <= extent
        if policy == "factors":
            assert extent % prod(sizes) == 0
    if policy == "factors" and parts == 3:
        every = [(a, b) for a in range(1, extent + 1) for b in range(1, extent + 1)]
        expected = {pair for pair in every if extent % prod(pair) == 0}
        assert {split_sizes(value) for value in knob.values} == expected


def test_candidates_are_taken_as_they_are() -> None:
    knob = split("s", 100, policy="candidates", candidates=[7, 3, 64])
    assert knob.values == (7, 3, 64) and knob.kind == "split"
    assert split_sizes(7) == (7,) and split_sizes("8,4") == (8, 4)


def test_orders() -> None:
    assert len(order("o", "abc").values) == 6
    assert order("o", "abc").values[0] == "a,b,c"
    assert order("o", "abc", ["cab"]).values == ("c,a,b",)
    with pytest.raises(ValueError, match="does not order"):
        order("o", "abc", ["ab"])
    with pytest.raises(ValueError, match="does not order"):
        order("o", "abc", ["aab"])


def test_kinds_and_sizes() -> None:
    assert annotate("a").values == ("none", "unroll", "vectorize")
    assert choice("c", (1, 2)).numeric
    assert not choice("c", (True, False)).numeric
    assert not choice("c", (1, "x")).numeric
    assert Knob(name="k", values=(1,)).kind == "choice"
