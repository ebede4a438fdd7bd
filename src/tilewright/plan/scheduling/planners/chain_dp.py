"""The planner `chain_dp`: networks that are chains, by dynamic programming.

    a → b → c → d      latency: a, b on the GPU, c, d on the CPU, one transfer between
                       throughput: a, b on core 0, c on core 1, d on the GPU, each always busy

For latency and energy the state is the way in which the last call ran, for throughput how many
lanes of each device are used up (Hu et al., PipeEdge, DSD 2022). Both are exact on chains. What
lies between calls that all others come before or after counts as one link of the chain: on one
device, one call after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, combinations, pairwise, product
from math import inf, prod

from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import blocks, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot
from tilewright.plan.scheduling.scheduler import NothingFound

_MOST_CHOSEN_FROM, _MOST_LANES = 4, 8
_NEVER_S = 1e15
_Lanes = Mapping[str, tuple[int, int]]
"""For each device how many lanes it has, and of how many cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDp:
    """The best chain, or what the planner `sequential` finds where that is better: where limits
    bind, which only the finished schedule is held against.

    Pipelines take at most about `most_steps`, those of few lanes first: with several devices of
    many cores there are too many. The note tells how many divisions into lanes are left out."""

    name: str = "chain_dp"
    most_steps: int = 10_000_000

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them; `limit_s` is not needed."""
        chain = _Chain(problem)
        attempts = [partial(Sequential().schedule, problem, limit_s)]
        order = range(len(problem.calls))
        for devices in _choices(problem):
            modes = chain.modes(devices)
            if modes is not None:
                attempts.append(partial(decode, problem, order, modes, one_by_one=True))
        left_out = 0
        if problem.objective == "throughput":
            looked_at, left_out = self._divisions(problem, len(chain.parts))
            pipelines = filter(None, map(chain.pipeline, looked_at))
            attempts += [partial(chain.laid_out, stages) for stages in pipelines]
        several = sum(len(part) > 1 for part in chain.parts)
        notes = [f"{several} of {len(chain.parts)} links are several calls"] if several else []
        if left_out:
            notes.append(f"{left_out} divisions into lanes are left out, they take too long")
        return replace(best(problem, self.name, attempts), note="; ".join(notes))

    def _divisions(self, problem: SchedulingProblem, links: int) -> tuple[list[_Lanes], int]:
        """The divisions of devices into lanes that are looked at, and how many are not."""
        every = sorted(_lanes(problem), key=partial(_steps, links))
        together = accumulate(_steps(links, lanes) for lanes in every)
        count = sum(steps <= self.most_steps for steps in together)
        return every[:count], len(every) - count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The links from `begin` to the next stage, on one of the lanes of a device, of so many
    cores."""

    device: str
    cores: int
    lane: int
    begin: int


_Used = tuple[int, tuple[int, ...]]
"""The device of the last stage, and how many lanes of each are used."""
_Reached = tuple[float, tuple[_Stage, ...]]
"""The longest time of the stages so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a link of the chain may run: on so many cores of a device, by these modes."""

    device: str
    modes: tuple[int, ...]
    first: int
    last: int
    cost: float
    seconds: float


