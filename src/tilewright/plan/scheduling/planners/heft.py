"""Heterogeneous earliest finish time: the call with the longest way to the end goes first, and gets
the mode in which it ends soonest (H. Topcuoglu, S. Hariri and M.-Y. Wu, IEEE Transactions on
Parallel and Distributed Systems 13, 2002).

    rank(call) = its mean time + max over its readers of (mean transfer + their rank)

The mean over few cores and many, and over devices ten times as fast as others, is no time that a
call will take: where there are several devices, lists by the fastest modes are made, too.

Where calls may take several cores, each that takes all it can get ends soonest and leaves none to
its neighbours. So the list is gone through several times, on all devices and on each alone, with at
most 1, 2, 4 … cores for each call that another may run beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from statistics import fmean

from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import in_order, schedule_of
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import never_beside_another, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.timeline import Offer, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Heft:
    """The best of these lists by the objective, or the sequential schedule where none is better."""

    name: str = "heft"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them; `limit_s` is not needed."""
        sequential: Callable[[], Schedule] = partial(Sequential().schedule, problem, limit_s)
        several = len(problem.devices) > 1
        others = lists(problem, time=min) if several else ()
        return best(problem, self.name, chain((sequential,), lists(problem), others))


def lists(
    problem: SchedulingProblem, time: Callable[[list[float]], float] = fmean
) -> Iterator[Callable[[], Schedule]]:
    """The lists of `heft`, each yet to be made; first that in which calls may have all modes. One
    raises NothingFound where a call finds no place. `time` is what a call is taken to last, by the
    seconds of its modes."""
    order = list(in_order(problem, by_urgency(problem, time)))
    for modes, frugal in _choices(problem):
        yield partial(_listed, problem, order, modes, frugal)


def by_urgency(
    problem: SchedulingProblem, time: Callable[[list[float]], float] = fmean
) -> list[int]:
    """The call numbers by the latest begin that keeps their deadline: where there is none by the
    length of the way from a call to the end, the longest first."""
    ranks = upward_ranks(problem, time)
    deadlines = problem.limits.deadlines_s
    latest = max([*deadlines.values(), *ranks])
    shared = deadlines.get("", inf)
    due = [min(deadlines.get(call.network, inf), shared, latest) for call in problem.calls]
    return sorted(range(len(ranks)), key=lambda number: (due[number] - ranks[number], number))


def upward_ranks(
    problem: SchedulingProblem, time: Callable[[list[float]], float] = fmean
) -> list[float]:
    """Seconds from the begin of each call to the end of the longest way through its readers, by
    `time` of modes and the means over links."""
    usable = usable_modes(problem)
    ranks = [0.0] * len(problem.calls)
    for number in reversed(range(len(problem.calls))):
        modes = [problem.calls[number].modes[place] for place in usable[number]]
        sent = sum(problem.transfers_s(number)) / len(problem.devices) ** 2
        after = max((sent + ranks[reader] for reader, _ in problem.after[number]), default=0.0)
        ranks[number] = time([mode.latency_s for mode in modes]) + after
    return ranks


def _choices(problem: SchedulingProblem) -> Iterator[tuple[list[Sequence[int]], bool]]:
    """The modes that calls may have in each list, and whether it looks at energy first."""
    usable = usable_modes(problem)
    alone = set(never_beside_another(waits_of(problem)))
    seen: set[tuple[tuple[int, ...], ...]] = set()
    saving = problem.objective == "energy" or problem.limits.energy_j is not None
    names = [device.name for device in problem.devices]
    for device in (None, *(names if len(names) > 1 else ())):
        for most in _caps(problem):
            chosen: list[Sequence[int]] = []
            for number, (call, places) in enumerate(zip(problem.calls, usable, strict=True)):
                there = [p for p in places if device in (None, call.modes[p].device)] or places
                least = min(call.modes[place].cores for place in there)
                few = [p for p in there if call.modes[p].cores <= max(most, least)]
                chosen.append(there if number in alone else few)
            key = tuple(map(tuple, chosen))
            if key not in seen:
                seen.add(key)
                yield from ((chosen, frugal) for frugal in (False, True)[: 1 + saving])


def _caps(problem: SchedulingProblem) -> list[int]:
    """The most cores that a call may take: all of the largest device, half of them, and so on."""
    most = max(device.cores for device in problem.devices)
    return [most >> halved for halved in range(most.bit_length())]


def _listed(
    problem: SchedulingProblem, order: Sequence[int], modes: Sequence[Sequence[int]], frugal: bool
) -> Schedule:
    """Each call in the mode in which it ends soonest, or that takes the least energy; of such in
    the one that takes the least of the device."""
    timeline = Timeline(problem)
    for number in order:
        call = problem.calls[number]
        offers = (timeline.offer(number, place) for place in modes[number])
        costs = [(_cost(problem, each, frugal), each) for each in offers if each is not None]
        found = min(costs, key=lambda pair: pair[0], default=None)
        if found is None:
            raise NothingFound(f"in a list of heft there is no place for call {call.name!r}")
        timeline.take(found[1])
    return schedule_of(timeline, "heft")


def _cost(problem: SchedulingProblem, offer: Offer, frugal: bool) -> tuple[float, ...]:
    mode = problem.calls[offer.number].modes[offer.slot.mode]
    joules = (mode.energy_j or 0.0) if frugal else 0.0
    return joules, offer.slot.end_s, mode.cores * mode.latency_s
