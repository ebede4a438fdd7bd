"""Modes that no schedule needs, because another of the same call does as well in every way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from tilewright.plan.scheduling.capacities import capacities, demand
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A problem with fewer modes; `kept` are the places of those that are left, by call."""

    problem: SchedulingProblem
    kept: Sequence[Sequence[int]]

    def inside(self, schedule: Schedule) -> Schedule | None:
        """A schedule of the whole problem as one of this, without what was considered for it; None
        where it has a mode that went."""
        numbers = self.problem.numbers
        if any(slot.mode not in self.kept[numbers[slot.call]] for slot in schedule.slots):
            return None
        slots = (
            replace(slot, mode=self.kept[numbers[slot.call]].index(slot.mode))
            for slot in schedule.slots
        )
        return replace(schedule, slots=tuple(slots), considered=())

    def outside(self, schedule: Schedule) -> Schedule:
        """A schedule of this as one of the whole problem."""
        numbers = self.problem.numbers
        slots = (
            replace(slot, mode=self.kept[numbers[slot.call]][slot.mode]) for slot in schedule.slots
        )
        return replace(schedule, slots=tuple(slots))


def reduced(problem: SchedulingProblem) -> Reduced:
    """The problem with the modes that some schedule may need."""
    kept: list[list[int]] = []
    for call in problem.calls:
        kept.append(
            [
                place
                for place, mode in enumerate(call.modes)
                if not any(
                    _replaces(problem, other, mode)
                    and (at < place or not _replaces(problem, mode, other))
                    for at, other in enumerate(call.modes)
                    if at != place
                )
            ]
        )
    calls = (
        replace(call, modes=tuple(call.modes[place] for place in places))
        for call, places in zip(problem.calls, kept, strict=True)
    )
    return Reduced(problem=replace(problem, calls=tuple(calls)), kept=kept)


def _replaces(problem: SchedulingProblem, one: Mode, other: Mode) -> bool:
    """Whether a mode can stand for another in every schedule: it needs no more of anything, and is
    as much faster as it takes to hand over before and after, if its cores are fewer; on as many
    cores it moves no more where that slows down what runs beside it."""
    if one.device != other.device or one.cores > other.cores:
        return False
    handoffs = 0.0 if one.cores == other.cores else 2 * problem.handoff_s
    device = problem.device[one.device]
    shared = (name for name in capacities(device) if name != "cores")
    if one.cores == other.cores and device.contention_bytes_per_s is not None:
        handoffs += inf if one.moved_bytes > other.moved_bytes else 0.0
    return (
        one.latency_s + handoffs <= other.latency_s
        and (one.energy_j or 0.0) <= (other.energy_j or 0.0)
        and one.weight_bytes <= other.weight_bytes
        and one.workspace_bytes <= other.workspace_bytes
        and all(demand(name, device, one) <= demand(name, device, other) for name in shared)
    )
