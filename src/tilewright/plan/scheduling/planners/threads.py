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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import schedule_of
from tilewright.plan.scheduling.parts import ScheduledCall
from tilewright.plan.scheduling.planners.heft import by_urgency
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import never_beside_another, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
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


def turning_point(call: ScheduledCall, places: Sequence[int], gain: float) -> int:
    """The place of the mode with the fewest cores that takes at most so much longer than the
    fastest."""
    least = min(call.modes[place].latency_s for place in places)
    enough = [place for place in places if call.modes[place].latency_s <= least * (1 + gain)]
    return min(enough, key=lambda place: (call.modes[place].cores, call.modes[place].latency_s))


def _dispatched(
    problem: SchedulingProblem, modes: Sequence[Sequence[int]], gain: float
) -> Schedule:
    timeline = Timeline(problem)
    alone = set(never_beside_another(waits_of(problem)))
    wanted = [
        turning_point(call, modes[number], GAINS[0] if number in alone else gain)
        for number, call in enumerate(problem.calls)
    ]
    order, now = by_urgency(problem), 0.0
    while order:
        began = next(_begun(timeline, order, now, (wanted, modes)), None)
        if began is None:
            later = [slot.end_s for slot in timeline.slots.values() if slot.end_s > now]
            if later:
                now = min(later)
                continue
            began = _forced(timeline, order, modes)
        timeline.take(began)
        order.remove(began.number)
    return schedule_of(timeline, "threads")


def _begun(
    timeline: Timeline,
    order: Sequence[int],
    now: float,
    choice: tuple[Sequence[int], Sequence[Sequence[int]]],
) -> Iterator[Offer]:
    """The calls that may begin now as the policy has it, the most urgent first."""
    wanted, modes = choice
    for number in _ready(timeline, order, now):
        call = timeline.problem.calls[number]
        device = call.modes[wanted[number]].device
        busy = [
            slot
            for other, slot in timeline.slots.items()
            if slot.end_s > now and timeline.device_of(other) == device
        ]
        free = timeline.problem.device[device].cores - len({c for s in busy for c in s.cores})
        place = wanted[number]
        if call.modes[place].cores > free:
            fitting = [each for each in modes[number] if call.modes[each].cores <= free]
            if not fitting:
                continue
            place = min(fitting, key=lambda each, own=call.modes: own[each].latency_s)
            until = max(slot.end_s for slot in busy)
        else:
            until = float("inf")
        offer = timeline.offer(number, place, now)
        if offer is not None and offer.slot.end_s <= until:
            yield offer


def _ready(timeline: Timeline, order: Sequence[int], now: float) -> Iterator[int]:
    for number in order:
        slots = [timeline.slots.get(before) for before, _ in timeline.problem.before[number]]
        if all(slot is not None and slot.end_s <= now for slot in slots):
            yield number


def _forced(timeline: Timeline, order: Sequence[int], modes: Sequence[Sequence[int]]) -> Offer:
    """Where nothing runs and nothing may begin by the policy: the first call that can begin at
    all."""
    for number in _ready(timeline, order, timeline.end_s):
        offers = (timeline.offer(number, place) for place in modes[number])
        found = min(
            (offer for offer in offers if offer is not None),
            key=lambda offer: offer.slot.end_s,
            default=None,
        )
        if found is not None:
            return found
    raise NothingFound("by the policy of threads no call can begin any more")
