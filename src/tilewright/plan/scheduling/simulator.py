"""A schedule carried out in thought: what happens when calls take other times than was planned.

    planned    a on 0   0 to 5,  b on 0   5 to 9,  c on 1   6 to 9, after a and a hand-off
    a takes 8: a on 0   0 to 8,  b on 0   8 to 12, c on 1   9 to 12

The plan keeps its modes, its cores, the order of the calls on each core and of the transfers on
each link. A call begins when its cores are free and what it waits for is there; where the plan had
it begin later than that, because memory, bandwidth or power were short, it also waits for what had
ended just before. With the planned times everything happens when it was planned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import TypeVar

from tilewright.plan.scheduling.capacities import ROUNDING
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot
from tilewright.plan.scheduling.soundness import require_seconds

Latency = Callable[[str, Mode], float]
"""Seconds that a call takes alone in a mode."""

Slowdown = Callable[[str, frozenset[str]], float]
"""How many times as long a call takes while these others run on its device."""


def simulate(
    problem: SchedulingProblem,
    schedule: Schedule,
    latency: Latency | None = None,
    slowdown: Slowdown | None = None,
) -> Schedule:
    """When calls and transfers of a schedule that breaks nothing really begin and end, by the
    problem's latencies unless others are given. `measures` and `memory_over_time` say what that
    takes. Raises ModelError for a latency that is no time, or a slowdown that is none."""
    begins, ends = _Run(problem, slowdown).times(list(_steps(problem, schedule, latency)))
    slots = [_moved(each, begins, ends) for each in schedule.slots]
    ways = [_moved(each, begins, ends) for each in schedule.transfers]
    moved = replace(
        schedule,
        slots=tuple(sorted(slots, key=lambda slot: (slot.begin_s, slot.end_s))),
        transfers=tuple(sorted(ways, key=lambda way: (way.begin_s, way.end_s))),
        bound=0.0,
        note=f"simulated from {schedule.planner}",
    )
    return judged(problem, moved)


_Name = tuple[str, str]
"""A call and nothing, or the call whose result is sent and where to."""


_Use = TypeVar("_Use", Slot, TransferSlot)


def _moved(use: _Use, begins: Mapping[_Name, float], ends: Mapping[_Name, float]) -> _Use:
    return replace(use, begin_s=begins[_name(use)], end_s=ends[_name(use)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A call or a transfer: how long it takes alone, what it begins after, and how long after the
    end of each; `device` is where it meets others, nowhere for a transfer."""

    name: _Name
    device: str
    alone_s: float
    after: Mapping[_Name, float]
    delay_s: float


def _name(use: Slot | TransferSlot) -> _Name:
    return use.call, use.destination if isinstance(use, TransferSlot) else ""


def _steps(
    problem: SchedulingProblem, schedule: Schedule, latency: Latency | None
) -> Iterator[_Step]:
    """All calls and transfers with what the plan has them begin after."""
    margin = ROUNDING * schedule.latency_s
    uses = sorted(
        (*schedule.slots, *schedule.transfers),
        key=lambda use: (use.begin_s, use.end_s, problem.numbers[use.call], _name(use)),
    )
    ends = {_name(use): use.end_s for use in uses}
    lines: defaultdict[Hashable, list[_Name]] = defaultdict(list)
    for place, use in enumerate(uses):
        over = [n for n in map(_name, uses[:place]) if ends[n] <= use.begin_s + margin]
        after = dict(_waits(problem, schedule, use))
        for line in _lines(problem, schedule, use):
            before = [name for name in lines[line] if ends[name] <= use.begin_s + margin]
            for name in before[-1:]:
                after.setdefault(name, 0.0)
            lines[line].append(_name(use))
        ready = max((ends[name] + wait for name, wait in after.items()), default=0.0)
        latest = max((ends[name] for name in over), default=0.0)
        if use.begin_s > ready + margin and latest > ready:
            after |= {n: 0.0 for n in over if ends[n] >= latest - margin and n not in after}
            ready = max(ends[name] + wait for name, wait in after.items())
        late = use.begin_s - ready
        device, seconds = _alone(problem, schedule, use, latency)
        yield _Step(
            name=_name(use),
            device=device,
            alone_s=seconds,
            after=after,
            delay_s=late if late > margin else 0.0,
        )


