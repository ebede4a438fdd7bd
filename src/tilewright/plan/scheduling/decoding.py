"""From an order of the calls and a mode for each to a schedule: serial schedule generation.

    order a, b, c; modes 2 cores, 1 core, 1 core; c waits for a
    a on 0, 1    0 to 5      b on 0    5 to 9      c on 1    5 to 7

One call after the other, each that no call before it in the order is yet to be waited for gets the
soonest place that is left (R. Kolisch, European Journal of Operational Research 90, 1996).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from tilewright.plan.scheduling.capacities import unusable
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.timeline import Timeline


def decode(
    problem: SchedulingProblem,
    order: Sequence[int],
    modes: Sequence[int],
    *,
    planner: str = "",
    one_by_one: bool = False,
) -> Schedule:
    """A schedule of all calls in these modes (by call number), placed by this order of the call
    numbers; where a call stands before one that it waits for, that one goes first.

    It keeps the limits of the devices; deadlines and energy are not looked at. With `one_by_one`
    each call begins after the end of the one placed before it. Raises NothingFound where in this
    order and these modes something never fits.
    """
    timeline = Timeline(problem, modes)
    for number in in_order(problem, order):
        floor = timeline.end_s if one_by_one else 0.0
        offer = timeline.offer(number, modes[number], floor)
        if offer is None:
            call = problem.calls[number]
            mode = call.modes[modes[number]]
            lacking = unusable(problem, number, mode) or "memory, or a link, at that point"
            raise NothingFound(
                f"{planner or 'this order'} finds no place for call {call.name!r} of "
                f"{problem.title} on {mode.device!r}: it needs {lacking}.",
                hint="Another planner, or other modes, may need less at a time.",
            )
        timeline.take(offer)
    return schedule_of(timeline, planner)


def in_order(problem: SchedulingProblem, order: Iterable[int]) -> Iterator[int]:
    """The call numbers as they stand in `order`, but each after all that it waits for."""
    rank = {number: place for place, number in enumerate(order)}
    left = [len(before) for before in problem.before]
    ready = [(rank[number], number) for number, count in enumerate(left) if not count]
    heapify(ready)
    while ready:
        _, number = heappop(ready)
        yield number
        for after, _ in problem.after[number]:
            left[after] -= 1
            if not left[after]:
                heappush(ready, (rank[after], after))


def schedule_of(timeline: Timeline, planner: str) -> Schedule:
    """What a timeline with all calls has, with its objective."""
    slots = sorted(timeline.slots.values(), key=lambda slot: (slot.begin_s, slot.end_s))
    transfers = sorted(timeline.transfers.values(), key=lambda way: (way.begin_s, way.end_s))
    schedule = Schedule(
        planner=planner, slots=tuple(slots), transfers=tuple(transfers), objective=0.0
    )
    return judged(timeline.problem, schedule)
