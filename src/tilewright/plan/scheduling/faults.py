"""Where a schedule breaks its problem: a call twice, a core for two at a time, a limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tilewright.plan.scheduling.capacities import ROUNDING
from tilewright.plan.scheduling.measures import energy, overfull
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot


def faults(problem: SchedulingProblem, schedule: Schedule) -> Iterator[str]:
    """What a schedule breaks, a sentence for each; nothing where it is as it should be.

    Begins and ends may be off by 1e-9 of the latency, for rounding. Where calls have no proper slot
    or transfers none between calls, nothing else is looked at.
    """
    first = [*_calls(problem, schedule), *_transfers(problem, schedule)]
    if first:
        yield from first
        return
    margin = ROUNDING * schedule.latency_s
    yield from _overlaps(problem, schedule, margin)
    yield from _waits(problem, schedule, margin)
    for device, what, peak, most in overfull(problem, schedule):
        yield f"{device!r} has {what} {most:.6g} for calls and would need {peak:.6g} at a time"
    yield from _limits(problem, schedule)


def _calls(problem: SchedulingProblem, schedule: Schedule) -> Iterator[str]:
    times = Counter(slot.call for slot in schedule.slots)
    for call in problem.calls:
        if times[call.name] != 1:
            yield f"call {call.name!r} has {times[call.name]} slots"
    for slot in schedule.slots:
        if slot.call not in problem.numbers:
            yield f"there is no call {slot.call!r}"
        elif not 0 <= slot.mode < len(problem.calls[problem.numbers[slot.call]].modes):
            yield f"call {slot.call!r} has no mode {slot.mode}"
        else:
            yield from _slot(problem, slot, ROUNDING * schedule.latency_s)


def _slot(problem: SchedulingProblem, slot: Slot, margin: float) -> Iterator[str]:
    mode = problem.calls[problem.numbers[slot.call]].modes[slot.mode]
    cores = set(slot.cores)
    if not len(cores) == len(slot.cores) == mode.cores:
        yield f"call {slot.call!r} has the cores {slot.cores}, its mode {mode.cores} of them"
    if not cores <= set(range(problem.device[mode.device].cores)):
        yield f"call {slot.call!r} has cores {slot.cores} that {mode.device!r} has not"
    if not slot.begin_s >= -margin:
        yield f"call {slot.call!r} begins at {slot.begin_s:.6g} s"
    if not abs(slot.end_s - slot.begin_s - mode.latency_s) <= margin:
        taken = slot.end_s - slot.begin_s
        yield f"call {slot.call!r} takes {taken:.6g} s, in its mode {mode.latency_s:.6g} s"


def _transfers(problem: SchedulingProblem, schedule: Schedule) -> Iterator[str]:
    margin = ROUNDING * schedule.latency_s
    for (call, destination), count in Counter(
        (way.call, way.destination) for way in schedule.transfers
    ).items():
        if count > 1:
            yield f"the result of {call!r} goes to {destination!r} {count} times"
    for way in schedule.transfers:
        number, link = problem.numbers.get(way.call), (way.origin, way.destination)
        needed_s = None if number is None else problem.transfer_s(number, *link)
        if needed_s is None or link not in problem.link:
            yield f"no link lets the result of {way.call!r} go from {link[0]!r} to {link[1]!r}"
            continue
        if not abs(way.end_s - way.begin_s - needed_s) <= margin:
            yield f"sending the result of {way.call!r} takes {needed_s:.6g} s, not as planned"


def _overlaps(problem: SchedulingProblem, schedule: Schedule, margin: float) -> Iterator[str]:
    cores: defaultdict[tuple[str, int], list[Slot]] = defaultdict(list)
    links: defaultdict[tuple[str, str], list[TransferSlot]] = defaultdict(list)
    for slot in schedule.slots:
        for core in slot.cores:
            cores[schedule.mode_of(problem, slot.call).device, core].append(slot)
    for way in schedule.transfers:
        links[way.origin, way.destination].append(way)
    for (device, core), slots in cores.items():
        for one, other in _meeting(slots, margin):
            yield f"core {core} of {device!r} has {one!r} and {other!r} at a time"
    for (origin, destination), ways in links.items():
        for one, other in _meeting(ways, margin):
            yield f"the results of {one!r} and {other!r} go {origin!r} → {destination!r} at a time"


def _meeting(uses: Iterable[Slot | TransferSlot], margin: float) -> Iterator[tuple[str, str]]:
    """The calls of uses that follow each other and overlap; those of no length never do."""
    lasting = [use for use in uses if use.end_s > use.begin_s]
    for one, other in pairwise(sorted(lasting, key=lambda use: (use.begin_s, use.end_s))):
        if other.begin_s < one.end_s - margin:
            yield one.call, other.call


def _waits(problem: SchedulingProblem, schedule: Schedule, margin: float) -> Iterator[str]:
    sent = {(way.call, way.destination): way for way in schedule.transfers}
    for number, call in enumerate(problem.calls):
        slot, device = schedule.slot[call.name], schedule.mode_of(problem, call.name).device
        for before, _ in problem.before[number]:
            other = schedule.slot[problem.calls[before].name]
            origin = schedule.mode_of(problem, other.call).device
            ready = other.end_s
            if origin != device:
                way = sent.get((other.call, device))
                if way is None or way.origin != origin:
                    yield f"the result of {other.call!r} never goes to {device!r}"
                    continue
                if way.begin_s < other.end_s - margin:
                    yield f"the result of {other.call!r} is sent before it is there"
                ready = way.end_s
            if origin != device or set(slot.cores) != set(other.cores):
                ready += problem.handoff_s
            if slot.begin_s < ready - margin:
                yield f"call {call.name!r} begins before the result of {other.call!r} is there"


def _limits(problem: SchedulingProblem, schedule: Schedule) -> Iterator[str]:
    for network, seconds in problem.limits.deadlines_s.items():
        end = schedule.end_of(problem, network)
        if end > seconds * (1 + ROUNDING):
            yield f"network {network!r} ends after {end:.6g} s, its deadline is {seconds:.6g} s"
    most = problem.limits.energy_j
    used, _ = energy(problem, schedule) if most is not None else (None, "")
    if most is not None and used is not None and used > most * (1 + ROUNDING):
        yield f"an inference takes {used:.6g} J, energy_j allows {most:.6g} J"
