"""What waits say of a network, against trying everything on small ones."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.plan.scheduling.precedence import (
    all_after,
    all_before,
    blocks,
    chains,
    critical_path,
    never_beside_another,
    width,
    work_over_span,
)


@st.composite
def waits(draw: st.DrawFn, most: int = 9) -> list[list[int]]:
    """Any waits of a few calls."""
    random = Random(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from((0.1, 0.3, 0.6)))
    count = draw(st.integers(1, most))
    return [[b for b in range(number) if random.random() < share] for number in range(count)]


def ordered(before: list[list[int]]) -> set[tuple[int, int]]:
    """The pairs of which one ends before the other begins, by going along all waits."""
    found: set[tuple[int, int]] = set()
    for number, direct in enumerate(before):
        for other in direct:
            found |= {(other, number)} | {(a, number) for a, b in found if b == other}
    return found


@settings(max_examples=200, deadline=None)
@given(waits())
def test_against_trying_everything(before: list[list[int]]) -> None:
    pairs, count = ordered(before), len(before)
    earlier = all_before(before)
    every = [(a, b) for b in range(count) for a in range(count)]
    assert pairs == {(a, b) for a, b in every if earlier[b] >> a & 1}
    assert pairs == {(a, b) for a, b in every if all_after(before)[a] >> b & 1}
    antichains = (
        chosen
        for size in range(count, 0, -1)
        for chosen in combinations(range(count), size)
        if not any(pair in pairs for pair in combinations(chosen, 2))
    )
    assert width(before) == len(next(antichains))
    alone = [
        n
        for n in range(count)
        if all((a, n) in pairs or (n, a) in pairs for a in range(count) if a != n)
    ]
    assert never_beside_another(before) == alone


@settings(max_examples=200, deadline=None)
@given(waits(), st.integers(0, 2**16))
def test_the_longest_way(before: list[list[int]], seed: int) -> None:
    random = Random(seed)
    seconds = [random.randint(0, 9) for _ in before]

    def longest(number: int) -> int:
        return seconds[number] + max((longest(other) for other in before[number]), default=0)

    length, path = critical_path(before, seconds)
    assert length == max(map(longest, range(len(before))))
    assert sum(seconds[number] for number in path) == length
    assert all(a in before[b] for a, b in zip(path, path[1:], strict=False))
    if length:
        assert work_over_span(before, seconds) == pytest.approx(sum(seconds) / length)


@settings(max_examples=200, deadline=None)
@given(waits())
def test_blocks_and_chains_hold_every_call_once(before: list[list[int]]) -> None:
    everything, pairs = list(range(len(before))), ordered(before)
    parts = blocks(before)
    assert sorted(number for part in parts for number in part) == everything
    for place, part in enumerate(parts[:-1]):
        rest = [number for other in parts[place + 1 :] for number in other]
        assert all((one, other) in pairs for one in part for other in rest)
    rows = chains(before)
    assert sorted(number for row in rows for number in row) == everything
    readers = [sum(number in direct for direct in before) for number in everything]
    for row in rows:
        for one, other in zip(row, row[1:], strict=False):
            assert before[other] == [one] and readers[one] == 1
    first = {row[0] for row in rows}
    joined = {n for n in everything if len(before[n]) == 1 and readers[before[n][0]] == 1}
    assert first == set(everything) - joined


def test_a_chain_has_nothing_to_gain() -> None:
    before = [[], [0], [1]]
    assert (width(before), work_over_span(before, [1.0, 2.0, 3.0])) == (1, 1.0)
    assert blocks(before) == [[0], [1], [2]] and chains(before) == [[0, 1, 2]]
    assert critical_path([], []) == (0.0, []) and work_over_span([[], []], [0.0, 0.0]) == 1.0
