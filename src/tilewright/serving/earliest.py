"""Which waiting requests an instance computes next where instances differ: those that it ends
before others would, as far as all know what they take. Like `grouping`, a rule without a state.

    waiting a           an idle instance that takes 9 ms, a busy one that is free in 2 ms and takes
                        3 ms       →  a is left to the busy one, which ends it in 5 ms
    waiting a a a a     →  the idle one takes one of them, for the fourth would end in 14 ms there

With batches an instance takes as many as it ends before the last one of all ends elsewhere. What
later requests have overtaken for as long as the instance would take itself is left no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from tilewright.serving.division import divided
from tilewright.serving.grouping import (
    BatchTimes,
    Group,
    Times,
    Waiting,
    least_s,
    sized_group,
)

_LOOKS, _LEAST_LOOK_S = 10, 1e-3


def look_s(takes_s: float) -> float:
    """After how long at most an instance that leaves a request to another one looks again, by the
    time that it would take itself."""
    return max(_LEAST_LOOK_S, takes_s / _LOOKS)


class Queued(Waiting, Protocol):
    """A request in the queue, which came at a time of the monotonic clock."""

    @property
    def submitted_s(self) -> float: ...


@dataclass(slots=True, eq=False)
class Taker:
    """An instance as the queue knows it: what networks take there, what it is `alike` with, and
    whose requests it computes before others (none: all alike). `free_s` is when it should have
    computed what it took, by the monotonic clock; None while it takes."""

    times: Times
    alike: object = None
    first: frozenset[str] = frozenset()
    free_s: float | None = field(default=None)

    def wait_s(self, now_s: float) -> float:
        """For how long it computes yet. What is late by so long is taken to need as long again, so
        that one that hangs is soon waited for no more."""
        return 0.0 if self.free_s is None else abs(self.free_s - now_s)

    def is_for(self, network: str, known: Sequence[Taker]) -> bool:
        """Whether it computes requests for a network before others; so do all where none does."""
        return not self.first or network in self.first or not any(network in t.first for t in known)


def differ(takers: Sequence[Taker]) -> bool:
    """Whether it matters which of these computes a request."""
    return len({taker.alike for taker in takers}) > 1 or any(t.first for t in takers)


def earliest_group(
    waiting: Sequence[Queued], taker: Taker, others: Sequence[Taker], now_s: float
) -> Group | None:
    """What an instance computes next of the requests that wait, the earliest deadline first; None
    where it can answer none in time, or where `others` that are there end all sooner.

    Networks are divided one after the other, in the order of their first requests, among those that
    are for them. Of networks for others an instance takes what it ends before these do.
    """
    crew = [taker, *others]
    busy_s = {id(each): each.wait_s(now_s) for each in crew}
    places: dict[str, list[int]] = {}
    for place, request in enumerate(waiting):
        places.setdefault(request.network, []).append(place)
    helped: list[tuple[str, dict[int, float]]] = []
    for network in places:
        own = [each for each in crew if each.is_for(network, crew)]
        if taker not in own:
            helped.append((network, dict(busy_s)))
        shares, ends_s = _shares(network, len(places[network]), own, busy_s)
        if taker in own:
            group = _taken(waiting, places[network], taker, shares[0], ends_s, now_s)
            if group is not None:
                return group
        for each, share, end_s in zip(own, shares, ends_s, strict=True):
            if each is not taker:  # which takes nothing of its share
                busy_s[id(each)] = end_s(share)
    for network, before_s in helped:
        own = [taker, *(each for each in others if each.is_for(network, crew))]
        shares, ends_s = _shares(network, len(places[network]), own, before_s)
        group = _taken(waiting, places[network], taker, shares[0], ends_s, now_s)
        if group is not None:
            return group
    return None


_Ends = Callable[[int], float]


def _shares(
    network: str, count: int, own: Sequence[Taker], busy_s: dict[int, float]
) -> tuple[list[int], list[_Ends]]:
    """How many requests for a network each instance computes, and when it ends so many."""
    ends_s = [_ends(each.times(network), busy_s[id(each)]) for each in own]
    return divided(count, ends_s), ends_s


def _ends(times: BatchTimes, wait_s: float) -> _Ends:
    begin_s, by_now_s = times.costs[0][1], times.now_s[1]
    slowdown = by_now_s / begin_s if by_now_s < inf and begin_s else 1.0

    def end_s(count: int) -> float:
        if count == 0:
            return wait_s
        return wait_s + slowdown * least_s(times.costs, count, 1.0) if by_now_s < inf else inf

    return end_s


def _taken(
    waiting: Sequence[Queued],
    places: Sequence[int],
    taker: Taker,
    share: int,
    ends_s: Sequence[_Ends],
    now_s: float,
) -> Group | None:
    """Of requests for a network those that an instance computes now, given its share."""
    takes_s = taker.times(waiting[places[0]].network).now_s[1]
    in_time = [place for place in places if now_s + takes_s <= waiting[place].due_s]
    if not in_time or takes_s == inf:
        return None
    first = in_time[0]
    if share == 0 and not (
        _is_last_chance(waiting[first], takes_s, ends_s, now_s)
        or _is_overtaken(waiting[: first + 1], takes_s, now_s)
    ):
        return None
    if waiting[first].alone:
        return Group((first,), 1)
    fellows = [place for place in in_time if not waiting[place].alone]
    return sized_group(waiting, fellows, max(1, min(share, len(fellows))), taker.times, now_s)


def _is_last_chance(
    request: Waiting, takes_s: float, ends_s: Sequence[_Ends], now_s: float
) -> bool:
    """Whether this instance could not keep the deadline any more when it looks again, and who would
    compute the request sooner computes something else now: what that takes may be wrong."""
    _, *others = ends_s
    begins_s = min(others, key=lambda end_s: end_s(1))(0)
    return begins_s > 0 and now_s + takes_s + look_s(takes_s) > request.due_s


def _is_overtaken(until: Sequence[Queued], takes_s: float, now_s: float) -> bool:
    """Whether the last of these, which has waited for so long, has its turn after one that came
    later: others may have it wait for ever."""
    *before, last = until
    came_s = last.submitted_s
    return now_s - came_s >= takes_s and any(each.submitted_s > came_s for each in before)
