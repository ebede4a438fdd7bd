"""A schedule that grows: where a call fits beside what has its place already.

    timeline = Timeline(problem)
    offer = timeline.offer(number, mode)    the soonest begin, the cores, the transfers; or None
    timeline.take(offer)

Calls may go into gaps, but never before what they wait for. What is taken breaks no limit of a
device, whatever comes after it: a result counts until all that read it have their places.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tilewright.plan.scheduling.capacities import ROUNDING, capacities, demand
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.profiles import Profile, free_from
from tilewright.plan.scheduling.schedule import Slot, TransferSlot

_Stretch = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A place for a call: its slot, and the transfers that it needs and that are not there yet."""

    number: int
    slot: Slot
    transfers: tuple[TransferSlot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """When a call may begin: at `soonest` on any cores, at `same` where it occupies exactly
    `cores`, as those did that it waits for."""

    soonest: float
    same: float
    cores: tuple[int, ...]


class Timeline:
    """The slots and transfers so far; the last slot ends at `end_s`. `modes` are the modes of all
    calls where they are known beforehand: then their weights count from the start."""

    def __init__(self, problem: SchedulingProblem, modes: Sequence[int] | None = None) -> None:
        self.problem = problem
        self.slots: dict[int, Slot] = {}
        self.transfers: dict[tuple[int, str], TransferSlot] = {}
        self.end_s = 0.0
        self._weighed = modes is not None
        self._cores: dict[str, list[list[_Stretch]]] = {
            device.name: [[] for _ in range(device.cores)] for device in problem.devices
        }
        self._links: dict[tuple[str, str], list[_Stretch]] = {link: [] for link in problem.link}
        self._rates = {
            device.name: {
                name: (Profile(), most * (1 + ROUNDING))
                for name, most in capacities(device).items()
                if name != "cores"
            }
            for device in problem.devices
        }
        self._memory = {
            device.name: Profile() for device in problem.devices if device.memory_bytes is not None
        }
        self._unread = [len(readers) for readers in problem.after]
        for call, place in zip(problem.calls, modes or (), strict=False):
            self._hold(call.modes[place].device, 0.0, inf, call.modes[place].weight_bytes)

    def device_of(self, number: int) -> str:
        """Where a call runs that has its place."""
        return self.problem.calls[number].modes[self.slots[number].mode].device

    def offer(self, number: int, place: int, not_before: float = 0.0) -> Offer | None:
        """The soonest that a call can run in one of its modes, all calls that it waits for having
        their places; None where no link leads there, or its memory or power never is there."""
        mode = self.problem.calls[number].modes[place]
        transfers = self._transfers(number, mode)
        if transfers is None:
            return None
        ready = self._ready(number, mode, transfers, not_before)
        copies = sum(self.problem.sent_bytes[self.problem.numbers[way.call]] for way in transfers)
        found = self._begin(number, mode, ready.soonest, copies, None)
        if ready.same < ready.soonest:
            same = self._begin(number, mode, ready.same, copies, ready.cores)
            found = same if found is None or (same and same[0] <= found[0]) else found
        if found is None:
            return None
        begin, free = found
        name = self.problem.calls[number].name
        slot = Slot(
            call=name,
            mode=place,
            begin_s=begin,
            end_s=begin + mode.latency_s,
            cores=self._chosen(mode, begin, free, ready.cores),
        )
        return Offer(number=number, slot=slot, transfers=transfers)

    def take(self, offer: Offer) -> None:
        """Give a call its place."""
        slot, call = offer.slot, self.problem.calls[offer.number]
        mode = call.modes[slot.mode]
        self.slots[offer.number] = slot
        self.end_s = max(self.end_s, slot.end_s)
        for core in slot.cores:
            insort(self._cores[mode.device][core], (slot.begin_s, slot.end_s))
        for name, (profile, _) in self._rates[mode.device].items():
            wanted = demand(name, self.problem.device[mode.device], mode)
            profile.add(slot.begin_s, slot.end_s, wanted)
        for way in offer.transfers:
            number = self.problem.numbers[way.call]
            self.transfers[number, way.destination] = way
            insort(self._links[way.origin, way.destination], (way.begin_s, way.end_s))
            self._hold(way.destination, way.begin_s, inf, self.problem.sent_bytes[number])
        if not self._memory:
            return
        if not self._weighed:
            self._hold(mode.device, 0.0, inf, mode.weight_bytes)
        self._hold(mode.device, slot.begin_s, slot.end_s, mode.workspace_bytes)
        self._hold(mode.device, slot.begin_s, inf, call.output_bytes)
        for before, _ in self.problem.before[offer.number]:
            self._unread[before] -= 1
            self._release(before)
        self._release(offer.number)

    def _hold(self, device: str, begin: float, end: float, amount: int) -> None:
        if device in self._memory:
            self._memory[device].add(begin, end, amount)

    def _release(self, number: int) -> None:
        """Let go of a result and its copies after the last call that reads them, once all of those
        have their places."""
        if self._unread[number]:
            return
        call, readers = self.problem.calls[number], self.problem.after[number]
        own_end = self.slots[number].end_s
        if not call.answer:
            until = max((self.slots[reader].end_s for reader, _ in readers), default=own_end)
            self._hold(self.device_of(number), until, inf, -call.output_bytes)
        for device in {self.device_of(reader) for reader, _ in readers}:
            if (number, device) in self.transfers:
                there = (reader for reader, _ in readers if self.device_of(reader) == device)
                until = max(self.slots[reader].end_s for reader in there)
                self._hold(device, until, inf, -self.problem.sent_bytes[number])

    def _transfers(self, number: int, mode: Mode) -> tuple[TransferSlot, ...] | None:
        """The transfers that a call in a mode needs beside those that are there; None where one
        cannot be."""
        found: list[TransferSlot] = []
        device, copies = mode.device, 0 if self._weighed else mode.weight_bytes
        busy: dict[tuple[str, str], list[_Stretch]] = {}
        missing = [
            (self.slots[before].end_s, before)
            for before, _ in self.problem.before[number]
            if self.device_of(before) != device and (before, device) not in self.transfers
        ]
        for ready, before in sorted(missing):
            link = (self.device_of(before), device)
            size = self.problem.sent_bytes[before]
            seconds = self.problem.transfer_s(before, *link)
            if seconds is None:
                return None
            copies += size
            used = busy.setdefault(link, list(self._links[link]))
            begin = self._send(used, ready, seconds, (device, copies))
            if begin == inf:
                return None
            insort(used, (begin, begin + seconds))
            name = self.problem.calls[before].name
            found.append(
                TransferSlot(
                    call=name,
                    origin=link[0],
                    destination=device,
                    begin_s=begin,
                    end_s=begin + seconds,
                )
            )
        return tuple(found)

    def _send(
        self, busy: list[_Stretch], ready: float, seconds: float, needed: tuple[str, int]
    ) -> float:
        """When a link is free for so long and the device at its end has the memory for ever."""
        begin = ready
        while begin < inf:
            free = free_from(busy, begin, seconds)
            later = self._memory_free(*needed, free, inf)
            if later == begin:
                break
            begin = later
        return begin

    def _memory_free(self, device: str, needed: int, begin: float, end: float) -> float:
        """When so many bytes more are there from `begin` to `end` at the soonest."""
        most = self.problem.device[device].memory_bytes
        if most is None:
            return begin
        return self._memory[device].blocked_until(begin, end, most - needed)

    def _ready(
        self, number: int, mode: Mode, transfers: Sequence[TransferSlot], not_before: float
    ) -> _Ready:
        """When the call may begin as far as what it waits for goes."""
        sent = {self.problem.numbers[way.call]: way for way in transfers}
        arrivals: list[tuple[float, tuple[int, ...]]] = []
        for before, _ in self.problem.before[number]:
            if self.device_of(before) == mode.device:
                arrivals.append((self.slots[before].end_s, self.slots[before].cores))
            else:
                way = sent.get(before) or self.transfers[before, mode.device]
                arrivals.append((way.end_s, ()))
        handoff = self.problem.handoff_s
        soonest = max((end + handoff for end, _ in arrivals), default=0.0)
        fitting = [(end, cores) for end, cores in arrivals if len(cores) == mode.cores]
        cores = max(fitting)[1] if fitting else ()
        same = max(
            (end + handoff * (not cores or own != cores) for end, own in arrivals), default=0.0
        )
        return _Ready(soonest=max(soonest, not_before), same=max(same, not_before), cores=cores)

    def _begin(
        self,
        number: int,
        mode: Mode,
        begin: float,
        copies: int,
        wanted: tuple[int, ...] | None,
    ) -> tuple[float, list[int]] | None:
        """The soonest begin at which cores (the wanted ones, else any) and everything else are
        free, and the free cores; None for never."""
        while begin < inf:
            free, later = self._free_cores(mode, begin, wanted)
            if later == begin:
                later = self._room(number, mode, begin, copies)
            if later == begin:
                return begin, free
            begin = later
        return None

    def _free_cores(
        self, mode: Mode, begin: float, wanted: tuple[int, ...] | None
    ) -> tuple[list[int], float]:
        """The cores that are free for so long, and when enough may be: `begin` where they are."""
        cores = self._cores[mode.device]
        free: list[int] = []
        later: list[float] = []
        for core in range(len(cores)) if wanted is None else wanted:
            there = free_from(cores[core], begin, mode.latency_s)
            if there == begin:
                free.append(core)
            else:
                later.append(there)
        lacking = mode.cores - len(free)
        return free, sorted(later)[lacking - 1] if lacking > 0 else begin

    def _room(self, number: int, mode: Mode, begin: float, copies: int) -> float:
        """When memory, bandwidth and power suffice at the soonest."""
        end, device = begin + mode.latency_s, self.problem.device[mode.device]
        for name, (profile, most) in self._rates[device.name].items():
            wanted = demand(name, device, mode)
            if wanted > most:
                return inf
            begin = profile.blocked_until(begin, end, most - wanted)
        if device.memory_bytes is None:
            return begin
        weight = 0 if self._weighed else mode.weight_bytes
        if self._memory_free(device.name, weight, 0.0, inf) > 0.0:
            return inf
        stays = weight + copies + self.problem.calls[number].output_bytes
        begin = self._memory_free(device.name, stays, begin, inf)
        return self._memory_free(device.name, stays + mode.workspace_bytes, begin, end)

    def _chosen(
        self, mode: Mode, begin: float, free: list[int], liked: tuple[int, ...]
    ) -> tuple[int, ...]:
        """As many of the free cores as the mode takes: those of what it waits for, then those
        that were busy last, so that long gaps stay whole."""
        cores = self._cores[mode.device]

        def order(core: int) -> tuple[bool, float, int]:
            place = bisect_right(cores[core], (begin, inf))
            return core not in liked, -cores[core][place - 1][1] if place else 0.0, core

        return tuple(sorted(sorted(free, key=order)[: mode.cores]))
