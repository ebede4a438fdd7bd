"""How cores are divided among unequal instances: as well as trying everything does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.serving import division
from tilewright.serving.division import Burst, Group, divided, most_answers, soonest

SIZES = (1, 2, 3, 4)
SECONDS = st.one_of(st.integers(1, 12).map(float), st.just(inf))
WORK = st.lists(st.fixed_dictionaries({size: SECONDS for size in SIZES}), min_size=1, max_size=3)


@cache
def layouts(cores: int) -> Sequence[tuple[int, ...]]:
    """All instances that some cores, at most, suffice for."""
    return [
        sizes
        for count in range(1, cores + 1)
        for sizes in combinations_with_replacement(SIZES, count)
        if sum(sizes) <= cores
    ]


def partitions(networks: Sequence[int]) -> Iterator[list[list[int]]]:
    """All ways to put networks into groups."""
    if not networks:
        yield []
        return
    first, *others = networks
    for groups in partitions(others):
        yield [[first], *groups]
        for place in range(len(groups)):
            yield [*groups[:place], [first, *groups[place]], *groups[place + 1 :]]


def rate(work_s: Sequence[dict[int, float]], members: Sequence[int], sizes: Sequence[int]) -> float:
    """How many times its rates a group is answered."""
    total_s = [sum(work_s[place][size] for place in members) for size in sizes]
    return sum(1 / each for each in total_s if each < inf)


def most_by_trying(work_s: Sequence[dict[int, float]], cores: int) -> float:
    """The most of all groups and of all instances of each."""
    best = 0.0
    for groups in partitions(range(len(work_s))):
        for chosen in product(layouts(cores), repeat=len(groups)):
            if sum(map(sum, chosen)) <= cores:
                pairs = zip(groups, chosen, strict=True)
                best = max(best, min(rate(work_s, members, sizes) for members, sizes in pairs))
    return best


@settings(max_examples=40)
@given(WORK, st.integers(1, 4))
def test_most_answers_as_trying_everything(work_s: list[dict[int, float]], cores: int) -> None:
    found, best = most_answers(work_s, cores), most_by_trying(work_s, cores)
    if found is None:
        assert best == 0
        return
    assert found.times == pytest.approx(best)
    assert sorted(n for group in found.groups for n in group.networks) == [*range(len(work_s))]
    assert sum(sum(group.cores) for group in found.groups) <= cores
    assert min(rate(work_s, g.networks, g.cores) for g in found.groups) == pytest.approx(best)


def soonest_by_trying(
    burdens: Sequence[dict[int, dict[int, float]]], bursts: Sequence[int], cores: int
) -> float:
    """The least time of all instances with all numbers of requests, network by network."""

    def least_s(place: int, left: int, many: int) -> float:
        if left <= 0:
            return 0.0 if place + 1 == len(bursts) else least_s(place + 1, bursts[place + 1], many)
        return min(
            (
                max(s, least_s(place, left - count, many - size))
                for count, seconds in burdens[place].items()
                for size, s in seconds.items()
                if size <= many
            ),
            default=inf,
        )

    return least_s(0, bursts[0], cores)


BURDEN = st.dictionaries(
    st.sampled_from((1, 2, 3, 4)),
    st.dictionaries(st.sampled_from(SIZES), SECONDS, min_size=1),
    min_size=1,
)


@settings(max_examples=40)
@given(st.lists(st.tuples(BURDEN, st.integers(1, 5)), min_size=1, max_size=2), st.integers(1, 5))
def test_the_soonest_as_trying_everything(
    wanted: list[tuple[dict[int, dict[int, float]], int]], cores: int
) -> None:
    burdens, bursts = [burden for burden, _ in wanted], [burst for _, burst in wanted]
    found, best = soonest(burdens, bursts, cores), soonest_by_trying(burdens, bursts, cores)
    if found is None:
        assert best == inf
        return
    assert found.seconds == best
    used = [(size, count) for each in found.networks for size, count in each]
    assert sum(size for size, _ in used) <= cores
    for each, burst in zip(found.networks, bursts, strict=True):
        assert sum(count for _, count in each) == burst


def test_what_equal_instances_leave_over() -> None:
    """Five cores compute six requests in the time of one core for one: nineteen at a time need
    sixteen cores, of which three instances of five leave one over."""
    burden = {
        6: {5: 1.0, 4: 2.0, 2: 4.0, 1: 6.0},
        2: {5: 0.9, 4: 0.9, 2: 1.5, 1: 2.0},
        1: {5: 0.8, 4: 0.8, 2: 0.8, 1: 1.0},
    }
    found = soonest([burden], [19], 16)
    assert found is not None and found.seconds == 1.0
    assert found.networks == (((5, 6), (5, 6), (5, 6), (1, 1)),)
    found = soonest([burden, burden], [6, 2], 6)
    assert found is not None and found.networks == (((5, 6),), ((1, 2),))
    assert soonest([burden, burden], [1, 1], 1) is None


def test_long_bursts_are_divided_at_once() -> None:
    """Ten thousand requests, of which any number may go to an instance."""
    burden = {count: {1: float(count), 3: count / 4} for count in range(1, 10_001)}
    found = soonest([burden], [10_000], 4)
    assert found == Burst((((3, 8_000), (1, 2_000)),), 2000.0)


def test_leftover_cores_and_groups() -> None:
    """A network that five cores compute best leaves one of sixteen over, and one that does not grow
    with cores is best on one each."""
    grows = {5: 1.0, 4: 1.4, 2: 3.2, 1: 7.0}
    found = most_answers([grows], 16)
    assert found is not None and found.groups == (Group((0,), (5, 5, 5, 1)),)
    flat = {5: 0.5, 4: 0.5, 2: 0.5, 1: 0.5}
    found = most_answers([grows, flat], 6)
    assert found is not None and found.groups == (Group((0,), (5,)), Group((1,), (1,)))
    assert found.times == pytest.approx(1.0)
    assert most_answers([{1: inf}], 4) is None


def test_many_networks_are_grouped_with_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few networks are not tried in all groups; those alike find each other."""
    wide, narrow = {4: 1.0, 1: 9.0}, {4: 2.0, 1: 2.0}
    mixed = [wide, narrow, wide, narrow]
    best = most_answers(mixed, 8)
    monkeypatch.setattr(division, "_ALL_GROUPS", 2)
    assert most_answers(mixed, 8) == best
    assert best is not None and [group.networks for group in best.groups] == [(0, 2), (1, 3)]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=7, max_size=7), min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_requests_are_divided_so_that_the_last_ends_soonest(
    ends: list[list[int]], count: int
) -> None:
    rising = [[float(max(each[: place + 1])) for place in range(7)] for each in ends]
    found = divided(count, [lambda k, each=each: each[k - 1] for each in rising])

    def last_s(shares: Sequence[int]) -> float:
        return max(each[k - 1] for each, k in zip(rising, shares, strict=True) if k)

    ways = product(range(count + 1), repeat=len(ends))
    assert sum(found) == count
    assert last_s(found) == min(last_s(way) for way in ways if sum(way) == count)