class _Chain:
    """The links of a chain, and the ways in which each may run. A second costs `_rate`."""

    def __init__(self, problem: SchedulingProblem) -> None:
        self.problem = problem
        self.parts = blocks(waits_of(problem))
        saving = problem.objective == "energy"
        idle_w = sum(device.idle_w or 0.0 for device in problem.devices)
        self._rate, self._per_joule = (idle_w, 1.0) if saving else (1.0, 0.0)
        self._usable = usable_modes(problem)
        self.ways = [list(self._ways(part)) for part in self.parts]

    def _ways(self, part: Sequence[int]) -> Iterator[_Way]:
        """All modes of a single call; of several calls the cheapest on at most so many cores."""
        problem = self.problem
        if len(part) == 1:
            for place in self._usable[part[0]]:
                mode = problem.calls[part[0]].modes[place]
                yield self._way(part, mode.device, (place,))
            return
        for device in problem.devices:
            for most in range(1, device.cores + 1):
                modes = [self.cheapest(number, device.name, most) for number in part]
                known = tuple(place for place in modes if place is not None)
                if len(known) == len(part):
                    yield self._way(part, device.name, known)

    def cheapest(self, number: int, device: str, most: int) -> int | None:
        modes = self.problem.calls[number].modes
        there = [
            place
            for place in self._usable[number]
            if modes[place].device == device and modes[place].cores <= most
        ]
        return min(there, key=lambda place: self._cost(number, place), default=None)

    def _cost(self, number: int, place: int) -> float:
        mode = self.problem.calls[number].modes[place]
        return self._rate * mode.latency_s + self._per_joule * (mode.energy_j or 0.0)

    def _way(self, part: Sequence[int], device: str, modes: tuple[int, ...]) -> _Way:
        calls = self.problem.calls
        chosen = [calls[number].modes[at] for number, at in zip(part, modes, strict=True)]
        handing = sum(a.cores != b.cores for a, b in pairwise(chosen)) * self.problem.handoff_s
        cost = sum(self._cost(number, at) for number, at in zip(part, modes, strict=True))
        return _Way(
            device=device,
            modes=modes,
            first=chosen[0].cores,
            last=chosen[-1].cores,
            cost=cost + self._rate * handing,
            seconds=sum(mode.latency_s for mode in chosen) + handing,
        )

    def modes(self, devices: Sequence[str]) -> list[int] | None:
        """The cheapest modes of all calls on some devices; None where these do not suffice."""
        reached: list[tuple[float, tuple[_Way, ...]]] = [(0.0, ())]
        for link, ways in enumerate(self.ways):
            following: list[tuple[float, tuple[_Way, ...]]] = []
            for way in ways:
                if way.device in devices:
                    costs = [
                        (cost + self._between(link, before, way), before)
                        for cost, before in reached
                    ]
                    cost, before = min(costs, key=lambda each: each[0], default=(inf, ()))
                    if cost < inf:
                        following.append((cost + way.cost, (*before, way)))
            reached = following
        _, ways = min(reached, key=lambda each: each[0], default=(inf, ()))
        return self._by_call(ways) if ways else None

    def _by_call(self, ways: Sequence[_Way]) -> list[int]:
        found = [0] * len(self.problem.calls)
        for part, way in zip(self.parts, ways, strict=True):
            for number, mode in zip(part, way.modes, strict=True):
                found[number] = mode
        return found

    def _between(self, link: int, before: Sequence[_Way], way: _Way) -> float:
        """What it costs from the end of the link before to the begin of this one."""
        if not before or (before[-1].device, before[-1].last) == (way.device, way.first):
            return 0.0
        sent_s = self.transfer_s(link, before[-1].device, way.device)
        return inf if sent_s == inf else self._rate * (sent_s + self.problem.handoff_s)

    def transfer_s(self, link: int, origin: str, destination: str) -> float:
        """Seconds of what a link reads of the one before it; infinity where there is no way, 0 on
        the same device."""
        earlier = set(self.parts[link - 1])
        read = {b for n in self.parts[link] for b, _ in self.problem.before[n] if b in earlier}
        times = [self.problem.transfer_s(number, origin, destination) for number in read]
        return sum(inf if seconds is None else seconds for seconds in times)

    def pipeline(self, lanes: _Lanes) -> list[_Stage] | None:
        """The division into contiguous stages, each on a lane of its own, whose longest time is
        least; `lanes` says for each device how many and of how many cores. None where some link
        runs on none of them."""
        names, count = list(lanes), len(self.parts)
        sums = [self._sums(name, lanes[name][1]) for name in names]
        reached: list[dict[_Used, _Reached]] = [{} for _ in range(count + 1)]
        reached[0][-1, (0,) * len(names)] = 0.0, ()
        for begin in range(count):
            for (last, used), (longest_s, stages) in reached[begin].items():
                for at, name in enumerate(names):
                    if used[at] == lanes[name][0]:
                        continue
                    key = at, tuple(n + (place == at) for place, n in enumerate(used))
                    sent_s = 0.0
                    if last not in (-1, at):
                        sent_s = self.transfer_s(begin, names[last], name)
                    stage = _Stage(device=name, cores=lanes[name][1], lane=used[at], begin=begin)
                    for end in range(begin + 1, count + 1):
                        taken_s = max(longest_s, sent_s, sums[at][end] - sums[at][begin])
                        if taken_s < reached[end].get(key, (_NEVER_S, ()))[0]:
                            reached[end][key] = taken_s, (*stages, stage)
        _, stages = min(reached[count].values(), key=lambda each: each[0], default=(0.0, ()))
        return list(stages) or None

    def _sums(self, device: str, cores: int) -> list[float]:
        """The seconds of the links up to each on a lane."""
        found = [0.0]
        for part in self.parts:
            total_s = found[-1]
            for number in part:
                place = self.cheapest(number, device, cores)
                modes = self.problem.calls[number].modes
                total_s += _NEVER_S if place is None else modes[place].latency_s
            found.append(total_s)
        return found

    def laid_out(self, stages: Sequence[_Stage]) -> Schedule:
        """The stages of one request, one call after the other."""
        ends = [*(stage.begin for stage in stages[1:]), len(self.parts)]
        stage_of = {
            number: stage
            for stage, end in zip(stages, ends, strict=True)
            for part in self.parts[stage.begin : end]
            for number in part
        }
        line = _Line(self.problem)
        for number, stage in stage_of.items():
            place = self.cheapest(number, stage.device, stage.cores)
            assert place is not None, "stages are made of what lanes can compute"
            line.add(number, place, stage.lane * stage.cores)
        return line.schedule()


