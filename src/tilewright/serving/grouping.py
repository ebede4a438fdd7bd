"""Which waiting requests an instance computes at a time: a rule without a state of its own.

    waiting a b a a a, sizes 1, 2 and 4  →  the four of a, in a batch of four

The first request that can be answered in time has its turn; others of its network go along where
that takes less time, and costs nobody a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from math import inf
from typing import Protocol

_WORTH = 0.95
"""A size is used where it takes at most so much of the time that smaller ones take, and one that
requests do not fill where it does so, too: less is noise, and a batch answers its first late."""
Costs = tuple[tuple[int, float], ...]
"""Sizes in rising order, from 1, with seconds."""


class Waiting(Protocol):
    """A request in the queue: for which network, due when on the monotonic clock, and whether it
    has to run alone."""

    @property
    def network(self) -> str: ...
    @property
    def due_s(self) -> float: ...
    @property
    def alone(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Seconds of a network on an instance by the number of requests in a batch: `costs` as measured
    at the start, of sizes that are worth it, by which sizes are compared (what is not used is not
    measured again), and `now_s` of them as of late, by which deadlines are kept."""

    costs: Costs
    now_s: Mapping[int, float]

    @classmethod
    def single(cls, takes_s: float) -> BatchTimes:
        """Of a network that computes one request at a time."""
        return cls(costs=((1, takes_s),), now_s={1: takes_s})


Times = Callable[[str], BatchTimes]


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that run together, by their places in the queue, the first one's turn it is; `size`
    is that of the batch, which is filled up where they are fewer."""

    members: tuple[int, ...]
    size: int


def worthwhile(times_s: Mapping[int, float]) -> Costs:
    """The sizes that take less time than smaller ones for as many requests, and 1."""
    kept: Costs = ((1, times_s[1]),)
    for size in sorted(times_s):
        if size > 1 and times_s[size] <= _WORTH * least_s(kept, size):
            kept = (*kept, (size, times_s[size]))
    return kept


def least_s(costs: Costs, count: int, worth: float = _WORTH) -> float:
    """The least time in which so many requests are computed one batch after the other; a batch that
    they do not fill counts as if it took 1 / `worth` times as long."""
    return _all_least_s(costs, 1 << count.bit_length(), worth)[count]


@lru_cache(maxsize=256)
def _all_least_s(costs: Costs, most: int, worth: float) -> list[float]:
    """The same for 0, 1, … `most` requests."""
    found_s = [0.0]
    for left in range(1, most + 1):
        found_s.append(
            min(_cost_s(s, each_s, left, worth) + found_s[max(0, left - s)] for s, each_s in costs)
        )
    return found_s


def _cost_s(size: int, takes_s: float, count: int, worth: float = _WORTH) -> float:
    return takes_s if size <= count else takes_s / worth


@lru_cache(maxsize=4096)
def _by_preference(costs: Costs, count: int) -> tuple[int, ...]:
    """Sizes of the first batch for so many requests: those that lead to the least time for all
    first, the larger one of equal ones."""

    def total_s(option: tuple[int, float]) -> tuple[float, int]:
        size, takes_s = option
        return _cost_s(size, takes_s, count) + least_s(costs, max(0, count - size)), -size

    return tuple(size for size, _ in sorted(costs, key=total_s))


def next_group(
    waiting: Sequence[Waiting], times: Times, now_s: float, idle: int = 0
) -> Group | None:
    """What an instance computes next of the requests that wait, the earliest deadline first; None
    where it can answer none in time.

    `times` tells what networks take there, infinite where it does not know them; `idle` other
    instances wait for requests, too, and have their share of these. No deadline is missed that is
    kept when all requests run one by one here, as far as times are as of late.
    """
    times = cache(times)
    first = _first_in_time(waiting, times, now_s)
    if first is None:
        return None
    head = waiting[first]
    costs = times(head.network).costs
    if head.alone or len(costs) == 1:
        return Group((first,), 1)
    most = 2 * costs[-1][0]  # of more than that it is nearly always the largest
    like_it = (
        place
        for place in range(first, len(waiting))
        if waiting[place].network == head.network and not waiting[place].alone
    )
    fellows = list(islice(like_it, most * (1 + idle)))
    spare = max(0, idle - (len(waiting) - len(fellows)))
    return sized_group(waiting, fellows, -(-len(fellows) // (1 + spare)), times, now_s)


def sized_group(
    waiting: Sequence[Waiting], fellows: Sequence[int], share: int, times: Times, now_s: float
) -> Group:
    """Of requests for one network, by their places, the first of which is computed anyway, as many
    as are best put together, `share` at most, and cost nobody a deadline."""
    head = waiting[fellows[0]]
    costs = times(head.network).costs
    for size in _by_preference(costs, min(share, 2 * costs[-1][0])):
        group = Group(tuple(fellows[: min(size, share)]), size)
        if size == 1 or head.due_s == inf or not _costs_deadlines(waiting, group, times, now_s):
            return group
    return Group((fellows[0],), 1)


def _first_in_time(waiting: Sequence[Waiting], times: Times, now_s: float) -> int | None:
    for place, request in enumerate(waiting):
        takes_s = times(request.network).now_s[1]
        if takes_s < inf and now_s + takes_s <= request.due_s:
            return place
    return None


def _costs_deadlines(waiting: Sequence[Waiting], group: Group, times: Times, now_s: float) -> bool:
    """Whether a request misses its deadline when a group runs at first, and would not one by
    one."""
    end_s = now_s + times(waiting[group.members[0]].network).now_s[group.size]
    others = [place for place in range(len(waiting)) if place not in group.members]
    together = {place for place in group.members if end_s <= waiting[place].due_s}
    together |= _in_time(waiting, others, times, end_s)
    return not _in_time(waiting, range(len(waiting)), times, now_s) <= together


def _in_time(
    waiting: Sequence[Waiting], order: Sequence[int], times: Times, now_s: float
) -> set[int]:
    """Of the requests with a deadline those that are answered in time one by one in this order,
    when those that would be late are left out."""
    found = set[int]()
    for place in order:
        request = waiting[place]
        end_s = now_s + times(request.network).now_s[1]
        if request.due_s < inf and end_s <= request.due_s:
            found.add(place)
            now_s = end_s
    return found
