"""Each call on as many cores as it gains from, and others on the cores that are left: the policy of
J. Liu, D. Li, G. Kestor and J. Vetter (Runtime Concurrency Control and Operation Scheduling for
High Performance Neural Network Training, IPDPS 2019).

    conv1   90 µs on 1 core, 50 on 2, 49 on 4     its turning point is 2 cores of 4
    conv2   80 µs on 1 core, 45 on 2              begins beside it, on the 2 that are left

Whenever something ends, the calls that may begin are gone through, the one with the longest way to
the end first. It takes the cores of its turning point where so many are free. Where fewer are, and
something else runs, it runs on these if it ends before that does, so that it delays nobody; else it
waits.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf

from tilewright.cost.enough_cores import beside_s, enough_cores
from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import schedule_of
from tilewright.plan.scheduling.parts import ScheduledCall
from tilewright.plan.scheduling.planners.heft import by_urgency
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import never_beside_another, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.timeline import Offer, Timeline

GAINS = (0.05, 0.3, 1.0)
"""More cores are taken only where fewer would take so much longer; each is tried. Calls that
nothing can run beside are held to the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """By that policy, each call where it is fastest or all on one device where that can be; the
    sequential schedule where none is better."""

    name: str = "threads"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them; `limit_s` is not needed."""
        sequential: Callable[[], Schedule] = partial(Sequential().schedule, problem, limit_s)
        names = [device.name for device in problem.devices]
        attempts = (
            partial(_dispatched, problem, modes, gain)
            for gain in GAINS
            for device in (None, *(names if len(names) > 1 else ()))
            for modes in [_modes_on(problem, device)]
        )
        return best(problem, self.name, chain((sequential,), attempts))


def _modes_on(problem: SchedulingProblem, device: str | None) -> list[Sequence[int]]:
    """For each call its modes there, the device where it is fastest if it has none or none is
    said."""
    found: list[Sequence[int]] = []
    for call, places in zip(problem.calls, usable_modes(problem), strict=True):
        fastest = min(places, key=lambda place, own=call.modes: own[place].latency_s)
        chosen = {call.modes[place].device for place in places} & {device}
        there = chosen or {call.modes[fastest].device}
        found.append([place for place in places if call.modes[place].device in there])
    return found


def turning_point(
    call: ScheduledCall,
    places: Sequence[int],
    gain: float,
    others: float = 0.0,
    scale: float | None = None,
) -> int:
    """The place of the mode with the fewest cores that takes at most so much longer than the
    fastest, beside calls that stream `others` bytes per second (see `cost.enough_cores`)."""
    fastest: dict[int, tuple[float, int]] = {}
    for place in places:
        mode = call.modes[place]
        taken_s = beside_s(mode.latency_s, mode.moved_bytes, others, scale)
        fastest[mode.cores] = min((taken_s, place), fastest.get(mode.cores, (inf, place)))
    return fastest[enough_cores({n: each[0] for n, each in fastest.items()}, gain)][1]


def _dispatched(
    problem: SchedulingProblem, modes: Sequence[Sequence[int]], gain: float
) -> Schedule:
    alone = set(never_beside_another(waits_of(problem)))
    gains = [GAINS[0] if number in alone else gain for number in range(len(problem.calls))]
    dispatch = _Dispatch(problem, modes, gains)
    while dispatch.waiting:
        offer = next(dispatch.begun(), None)
        if offer is not None:
            dispatch.take(offer)
        elif dispatch.running:
            dispatch.go_on()
        else:
            dispatch.take(dispatch.forced())
    return schedule_of(dispatch.timeline, "threads")


class _Dispatch:
    """What runs at a moment and what may begin then; `waiting` are the calls of which all that they
    wait for have their places, the most urgent first."""

    def __init__(
        self, problem: SchedulingProblem, modes: Sequence[Sequence[int]], gains: Sequence[float]
    ) -> None:
        self.problem, self.modes, self.gains = problem, modes, gains
        self.timeline, self.now = Timeline(problem), 0.0
        self._alone = [
            turning_point(*each) for each in zip(problem.calls, modes, gains, strict=True)
        ]
        self.running: list[tuple[str, Slot]] = []
        self._left = [len(before) for before in problem.before]
        rank = {number: place for place, number in enumerate(by_urgency(problem))}
        self._rank = rank
        free = (number for number, count in enumerate(self._left) if not count)
        self.waiting = sorted((rank[number], number) for number in free)

    def begun(self) -> Iterator[Offer]:
        """The calls that may begin now as the policy has it, the most urgent first."""
        for number in self._ready():
            call, place, until = self.problem.calls[number], self._wanted(number), inf
            device = call.modes[place].device
            busy = [slot for name, slot in self.running if name == device]
            taken = {core for slot in busy for core in slot.cores}
            free = self.problem.device[device].cores - len(taken)
            if call.modes[place].cores > free:
                fitting = [each for each in self.modes[number] if call.modes[each].cores <= free]
                if not fitting:
                    continue
                place = min(fitting, key=lambda each, own=call.modes: own[each].latency_s)
                until = max(slot.end_s for slot in busy)
            offer = self.timeline.offer(number, place, self.now)
            if offer is not None and offer.slot.end_s <= until:
                yield offer

    def _wanted(self, number: int) -> int:
        """The mode of a call that may begin now, by what runs on the device where it would."""
        call, place = self.problem.calls[number], self._alone[number]
        device = self.problem.device[call.modes[place].device]
        others = sum(
            self.problem.calls[self.problem.numbers[slot.call]].modes[slot.mode].bytes_per_s
            for name, slot in self.running
            if name == device.name
        )
        if not others or device.contention_bytes_per_s is None:
            return place
        there = [n for n in self.modes[number] if call.modes[n].device == device.name]
        return turning_point(call, there, self.gains[number], others, device.contention_bytes_per_s)

    def forced(self) -> Offer:
        """Where nothing runs and nothing may begin by the policy: the first call that can begin at
        all."""
        for number in self._ready():
            offers = (self.timeline.offer(number, place) for place in self.modes[number])
            ends = {each.slot.end_s: each for each in offers if each is not None}
            if ends:
                return ends[min(ends)]
        raise NothingFound("by the policy of threads no call can begin any more")

    def take(self, offer: Offer) -> None:
        """Give a call its place."""
        self.timeline.take(offer)
        self.waiting.remove((self._rank[offer.number], offer.number))
        if offer.slot.end_s > self.now:
            self.running.append((self.timeline.device_of(offer.number), offer.slot))
        for reader, _ in self.problem.after[offer.number]:
            self._left[reader] -= 1
            if not self._left[reader]:
                insort(self.waiting, (self._rank[reader], reader))

    def go_on(self) -> None:
        """To the next moment at which something ends."""
        self.now = min(slot.end_s for _, slot in self.running)
        self.running = [each for each in self.running if each[1].end_s > self.now]

    def _ready(self) -> Iterator[int]:
        for _, number in self.waiting:
            ends = (self.timeline.slots[before].end_s for before, _ in self.problem.before[number])
            if max(ends, default=0.0) <= self.now:
                yield number