class _Line:
    """Calls one after the other on given cores, with transfers where they change devices."""

    def __init__(self, problem: SchedulingProblem) -> None:
        self._problem = problem
        self._slots: dict[int, Slot] = {}
        self._sent: dict[tuple[int, str], TransferSlot] = {}
        self._now_s = 0.0

    def add(self, number: int, place: int, first: int) -> None:
        """Run a call next, on the cores from `first` on."""
        problem, call = self._problem, self._problem.calls[number]
        mode = call.modes[place]
        cores = tuple(range(first, first + mode.cores))
        for before, _ in problem.before[number]:
            other = self._slots[before]
            origin, ready_s = problem.calls[before].modes[other.mode].device, other.end_s
            if origin != mode.device:
                ready_s = self._arrival_s(before, origin, mode.device)
            if origin != mode.device or other.cores != cores:
                ready_s += problem.handoff_s
            self._now_s = max(self._now_s, ready_s)
        begin_s, self._now_s = self._now_s, self._now_s + mode.latency_s
        self._slots[number] = Slot(
            call=call.name, mode=place, begin_s=begin_s, end_s=self._now_s, cores=cores
        )

    def _arrival_s(self, number: int, origin: str, destination: str) -> float:
        if (number, destination) not in self._sent:
            seconds = self._problem.transfer_s(number, origin, destination)
            if seconds is None:
                raise NothingFound(f"no link goes from {origin!r} to {destination!r}")
            begin_s, self._now_s = self._now_s, self._now_s + seconds
            self._sent[number, destination] = TransferSlot(
                call=self._problem.calls[number].name,
                origin=origin,
                destination=destination,
                begin_s=begin_s,
                end_s=self._now_s,
            )
        return self._sent[number, destination].end_s

    def schedule(self) -> Schedule:
        """All of it."""
        slots = sorted(self._slots.values(), key=lambda slot: (slot.begin_s, slot.end_s))
        transfers = sorted(self._sent.values(), key=lambda way: (way.begin_s, way.end_s))
        found = Schedule(planner="", slots=tuple(slots), transfers=tuple(transfers), objective=0.0)
        return judged(self._problem, found)


def _choices(problem: SchedulingProblem) -> list[Sequence[str]]:
    """The devices that may be used, in each way; where there are many, one of them or all."""
    names = [device.name for device in problem.devices]
    if len(names) > _MOST_CHOSEN_FROM:
        return [names, *([name] for name in names)]
    return [some for size in range(len(names)) for some in combinations(names, size + 1)]


def _steps(links: int, lanes: _Lanes) -> int:
    """About how many steps the best pipeline of so many links on some lanes takes at most."""
    return prod(count + 1 for count, _ in lanes.values()) * len(lanes) ** 2 * links**2 // 2


def _lanes(problem: SchedulingProblem) -> Iterator[_Lanes]:
    """Into how many lanes of equal size each device is divided: 1, 2, 4 and so on."""
    counts = [
        [1 << power for power in range(_MOST_LANES.bit_length()) if 1 << power <= device.cores]
        for device in problem.devices
    ]
    for chosen in product(*counts):
        yield {
            device.name: (count, device.cores // count)
            for device, count in zip(problem.devices, chosen, strict=True)
        }