def _waits(
    problem: SchedulingProblem, schedule: Schedule, use: Slot | TransferSlot
) -> Iterator[tuple[_Name, float]]:
    """What a call or transfer waits for by the problem, and how long after its end it is there."""
    if isinstance(use, TransferSlot):
        yield (use.call, ""), 0.0
        return
    device = schedule.mode_of(problem, use.call).device
    for before, _ in problem.before[problem.numbers[use.call]]:
        other = schedule.slot[problem.calls[before].name]
        there = schedule.mode_of(problem, other.call).device == device
        near = there and set(other.cores) == set(use.cores)
        yield (other.call, "" if there else device), 0.0 if near else problem.handoff_s


def _lines(
    problem: SchedulingProblem, schedule: Schedule, use: Slot | TransferSlot
) -> list[Hashable]:
    """Where one thing happens after the other: cores and links."""
    if isinstance(use, TransferSlot):
        return [(use.origin, use.destination)]
    device = schedule.mode_of(problem, use.call).device
    return [(device, core) for core in use.cores]


def _alone(
    problem: SchedulingProblem,
    schedule: Schedule,
    use: Slot | TransferSlot,
    latency: Latency | None,
) -> tuple[str, float]:
    """The device on which something meets others, and the seconds that it takes alone."""
    if isinstance(use, TransferSlot):
        number = problem.numbers[use.call]
        return "", problem.transfer_s(number, use.origin, use.destination) or 0.0
    mode = schedule.mode_of(problem, use.call)
    seconds = mode.latency_s if latency is None else latency(use.call, mode)
    require_seconds(problem.title, f"the latency of call {use.call!r}", seconds)
    return mode.device, seconds


@dataclass(slots=True, kw_only=True)
class _Running:
    """A step that runs: so many seconds were left to do at `since_s`, each taking `factor`."""

    step: _Step
    since_s: float
    left_s: float
    factor: float = 1.0

    @property
    def end_s(self) -> float:
        return self.since_s + self.left_s * self.factor

    def slow_down(self, now_s: float, factor: float) -> None:
        if factor != self.factor:
            self.left_s -= (now_s - self.since_s) / self.factor
            self.since_s, self.factor = now_s, factor


class _Run:
    """The events one after the other: something ends, something that waited for it begins."""

    def __init__(self, problem: SchedulingProblem, slowdown: Slowdown | None) -> None:
        self._problem, self._slowdown = problem, slowdown
        self._begins: dict[_Name, float] = {}
        self._ends: dict[_Name, float] = {}
        self._running: dict[_Name, _Running] = {}
        self._waiting: list[tuple[float, int]] = []

    def times(self, steps: Sequence[_Step]) -> tuple[dict[_Name, float], dict[_Name, float]]:
        """When each step begins and ends."""
        left = [len(step.after) for step in steps]
        readers: defaultdict[_Name, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            for name in step.after:
                readers[name].append(number)
            if not step.after:
                heappush(self._waiting, (step.delay_s, number))
        while self._running or self._waiting:
            ending = min(self._running.values(), key=lambda each: each.end_s, default=None)
            begin = self._waiting[0][0] if self._waiting else inf
            if ending is None or begin < ending.end_s:
                self._begin(steps[heappop(self._waiting)[1]], begin)
                continue
            self._end(ending)
            for number in readers[ending.step.name]:
                left[number] -= 1
                if not left[number]:
                    step = steps[number]
                    ready = max(self._ends[name] + wait for name, wait in step.after.items())
                    heappush(self._waiting, (ready + step.delay_s, number))
        return self._begins, self._ends

    def _begin(self, step: _Step, now_s: float) -> None:
        self._begins[step.name] = now_s
        self._running[step.name] = _Running(step=step, since_s=now_s, left_s=step.alone_s)
        self._meet(step.device, now_s)

    def _end(self, ending: _Running) -> None:
        self._ends[ending.step.name] = ending.end_s
        del self._running[ending.step.name]
        self._meet(ending.step.device, ending.end_s)

    def _meet(self, device: str, now_s: float) -> None:
        """Have all that runs on a device go on as fast as it does beside the others."""
        if self._slowdown is None or not device:
            return
        there = [each for each in self._running.values() if each.step.device == device]
        for each in there:
            call = each.step.name[0]
            factor = self._slowdown(
                call, frozenset(other.step.name[0] for other in there if other is not each)
            )
            require_seconds(self._problem.title, f"the slowdown of call {call!r}", factor)
            each.slow_down(now_s, factor)
