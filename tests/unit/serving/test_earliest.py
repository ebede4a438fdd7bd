"""Where instances differ, requests go to those that end them sooner, and none is lost."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from threading import Thread
from time import monotonic, sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.serving.earliest import Taker, differ, earliest_group
from tilewright.serving.grouping import BatchTimes, Group, worthwhile
from tilewright.serving.queue import RequestQueue
from tilewright.serving.requests import Request


@dataclass(frozen=True)
class Asked:
    network: str = "a"
    due_s: float = inf
    alone: bool = False
    submitted_s: float = 0.0


def taker(
    kind: str,
    free_s: float | None = None,
    first: frozenset[str] = frozenset(),
    **networks: Mapping[int, float],
) -> Taker:
    """An instance that takes so long for batches of networks."""
    times = {name: BatchTimes(costs=worthwhile(s), now_s=s) for name, s in networks.items()}
    return Taker(times.__getitem__, kind, first, free_s)


def test_a_slow_instance_leaves_what_another_one_ends_sooner() -> None:
    slow, fast = taker("slow", a={1: 9.0}), taker("fast", 2.0, a={1: 3.0})
    assert earliest_group([Asked()], slow, [fast], 0.0) is None
    assert earliest_group([Asked()] * 2, slow, [fast], 0.0) is None
    assert earliest_group([Asked()] * 3, slow, [fast], 0.0) == Group((0,), 1)
    assert earliest_group([Asked()], fast, [slow], 2.0) == Group((0,), 1)
    assert differ([slow, fast]) and not differ([slow, slow])


def test_what_is_late_is_waited_for_as_long_again() -> None:
    slow, fast = taker("slow", a={1: 9.0}), taker("fast", 2.0, a={1: 3.0})
    assert earliest_group([Asked()], slow, [fast], 7.0) is None, "late by 5, and then 3"
    assert earliest_group([Asked()], slow, [fast], 9.0) == Group((0,), 1)


def test_batches_are_as_large_as_they_end_sooner() -> None:
    """Twelve requests for an instance that computes eight at a time and one that computes four."""
    large = taker("8", a={1: 1.0, 2: 1.1, 4: 1.5, 8: 2.0})
    small = taker("4", a={1: 1.0, 2: 1.2, 4: 2.0})
    assert earliest_group([Asked()] * 12, large, [small], 0.0) == Group(tuple(range(8)), 8)
    large.free_s = 2.0
    assert earliest_group([Asked()] * 4, small, [large], 0.0) == Group((0, 1, 2, 3), 4)
    assert earliest_group([Asked()] * 2, taker("1", a={1: 1.5}), [small], 0.0) is None


def test_deadlines_that_are_not_left_to_chance() -> None:
    """The slow one keeps what it could not keep any more when it looks again, unless the other one
    is idle; what it cannot keep it leaves."""
    slow, fast = taker("slow", a={1: 9.0}), taker("fast", 2.0, a={1: 3.0})
    assert earliest_group([Asked(due_s=9.5)], slow, [fast], 0.0) == Group((0,), 1)
    assert earliest_group([Asked(due_s=20)], slow, [fast], 0.0) is None
    assert earliest_group([Asked(due_s=8)] * 5, slow, [fast], 0.0) is None
    fast.free_s = None
    assert earliest_group([Asked(due_s=9.5)], slow, [fast], 0.0) is None
    assert earliest_group([Asked(due_s=4), Asked()] * 4, slow, [fast], 0.0) == Group((1,), 1)


def test_networks_have_instances_of_their_own() -> None:
    """Each computes its network before others, and helps where that ends sooner."""
    one = taker("1", None, frozenset("a"), a={1: 1.0}, b={1: 4.0})
    other = taker("2", 1.0, frozenset("b"), a={1: 1.0}, b={1: 1.0})
    assert earliest_group([Asked("b"), Asked()], one, [other], 0.0) == Group((1,), 1)
    assert earliest_group([Asked("b")], one, [other], 0.0) is None
    assert earliest_group([Asked("b")] * 5, one, [other], 0.0) == Group((0,), 1)
    assert earliest_group([Asked("b")], one, [], 0.0) == Group((0,), 1), "nobody else is there"
    assert earliest_group([Asked("a", alone=True)] * 2, one, [], 0.0) == Group((0,), 1)
    assert earliest_group([Asked()], taker("lost", a={1: inf}), [one], 0.0) is None


def test_a_batch_is_no_larger_than_those_who_can_go_along() -> None:
    """Those that have to run alone, or would be late, are no part of it."""
    batches, busy = taker("8", a={1: 1.0, 8: 2.0}), taker("1", 100.0, a={1: 3.0})
    waiting = [Asked(due_s=50), *[Asked(alone=True)] * 8]
    assert earliest_group(waiting, batches, [busy], 0.0) == Group((0,), 1)
    waiting = [Asked(due_s=0.5)] * 8 + [Asked()]
    assert earliest_group(waiting, batches, [busy], 0.0) == Group((8,), 1)


def test_what_it_cannot_answer_does_not_keep_it_from_others() -> None:
    """Its part of requests that it would answer late is not counted as work of its own."""
    slow = taker("slow", a={1: 9.0}, b={1: 9.0})
    fast = taker("fast", a={1: 3.0}, b={1: 3.0})
    waiting = [*[Asked("a", due_s=8)] * 5, Asked("b")]
    assert earliest_group(waiting, slow, [fast], 0.0) == Group((5,), 1)


def test_what_is_overtaken_again_and_again_is_left_no_more() -> None:
    """The fast one always has later requests with deadlines to compute first."""
    slow, fast = taker("slow", a={1: 9.0}), taker("fast", 9.5, a={1: 3.0})
    assert earliest_group([Asked(due_s=14, submitted_s=8), Asked()], slow, [fast], 8.5) is None
    fast.free_s = 11
    later = [Asked(due_s=17, submitted_s=8.9), Asked()]
    assert earliest_group(later, slow, [fast], 10.0) == Group((1,), 1)
    assert earliest_group([Asked(), Asked(submitted_s=1)], slow, [fast], 10.0) is None


def test_a_last_chance_comes_before_the_next_look() -> None:
    """An instance looks again after a millisecond at the soonest, also at short networks."""
    slow, fast = taker("slow", a={1: 2e-3}), taker("fast", 1e-4, a={1: 1e-3})
    assert earliest_group([Asked(due_s=2.9e-3)], slow, [fast], 0.0) == Group((0,), 1)
    assert earliest_group([Asked(due_s=3.1e-3)], slow, [fast], 0.0) is None


SECONDS = st.floats(0.1, 5.0)
KIND = st.tuples(SECONDS, SECONDS, st.booleans(), st.sampled_from(("", "a", "b")))
ASKED = st.tuples(st.sampled_from("ab"), st.floats(0, 10), st.sampled_from((3.0, 8.0, inf)))


def ended(
    crew: list[Taker], arrivals: list[tuple[float, str, float]]
) -> tuple[list[tuple[float, float]], int]:
    """When each request ended and was due, and how many nobody could compute in time any more."""
    events = [(at_s, index, name, limit_s) for index, (at_s, name, limit_s) in enumerate(arrivals)]
    heapq.heapify(events)
    waiting: list[Asked] = []
    found: list[tuple[float, float]] = []
    now_s, looks_s = 0.0, 0.1
    while events or waiting:
        while events and events[0][0] <= now_s:
            at_s, _, name, limit_s = heapq.heappop(events)
            waiting.append(Asked(name, at_s + limit_s))
        waiting.sort(key=lambda each: each.due_s)
        for each in crew:
            if each.free_s is not None and each.free_s <= now_s:
                each.free_s = None
            if each.free_s is None and waiting:
                others = [other for other in crew if other is not each]
                group = earliest_group(waiting, each, others, now_s)
                if group is not None:
                    network = waiting[group.members[0]].network
                    assert {waiting[place].network for place in group.members} == {network}
                    assert len(group.members) <= group.size
                    each.free_s = now_s + each.times(network).now_s[group.size]
                    found += [(each.free_s, waiting[place].due_s) for place in group.members]
                    waiting = [w for p, w in enumerate(waiting) if p not in group.members]
        least_s = {n: min(each.times(n).now_s[1] for each in crew) for n in "ab"}
        waiting = [each for each in waiting if now_s + least_s[each.network] <= each.due_s]
        now_s += looks_s
        assert now_s < 1000
    return found, len(arrivals) - len(found)


@settings(max_examples=80, deadline=None)
@given(st.lists(KIND, min_size=2, max_size=4), st.lists(ASKED, min_size=1, max_size=12))
def test_no_request_is_lost(
    kinds: list[tuple[float, float, bool, str]], asked: list[tuple[str, float, float]]
) -> None:
    """Instances of any speeds, with and without batches, for some networks before others: each
    request is computed, all without a deadline are, and none is begun that is late then."""
    crew = [
        taker(
            str(number),
            None,
            frozenset(first),
            a={1: a_s, **({2: 1.2 * a_s} if pairs else {})},
            b={1: b_s},
        )
        for number, (a_s, b_s, pairs, first) in enumerate(kinds)
    ]
    found, missed = ended(crew, [(at_s, name, limit_s) for name, at_s, limit_s in asked])
    assert all(end_s <= due_s + 1e-9 for end_s, due_s in found)
    assert missed <= sum(limit_s < inf for *_, limit_s in asked)


def request(order: int) -> Request:
    now_s = monotonic()
    return Request(network="a", slot=order, order=order, submitted_s=now_s, due_s=inf)


@pytest.mark.parametrize("leaves", [False, True])
def test_the_queue_hands_on_what_was_left_to_one_that_is_gone(leaves: bool) -> None:
    """An idle slow instance waits for a fast one, until that is gone or late."""
    queue = RequestQueue(4, 2, lambda _: 0.0, lambda _: None)
    fast, slow = taker("fast", a={1: 0.1}), taker("slow", a={1: 0.4})
    for number in range(2):
        queue.put(request(queue.reserve(0)[0]))
        if number == 0:
            assert queue.take(fast, 0.0) is not None
    taken: list[float] = []

    def wait() -> None:
        assert queue.take(slow, 5.0) is not None
        taken.append(monotonic() - began_s)

    began_s = monotonic()
    thread = Thread(target=wait)
    thread.start()
    sleep(0.02)
    assert not taken
    if leaves:
        queue.leave(fast)
    thread.join()
    assert taken[0] < 0.2 if leaves else 0.3 < taken[0] < 1.5
