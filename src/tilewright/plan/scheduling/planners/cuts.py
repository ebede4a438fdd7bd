"""Where a problem falls apart: at calls that every other call comes before or after.

    stem → a → (b, c) → concat → (d, e → f) → classifier
    sections   stem a    a b c concat    concat d e f classifier

Each is planned by itself, with the call that it begins with in the mode in which the one before it
ends; what that call may save in another mode are hand-offs, so only modes that take no longer than
these come into question, mostly one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.parts import NO_LIMITS, ScheduledCall, ScheduleDevice
from tilewright.plan.scheduling.planners.modes import Reduced
from tilewright.plan.scheduling.precedence import never_beside_another, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot


@dataclass(frozen=True, kw_only=True)
class Sections:
    """A problem in sections, by the numbers of their first and last calls, which two of them have
    in common. `places` are the modes that come into question for those."""

    problem: SchedulingProblem
    ends: Sequence[tuple[int, int]]
    places: Mapping[int, tuple[int, ...]]

    def section(self, number: int, first: Sequence[int], *, bare: bool) -> Reduced:
        """A section as a problem, its first call in some of its modes. Its last call, which counts
        in the next one, takes what it takes longer than in its fastest mode; nothing if `bare`."""
        problem, (begin, end) = self.problem, self.ends[number]
        calls = list(problem.calls[begin : end + 1])
        kept = [list(range(len(call.modes))) for call in calls]
        kept[0] = list(first)
        if number + 1 < len(self.ends):
            kept[-1] = list(self.places[end])
            calls[-1] = _shortened(calls[-1], bare)
        for place in (0, -1):
            modes = tuple(calls[place].modes[at] for at in kept[place])
            calls[place] = replace(calls[place], modes=modes, task="")
        names = {call.name for call in calls}
        waits = tuple(wait for wait in problem.waits if {wait.before, wait.after} <= names)
        part = replace(problem, calls=tuple(calls), waits=waits, limits=NO_LIMITS)
        return Reduced(problem=part, kept=kept)

    def all_places(self, call: int) -> Sequence[int]:
        """The modes in which a section may begin."""
        return self.places.get(call, range(len(self.problem.calls[call].modes)))

    def share(self, number: int) -> float:
        """Which part of the time that is left a section gets: more calls take more than so much
        more."""
        sizes = [(end - begin) ** 2 for begin, end in self.ends[number:]]
        return sizes[0] / sum(sizes)

    def slack_s(self, number: int) -> float:
        """What a section that begins in one mode may take longer than one that begins in
        another."""
        begin, end = self.ends[number]
        last = number + 1 == len(self.ends)
        saved = self.problem.handoff_s if len(self.places.get(begin, ())) > 1 else 0.0
        return saved + sum(
            max(modes[place].latency_s for place in self.places.get(at, (0,)))
            - min(modes[place].latency_s for place in self.places.get(at, (0,)))
            for at in ((begin,) if last else (begin, end))
            for modes in [self.problem.calls[at].modes]
        )


def sections_of(problem: SchedulingProblem) -> Sections | None:
    """The sections of a problem; None where it has none, or where the least latencies of its
    sections do not make the least of the whole."""
    cuts, limits = _cuts(problem), problem.limits
    alone = len({mode.device for call in problem.calls for mode in call.modes}) == 1
    spanned = limits.deadlines_s or limits.energy_j is not None or problem.objective != "latency"
    full = any(may_be_full(problem, device) for device in problem.devices)
    ends = list(pairwise(sorted({0, *cuts, len(problem.calls) - 1})))
    if not alone or spanned or full or len(ends) < 2:
        return None
    places = {number: _places(problem, problem.calls[number]) for number in cuts}
    return Sections(problem=problem, ends=ends, places=places)


def likeness(section: SchedulingProblem) -> object:
    """What two sections have in common that are the same but for names."""
    return tuple(call.modes for call in section.calls), section.before


def joined(cut: Sections, found: Sequence[Schedule]) -> Schedule:
    """One schedule from those of the sections: each begins where and on the cores on which the one
    before it has the call that both have."""
    problem, slots = cut.problem, dict[str, Slot]()
    for (begin, _), schedule in zip(cut.ends, found, strict=True):
        first = schedule.slot[problem.calls[begin].name]
        common = slots.get(first.call, first)
        cores = problem.device[schedule.mode_of(problem, first.call).device].cores
        renamed = _renamed(cores, first.cores, common.cores)
        shift = common.begin_s - first.begin_s
        for slot in schedule.slots:
            begin_s = slot.begin_s + shift
            slots[slot.call] = replace(
                slot,
                begin_s=begin_s,
                end_s=begin_s + schedule.mode_of(problem, slot.call).latency_s,
                cores=tuple(sorted(renamed[core] for core in slot.cores)),
            )
    ordered = sorted(slots.values(), key=lambda slot: (slot.begin_s, slot.end_s))
    return judged(problem, Schedule(planner="", slots=tuple(ordered), objective=0.0))


def _renamed(cores: int, before: Sequence[int], after: Sequence[int]) -> dict[int, int]:
    """New numbers for the cores of a device, those of `before` becoming `after`."""
    rest = [[c for c in range(cores) if c not in named] for named in (before, after)]
    return dict(zip([*before, *rest[0]], [*after, *rest[1]], strict=True))


def named_as(section: SchedulingProblem, like: SchedulingProblem, found: Schedule) -> Schedule:
    """The schedule of a section as that of one like it."""
    names = {own.name: call.name for own, call in zip(like.calls, section.calls, strict=True)}
    slots = (replace(slot, call=names[slot.call]) for slot in found.slots)
    return replace(found, slots=tuple(slots))


def may_be_full(problem: SchedulingProblem, device: ScheduleDevice) -> bool:
    """Whether the most that calls may hold of a device's memory is more than it has."""
    held = 0
    for call, sent in zip(problem.calls, problem.sent_bytes, strict=True):
        there = [mode for mode in call.modes if mode.device == device.name]
        held += max((mode.weight_bytes + mode.workspace_bytes for mode in there), default=0)
        held += max(call.output_bytes if there else 0, sent)
    return device.memory_bytes is not None and held > device.memory_bytes


def _cuts(problem: SchedulingProblem) -> list[int]:
    """The calls that all others come before or after, and over which no wait leads whose hand-off
    could last longer."""
    readers = [[after for after, _ in waiting] for waiting in problem.after]
    furthest = list(accumulate((max(waiting, default=0) for waiting in readers), max, initial=0))
    return [
        number
        for number in never_beside_another(waits_of(problem))
        if furthest[number] <= number
        or min(mode.latency_s for mode in problem.calls[number].modes) >= problem.handoff_s
    ]


def _places(problem: SchedulingProblem, call: ScheduledCall) -> tuple[int, ...]:
    """The modes of a call that come into question where all others come before or after it: others
    than the fastest save a hand-off before and one after it at most."""
    fastest_s = min(mode.latency_s for mode in call.modes)
    found = [
        place
        for place, mode in enumerate(call.modes)
        if mode.latency_s < fastest_s + 2 * problem.handoff_s or mode.latency_s == fastest_s
    ]
    return tuple(sorted(found, key=lambda place: call.modes[place].latency_s))


def _shortened(call: ScheduledCall, bare: bool) -> ScheduledCall:
    """A call that takes only what it takes longer than in its fastest mode; or nothing."""
    fastest_s = min(mode.latency_s for mode in call.modes)
    modes = (
        replace(mode, latency_s=0.0 if bare else mode.latency_s - fastest_s) for mode in call.modes
    )
    return replace(call, modes=tuple(modes))
