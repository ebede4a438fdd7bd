"""Requests on their way through the parts of networks: what may begin where, and in which order.

    request 1   [stem]✓ → [left] runs      request 2   [stem] runs
                        → [right] ready

A part may begin when what it reads is there and its cores are free. Of several that may, that one
begins which the plan has first, counted from when its request came; a part that waits for cores
keeps those behind it off them, so that one on many cores is not put off for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.graph.network import Array
from tilewright.graph.parts import Place
from tilewright.serving.batches import ToLoad
from tilewright.serving.pace import Pace
from tilewright.serving.slots import SlotPlan
from tilewright.serving.staying import Copied, Stays


@dataclass(slots=True, kw_only=True, eq=False)
class LoadedPart:
    """A part as a process knows it: by `key`, with the places of what it reads and writes in a
    slot, and on a GPU which of that stays there; how long it took so far, and takes."""

    key: str
    part: CompiledPart
    plan: SlotPlan
    stays: Stays | None = None
    samples_s: list[float] = field(default_factory=list[float])
    pace: Pace | None = None

    @property
    def takes_s(self) -> float:
        """Seconds by now, as predicted before it has run a few times."""
        return self.part.expected_s if self.pace is None else self.pace.expected_s

    @property
    def keeps_alone(self) -> bool:
        """Whether some of its results are nowhere but with its process."""
        return self.stays is not None and not self.stays.sent.issuperset(self.stays.outputs)

    @property
    def to_load(self) -> ToLoad:
        """What its process loads."""
        made = self.part
        return ToLoad(
            key=self.key,
            folder=made.folder,
            constants=made.constants,
            plan=self.plan,
            stays=self.stays,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedWay:
    """A way to compute networks that processes have loaded."""

    parts: Mapping[str, Sequence[LoadedPart]]

    @property
    def places(self) -> tuple[Place, ...]:
        """Where something runs."""
        return tuple(dict.fromkeys(p.part.place for each in self.parts.values() for p in each))

    def path_s(self, network: str, begun: Collection[int] = (), *, measured: bool = False) -> float:
        """The seconds that a network takes where nothing waits, but for the parts that have begun;
        `measured` leaves out those that have not run a few times, too. Nobody is refused for what
        was only predicted: a part that never runs would never be measured."""
        ends_s: list[float] = []  # no part reads what a later one writes
        for number, part in enumerate(self.parts[network]):
            left_out = number in begun or (measured and part.pace is None)
            own_s = 0.0 if left_out else part.takes_s
            ends_s.append(own_s + max((ends_s[each] for each in part.part.after), default=0.0))
        return max(ends_s, default=0.0)

    def at(self, place: Place) -> list[LoadedPart]:
        """The parts that run at a place."""
        return [p for each in self.parts.values() for p in each if p.part.place == place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a part ran, on the monotonic clock; the times are those of who asked for it. On a GPU
    also when what it reads was copied there, and back what others read."""

    part: str
    network: str
    place: Place
    begin_s: float
    end_s: float
    copies: tuple[Copied, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Flow:
    """A request: its network, the slot with its inputs, its turn, the way it goes, when it came and
    when it is due on the monotonic clock. `done` hears once how it ended, of a fault or none;
    `wanted` says whether anybody still waits. One `on_trial` ends at the first process that
    fails."""

    network: str
    slot: int
    order: int
    way: LoadedWay
    done: Callable[[Flow, Exception | None], None]
    wanted: Callable[[], bool] = lambda: True
    came_s: float = field(default_factory=monotonic)
    due_s: float = inf
    turn_to: LoadedWay | None = None
    on_trial: bool = False
    begun: set[int] = field(default_factory=set[int])
    ended: set[int] = field(default_factory=set[int])
    running: int = 0
    over: bool = False
    fault: Exception | None = None
    others: dict[str, Array] = field(default_factory=dict[str, Array])
    failures: list[str] = field(default_factory=list[str])
    spans: list[Span] = field(default_factory=list[Span])

    @property
    def parts(self) -> Sequence[LoadedPart]:
        """The parts on its way."""
        return self.way.parts[self.network]

    @property
    def complete(self) -> bool:
        """Whether all is computed."""
        return len(self.ended) == len(self.parts) and self.turn_to is None

    @property
    def latest_s(self) -> float:
        """When what has not begun must begin at the latest, infinite where nothing is left that
        could still be saved."""
        way, begun = self._ahead
        if self.over or self.due_s == inf or len(begun) == len(way.parts[self.network]):
            return inf
        return self.due_s - self.left_s

    @property
    def left_s(self) -> float:
        """The seconds that what has not begun takes where nothing waits, as far as measured."""
        way, begun = self._ahead
        return way.path_s(self.network, begun, measured=True)

    @property
    def _ahead(self) -> tuple[LoadedWay, set[int]]:
        """The way that it goes on, and what of it has begun."""
        return (self.turn_to, set[int]()) if self.turn_to else (self.way, self.begun)

    def readers_of(self, number: int) -> set[int]:
        """The numbers of parts that read results of a part."""
        return {n for n, each in enumerate(self.parts) if number in each.part.after}

    def ready(self) -> list[int]:
        """The numbers of parts that may begin."""
        if self.over or (self.turn_to is not None and self.running):
            return []
        if self.turn_to is not None:  # all over again, on the other way
            self.way, self.turn_to = self.turn_to, None
            self.begun, self.ended = set(), set()
        waiting = (n for n in range(len(self.parts)) if n not in self.begun)
        return [n for n in waiting if self.ended.issuperset(self.parts[n].part.after)]


class Flows:
    """All requests on their way. Threads of places take parts and say how they ended."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._flows: list[Flow] = []
        self._busy: set[tuple[str, int]] = set()
        self._gathering = 0

    @property
    def count(self) -> int:
        """How many are on their way."""
        return len(self._flows)

    def load_of(self, network: str) -> int:
        """How many of a network's are."""
        with self._change:
            return sum(flow.network == network for flow in self._flows)

    def gather(self, count: int) -> None:
        """Have no part begin before so many requests are on their way."""
        with self._change:
            self._gathering = count
            self._change.notify_all()

    def add(self, *flows: Flow) -> None:
        """Requests set out, at a time."""
        with self._change:
            self._flows.extend(flows)
            if len(self._flows) >= self._gathering:
                self._gathering = 0
            self._change.notify_all()

    def take(self, place: Place, patience_s: float) -> tuple[Flow, int] | None:
        """The next part to run at a place, whose cores are taken until it `ended`; None when none
        could begin within `patience_s`, or somebody woke all."""
        with self._change:
            found = self._next(place)
            if found is None:
                self._change.wait(patience_s)
                found = self._next(place)
            if found is not None:
                flow, number = found
                flow.begun.add(number)
                flow.running += 1
                self._busy |= _cores(place)
            return found

    def _next(self, place: Place) -> tuple[Flow, int] | None:
        if self._gathering:
            return None
        kept = set(self._busy)
        ready = [(flow, number) for flow in self._flows for number in flow.ready()]
        for flow, number in sorted(ready, key=_turn):
            there = flow.parts[number].part.place
            if there == place and not kept & _cores(place):
                return flow, number
            kept |= _cores(there)
        return None

    def ended(
        self, flow: Flow, number: int, span: Span | None, others: Mapping[int, Array]
    ) -> None:
        """A part ended, with a span where it was computed; without one it is to run again."""
        part = flow.parts[number].part
        with self._change:
            self._busy -= _cores(part.place)
            flow.running -= 1
            if span is None:
                flow.begun.discard(number)
            else:
                flow.ended.add(number)
                flow.spans.append(span)
                flow.others |= {part.outputs[n]: array for n, array in others.items()}
            flow.over = flow.over or flow.complete
        self._leave(flow)

    def finish(self, flow: Flow, fault: Exception | None) -> None:
        """A request is given up; it hears so when none of its parts runs any more, which would
        write into its slot."""
        with self._change:
            if not flow.over:
                flow.over, flow.fault = True, fault
        self._leave(flow)

    def _leave(self, flow: Flow) -> None:
        with self._change:
            leaves = flow.over and not flow.running and flow in self._flows
            if leaves:
                self._flows.remove(flow)
            self._change.notify_all()
        if leaves:
            flow.done(flow, flow.fault)

    def turn(self, way: LoadedWay, lost: set[Place]) -> None:
        """Have requests that need a place which is lost go another way, from their beginning."""
        with self._change:
            for flow in self._flows:
                ahead = (flow.turn_to or flow.way).parts[flow.network]
                done = set[int]() if flow.turn_to else flow.ended
                left = (p for n, p in enumerate(ahead) if n not in done)
                if any(part.part.place in lost for part in left):
                    flow.turn_to = way
            self._change.notify_all()

    def forget(self, place: Place) -> None:
        """A place has a new process: what stayed with the old one must be computed again, where it
        still is to be read."""
        with self._change:
            for flow in self._flows:
                for number in sorted(flow.ended, reverse=True):  # those who read it are behind it
                    part, readers = flow.parts[number], flow.readers_of(number)
                    if part.part.place == place and part.keeps_alone and readers - flow.ended:
                        flow.ended.discard(number)
                        flow.begun.discard(number)
            self._change.notify_all()

    def late(self, patience_s: float) -> list[Flow]:
        """Requests with parts left to begin that cannot end in time any more; none where that does
        not come true within `patience_s`, or something else changed before."""
        with self._change:
            if not self._late():
                first_s = min((flow.latest_s for flow in self._flows), default=inf)
                self._change.wait(max(1e-4, min(patience_s, first_s - monotonic())))
            return self._late()

    def _late(self) -> list[Flow]:
        now_s = monotonic()
        return [flow for flow in self._flows if flow.latest_s < now_s]

    def wake(self) -> None:
        """Have all threads look at what else there is to do."""
        with self._change:
            self._change.notify_all()

    def wait_below(self, count: int, patience_s: float) -> bool:
        """Whether fewer than so many are on their way, within `patience_s`."""
        end_s = monotonic() + patience_s
        with self._change:
            return self._change.wait_for(lambda: self.count < count, end_s - monotonic())

    def all(self) -> list[Flow]:
        """Those on their way."""
        with self._change:
            return list(self._flows)


def _turn(ready: tuple[Flow, int]) -> tuple[float, int, int]:
    """When a part of a request is to begin, and what comes first where that is the same."""
    flow, number = ready
    return flow.came_s + flow.parts[number].part.begin_s, flow.order, number


def _cores(place: Place) -> set[tuple[str, int]]:
    device, cores = place
    return {(device, core) for core in cores}
