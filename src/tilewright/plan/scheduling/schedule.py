"""An answer to a scheduling problem: when each call runs, in which mode, on which cores.

    conv1   llvm 0      0 to 90 µs
    conv2   llvm 1      0 to 80 µs
    concat  llvm 0, 1  92 to 98 µs

What it takes is computed in `measures` and which limit it breaks in `faults`, and nowhere else, so
that all planners are judged alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A call in its mode (a place among the call's modes) on these cores of the mode's device."""

    call: str
    mode: int
    begin_s: float
    end_s: float
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSlot:
    """The result of call `call` goes from a device to another; each needs it once, however many
    calls read it there."""

    call: str
    origin: str
    destination: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A slot for each call of a problem, in the order of their begins, and the transfers.

    `objective` is what the problem asks to be least, in its unit. No schedule has less than
    `bound`, 0 where nothing is known. `planner` says who made it and `note` what to tell about it.
    `considered` are schedules of the same problem that the planner took it from.
    """

    planner: str
    slots: tuple[Slot, ...]
    transfers: tuple[TransferSlot, ...] = ()
    objective: float
    bound: float = 0.0
    solve_s: float = 0.0
    note: str = ""
    details: Mapping[str, float] = field(default_factory=dict[str, float])
    considered: tuple[Schedule, ...] = field(default=(), compare=False, repr=False)

    @property
    def gap(self) -> float:
        """(objective − bound) / objective; 0 for a proven optimum."""
        if self.objective <= self.bound:
            return 0.0
        return (self.objective - self.bound) / self.objective

    @cached_property
    def slot(self) -> dict[str, Slot]:
        """The slots by call."""
        return {slot.call: slot for slot in self.slots}

    @cached_property
    def latency_s(self) -> float:
        """When the last call ends."""
        return max((slot.end_s for slot in self.slots), default=0.0)

    def end_of(self, problem: SchedulingProblem, network: str) -> float:
        """When the last call of a network ends; with an empty name that of all."""
        return max(
            self.slot[call.name].end_s for call in problem.calls if network in ("", call.network)
        )

    def mode_of(self, problem: SchedulingProblem, call: str) -> Mode:
        """The mode that a call has."""
        return problem.calls[problem.numbers[call]].modes[self.slot[call].mode]
