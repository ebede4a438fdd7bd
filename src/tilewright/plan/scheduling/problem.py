"""A scheduling problem: what is to be planned, from a network and devices, or written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.plan.scheduling.parts import (
    NO_LIMITS,
    Limits,
    Link,
    Merge,
    Objective,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.soundness import (
    require_mergeable,
    require_priced,
    require_seconds,
    require_sound,
)


@dataclass(frozen=True, kw_only=True)
class SchedulingProblem:
    """What `parts` says, together.

    Planners look at `calls` alone; which `merges` are carried out is decided before (`merging`).
    `calls` are in an order that keeps every wait. A call begins `handoff_s` after the end of what
    it waits for, or after the transfer of its result, unless both occupy the same cores. Raises
    ModelError for what cannot be planned: a name twice or unknown, a wait against the order (which
    a cycle always has), a call without a mode, one that hangs together with nothing and is no
    answer, more cores than a device has, a way between devices that a call must go and that is not
    there, a merge that cannot be carried out, times that are no times, an objective or limit that
    counts energies or prices which nobody knows.
    """

    devices: tuple[ScheduleDevice, ...]
    calls: tuple[ScheduledCall, ...]
    waits: tuple[Wait, ...] = ()
    links: tuple[Link, ...] = ()
    merges: tuple[Merge, ...] = ()
    handoff_s: float = 0.0
    limits: Limits = NO_LIMITS
    objective: Objective = "latency"
    name: str = ""

    def __post_init__(self) -> None:
        require_sound(self.title, self.devices, self.calls, self.waits, self.links)
        require_mergeable(self.title, self.devices, self.calls, self.waits, self.merges)
        require_seconds(self.title, "handoff_s", self.handoff_s)
        every = (*self.calls, *(ScheduledCall(name=m.name, modes=m.modes) for m in self.merges))
        require_priced(self.title, self.devices, every, self.limits, self.objective)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"problem {self.name!r}" if self.name else "the problem"

    @cached_property
    def device(self) -> dict[str, ScheduleDevice]:
        """The devices by name."""
        return {device.name: device for device in self.devices}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each call, by name."""
        return {call.name: number for number, call in enumerate(self.calls)}

    @cached_property
    def link(self) -> dict[tuple[str, str], Link]:
        """The links by origin and destination."""
        return {(link.origin, link.destination): link for link in self.links}

    @cached_property
    def before(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each call those that it waits for: their numbers and the bytes that it reads."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.calls]
        for wait in self.waits:
            found[self.numbers[wait.after]].append((self.numbers[wait.before], wait.bytes))
        return tuple(map(tuple, found))

    @cached_property
    def after(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each call those that wait for it, likewise."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.calls]
        for wait in self.waits:
            found[self.numbers[wait.before]].append((self.numbers[wait.after], wait.bytes))
        return tuple(map(tuple, found))

    @cached_property
    def sent_bytes(self) -> tuple[int, ...]:
        """What goes from a device to another where a call's result is read there: the most that
        any call reads of it."""
        return tuple(max((size for _, size in readers), default=0) for readers in self.after)

    def transfers_s(self, number: int) -> list[float]:
        """What a call's result takes over each of the links."""
        extra_s, size = self.calls[number].crossing_s, self.sent_bytes[number]
        return [link.transfer_s(size) + extra_s for link in self.links]

    def transfer_s(self, number: int, origin: str, destination: str) -> float | None:
        """Seconds that a call's result takes from one device to another, 0 on the same; None where
        no link goes there."""
        if origin == destination:
            return 0.0
        link = self.link.get((origin, destination))
        size = self.sent_bytes[number]
        return None if link is None else link.transfer_s(size) + self.calls[number].crossing_s
