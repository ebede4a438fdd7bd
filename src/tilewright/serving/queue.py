"""The queue of a server: bounded, earliest deadline first, with a slot of memory for each request.

Every request that is taken holds a slot until it is answered, so that full memory is a full queue
and nothing grows.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Callable
from math import inf
from time import monotonic

from tilewright.core.refusals import QueueFull, ServerClosed
from tilewright.serving.earliest import Taker, differ, earliest_group, look_s
from tilewright.serving.grouping import Group, next_group
from tilewright.serving.requests import Request

Expected = Callable[[str], float]
"""Seconds that a network takes, by its name."""


class RequestQueue:
    """At most `capacity` requests wait here; `running` more slots are for those that are computed.

    `soonest` says what each network takes on the instance that is fastest for it; who cannot be
    answered in time even there is handed to `missed`, which releases it, by whoever runs `expire`.
    """

    def __init__(
        self, capacity: int, running: int, soonest: Expected, missed: Callable[[Request], None]
    ) -> None:
        self._capacity = capacity
        self._soonest, self._missed = soonest, missed
        self._waiting: list[Request] = []
        self._coming, self._count, self._idle = 0, 0, 0
        self._takers: list[Taker] = []
        self._alarm_s = inf
        self._slots = capacity + running
        self._free = list(reversed(range(self._slots)))
        self._closed: Exception | None = None
        lock = threading.Lock()
        self._room, self._work = threading.Condition(lock), threading.Condition(lock)
        self._due, self._rest = threading.Condition(lock), threading.Condition(lock)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def over(self) -> bool:
        """Whether it is closed and every request was answered."""
        return self._closed is not None and len(self._free) == self._slots

    def reserve(self, timeout_s: float | None) -> tuple[int, int]:
        """A slot and a number for a request, when there is room; None waits for it for ever.

        Raises QueueFull where there is none in time, and what the queue was closed with.
        """
        end_s = inf if timeout_s is None else monotonic() + timeout_s
        with self._room:
            while self._closed is None and self._coming + len(self._waiting) >= self._capacity:
                left_s = end_s - monotonic()
                if left_s <= 0:
                    raise QueueFull(
                        f"{self._capacity} requests wait already",
                        hint="Submit more slowly, give a timeout_s to wait for room, or a larger "
                        "queue.",
                    )
                self._room.wait(None if left_s == inf else left_s)
            if self._closed is not None:
                raise self._closed
            self._coming += 1
            self._count += 1
            return self._free.pop(), self._count

    def put(self, request: Request) -> None:
        """Let a request wait in its turn. Raises what the queue was closed with meanwhile."""
        with self._work:
            self._coming -= 1
            if self._closed is not None:
                self._free_slot(request.slot)
                raise self._closed
            self._insert(request)

    def give_up(self, slot: int) -> None:
        """Give back what was reserved for a request that does not come."""
        with self._room:
            self._coming -= 1
            self._free_slot(slot)
            self._room.notify()

    def again(self, request: Request) -> None:
        """Let a request whose instance failed run once more: before those that came later."""
        with self._work:
            self._insert(request)

    def take(self, taker: Taker, patience_s: float) -> tuple[list[Request], int] | None:
        """The requests that an instance is to compute next, and the size of the batch in which it
        does so; None when none came within `patience_s`. Where instances differ, requests are left
        to those that end them sooner."""
        end_s = monotonic() + patience_s
        with self._work:
            if taker not in self._takers:
                self._takers.append(taker)
            taker.free_s = None
            while True:
                now_s = monotonic()
                group = self._next(taker, now_s)
                if group is not None:
                    taken = [self._waiting[place] for place in group.members]
                    taker.free_s = now_s + taker.times(taken[0].network).now_s[group.size]
                    for place in reversed(group.members):
                        del self._waiting[place]
                    self._room.notify(len(taken))
                    return taken, group.size
                if self.over or now_s >= end_s:
                    return None
                self._idle += 1
                self._work.wait(min(end_s - now_s, self._look_s(taker)))
                self._idle -= 1

    def leave(self, taker: Taker) -> None:
        """An instance computes nothing until it takes again: nothing is left to it meanwhile."""
        with self._work:
            if taker in self._takers:
                self._takers.remove(taker)
                self._work.notify_all()

    def _next(self, taker: Taker, now_s: float) -> Group | None:
        if not differ(self._takers):
            return next_group(self._waiting, taker.times, now_s, self._idle)
        others = [each for each in self._takers if each is not taker]
        return earliest_group(self._waiting, taker, others, now_s)

    def _look_s(self, taker: Taker) -> float:
        """When to look again at what was left to others: they may turn out to be late."""
        if not self._waiting or not differ(self._takers):
            return inf
        networks = {request.network for request in self._waiting}
        return look_s(min(taker.times(network).now_s[1] for network in networks))

    def release(self, request: Request) -> None:
        """The request was answered: its slot is free."""
        with self._rest:
            self._free_slot(request.slot)

    def withdraw(self, request: Request) -> None:
        """A request was cancelled: it waits no longer. One that is computed stays in its slot until
        that is over."""
        with self._room:
            if request in self._waiting:
                self._waiting.remove(request)
                self._free_slot(request.slot)
                self._room.notify()

    def expire(self) -> None:
        """Hand on those that cannot be answered in time any more, when that comes true, until the
        queue is over."""
        while True:
            with self._due:
                now_s = monotonic()
                latest = {
                    request: request.due_s - self._soonest(request.network)
                    for request in self._waiting
                    if request.due_s < inf
                }
                missed = [request for request, begin_s in latest.items() if begin_s < now_s]
                for request in missed:
                    self._waiting.remove(request)
                    self._room.notify()
                if self.over:
                    return
                if not missed:
                    self._alarm_s = min(latest.values(), default=inf)
                    left_s = self._alarm_s - now_s
                    self._due.wait(None if left_s == inf else max(1e-4, left_s))
            for request in missed:
                self._missed(request)

    def close(self, why: Exception | None = None) -> None:
        """Take no more requests."""
        with self._room:
            self._closed = self._closed or why or ServerClosed("the server is closed")
            for each in (self._room, self._work, self._due, self._rest):
                each.notify_all()

    def wait_until_over(self, timeout_s: float | None) -> bool:
        """Whether every request was answered within so many seconds of a closed queue."""
        with self._rest:
            return self._rest.wait_for(lambda: self.over, timeout_s)

    def left(self) -> list[Request]:
        """Those that wait now; they wait no longer, and are the caller's to release."""
        with self._room:
            found, self._waiting = self._waiting, []
            return found

    def _insert(self, request: Request) -> None:
        insort(self._waiting, request, key=lambda each: each.rank)
        if request.due_s == inf and not differ(self._takers):
            self._work.notify()
            return
        self._work.notify_all()  # not every instance can answer it in time, or is to
        if request.due_s - self._soonest(request.network) < self._alarm_s:
            self._due.notify()

    def _free_slot(self, slot: int) -> None:
        self._free.append(slot)
        if self.over:
            for each in (self._work, self._due, self._rest):
                each.notify_all()
