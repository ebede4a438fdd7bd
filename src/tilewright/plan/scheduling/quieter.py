"""Other versions of the kernels of a schedule's calls, beside what runs at the same time.

    a beside b, each the fastest alone    100 µs alone, 480 µs beside the other
    a beside b, each moving less          105 µs alone, 110 µs beside the other

Calls choose in turn. What a version costs all is its time alone and what it loses and takes beside
the others, which the formula of `cost.contention` says is the same: so this is a potential game.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.plan.scheduling.simulator import simulate

_ROUNDS = 3


def with_quieter_kernels(problem: SchedulingProblem, schedule: Schedule) -> Schedule | None:
    """The schedule with other versions of kernels on the same cores, where that takes less beside
    each other and keeps all limits; None where no such was found."""
    if not _has_versions(problem):
        return None
    least, now, found = beside_each_other(problem, schedule).objective, schedule, None
    for _ in range(_ROUNDS):
        chosen = dict(_best_responses(problem, now))
        if all(chosen[slot.call] == slot.mode for slot in now.slots):
            break
        slots = tuple(replace(slot, mode=chosen[slot.call]) for slot in now.slots)
        moved = simulate(problem, replace(now, slots=slots))
        now = replace(moved, note=schedule.note, bound=schedule.bound)
        taken = beside_each_other(problem, now).objective
        if taken < least and next(faults(problem, now), None) is None:
            least, found = taken, now
    return found


def _has_versions(problem: SchedulingProblem) -> bool:
    scaled = {d.name for d in problem.devices if d.contention_bytes_per_s is not None}
    ways = ([(m.device, m.cores) for m in c.modes if m.device in scaled] for c in problem.calls)
    return any(len(each) > len({*each}) for each in ways)


def _best_responses(problem: SchedulingProblem, schedule: Schedule) -> Iterator[tuple[str, int]]:
    """Each call with the version that is best for all beside what runs beside it now."""
    here: dict[str, list[tuple[Slot, Mode]]] = {}
    for slot in schedule.slots:
        mode = schedule.mode_of(problem, slot.call)
        here.setdefault(mode.device, []).append((slot, mode))
    for name, slots in here.items():
        scale = problem.device[name].contention_bytes_per_s
        for slot, mode in slots:
            others = sum(
                _overlap_s(slot, other) * its.bytes_per_s
                for other, its in slots
                if other is not slot
            )
            if scale is None or not others:
                yield slot.call, slot.mode
                continue
            lost_s_per_byte = 2 * others / (slot.end_s - slot.begin_s) / scale**2
            modes = problem.calls[problem.numbers[slot.call]].modes
            yield (
                slot.call,
                min(
                    (n for n, m in enumerate(modes) if (m.device, m.cores) == (name, mode.cores)),
                    key=lambda n: modes[n].latency_s + lost_s_per_byte * modes[n].moved_bytes,
                ),
            )


def _overlap_s(one: Slot, other: Slot) -> float:
    return max(0.0, min(one.end_s, other.end_s) - max(one.begin_s, other.begin_s))
