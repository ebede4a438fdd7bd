"""Which requests are computed at a time: never over a limit, never at the cost of a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.serving.grouping import BatchTimes, Group, next_group, worthwhile


@dataclass(frozen=True)
class Asked:
    network: str = "a"
    due_s: float = inf
    alone: bool = False


HALF = {1: 1.0, 2: 1.2, 4: 2.0}
"""Batches pay."""


def times_of(networks: Mapping[str, Mapping[int, float]]) -> Mapping[str, BatchTimes]:
    return {name: BatchTimes(costs=worthwhile(s), now_s=s) for name, s in networks.items()}


def group(waiting: Sequence[Asked], idle: int = 0, **networks: Mapping[int, float]) -> Group | None:
    times = times_of({"a": HALF, "b": {1: 1.0}, **networks})
    return next_group(waiting, times.__getitem__, 0.0, idle)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 4)), (4, (4, 4)), (9, (4, 4))]
)
def test_as_many_as_pay(count: int, expected: tuple[int, int]) -> None:
    """Three run as four, for that takes 2.0 and not 2.2."""
    found = group([Asked()] * count)
    assert found is not None and (len(found.members), found.size) == expected


def test_nothing_is_filled_up_where_that_does_not_pay() -> None:
    dear = {**HALF, 4: 2.15}
    assert group([Asked()] * 3, a=dear) == Group((0, 1), 2)
    assert group([Asked()] * 4, a=dear) == Group((0, 1, 2, 3), 4)
    assert group([Asked()] * 4, a={1: 1.0, 4: 3.9}) == Group((0,), 1), "it gains too little"


def test_idle_instances_have_their_share() -> None:
    assert group([Asked()] * 4, idle=1) == Group((0, 1), 2)
    assert group([Asked()] * 2, idle=5) == Group((0,), 1)
    assert group([Asked(), Asked("b"), *[Asked()] * 3], idle=1) == Group((0, 2, 3, 4), 4)


def test_whose_turn_it_is() -> None:
    assert group([Asked("b"), *[Asked()] * 4]) == Group((0,), 1)
    assert group([Asked(), Asked("b"), Asked()]) == Group((0, 2), 2)
    assert group([Asked(alone=True), Asked(), Asked()]) == Group((0,), 1)
    assert group([Asked(), Asked(alone=True), Asked()]) == Group((0, 2), 2)
    assert group([Asked(due_s=0.5), Asked("b", due_s=1.0), Asked()]) == Group((1,), 1)
    assert group([Asked(due_s=0.5)]) is None
    assert group([Asked()], a={1: inf}) is None and group([]) is None


def test_no_deadline_is_lost_to_a_batch() -> None:
    assert group([Asked(due_s=1.3), Asked(), Asked()]) == Group((0, 1), 2)
    assert group([Asked(due_s=1.1), Asked(), Asked()]) == Group((0,), 1)
    soon = [Asked(due_s=2.0), Asked("b", due_s=2.1), Asked(due_s=9.0)]
    assert group(soon) == Group((0,), 1), "the other network would be late"
    assert group([soon[0], Asked("b", due_s=2.3), soon[2]]) == Group((0, 2), 2)
    assert group([soon[0], Asked("b", due_s=1.9), soon[2]]) == Group((0, 2), 2), "late anyhow"


SECONDS = st.floats(0.01, 5.0)
REQUESTS = st.lists(
    st.builds(Asked, st.sampled_from("ab"), st.floats(0.01, 9.0) | st.just(inf), st.booleans()),
    max_size=12,
)


@given(
    REQUESTS,
    st.fixed_dictionaries(
        {
            "a": st.fixed_dictionaries(dict.fromkeys((1, 2, 3, 6), SECONDS)),
            "b": st.fixed_dictionaries({1: SECONDS}),
        }
    ),
    st.integers(0, 3),
)
def test_groups_are_right_and_all_come_to_an_end(
    requests: list[Asked], networks: dict[str, dict[int, float]], idle: int
) -> None:
    times = times_of(networks)
    alone = _in_time_one_by_one(requests, networks)
    waiting, now_s, kept = sorted(requests, key=lambda each: each.due_s), 0.0, 0
    while found := next_group(waiting, times.__getitem__, now_s, idle):
        members = [waiting[place] for place in found.members]
        first, size = found.members[0], found.size
        assert list(found.members) == sorted(set(found.members)) and 1 <= len(members) <= size
        assert size in dict(times[members[0].network].costs)
        assert len({each.network for each in members}) == 1
        assert size == 1 or not any(each.alone for each in members)
        assert all(now_s + networks[w.network][1] > w.due_s for w in waiting[:first]), "no turn"
        now_s += networks[members[0].network][size]
        kept += sum(now_s <= each.due_s < inf for each in members)
        waiting = [each for place, each in enumerate(waiting) if place not in found.members]
        idle = 0
    assert all(each.due_s < inf for each in waiting), "one without a deadline starved"
    assert kept >= alone


def _in_time_one_by_one(requests: list[Asked], networks: dict[str, dict[int, float]]) -> int:
    now_s, kept = 0.0, 0
    for each in sorted(requests, key=lambda each: each.due_s):
        end_s = now_s + networks[each.network][1]
        if end_s <= each.due_s < inf:
            now_s, kept = end_s, kept + 1
    return kept
