"""The processes that compute what a plan says: a place for each device and set of cores, requests
that flow through the parts, and another plan where a device is lost or becomes slow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed, wait
from itertools import count
from math import inf, log2
from statistics import median
from time import monotonic

from tilewright.core.errors import TargetError, TilewrightError, first_line
from tilewright.core.refusals import DeadlineMissed, RequestFailed
from tilewright.core.schedules import RunMode
from tilewright.core.scratch import PrivateFolder
from tilewright.core.serving import InstanceService
from tilewright.core.units import format_seconds
from tilewright.deploy.compiled_parts import CompiledPart, Parts, Way
from tilewright.graph.network import Array
from tilewright.graph.parts import Place
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import CPU
from tilewright.measure.targeting import in_this_process
from tilewright.serving.doubted_devices import DoubtedDevices
from tilewright.serving.earliest import Taker
from tilewright.serving.flows import Flow, Flows, LoadedPart, LoadedWay, Span
from tilewright.serving.grouping import BatchTimes
from tilewright.serving.instance import LOOK_S, Service
from tilewright.serving.pace import Pace
from tilewright.serving.planned_networks import PlannedNetworks
from tilewright.serving.posts import GpuPost, LocalPost, Post, RemotePost
from tilewright.serving.requests import Request
from tilewright.serving.slow_devices import SlowDevices
from tilewright.serving.stations import WARM_RUNS, Station
from tilewright.serving.staying import staying

_ROUNDS = 5
_MOST_SPANS = 1 << 14
SEQUENTIAL, PARALLEL = "sequential", "parallel"
_Known = tuple[frozenset[str], frozenset[tuple[str, int]]]
"""Devices that are lost, and those that are slow with the power of two that is nearest to how
many times."""


class PlanCrew:
    """A crew that computes networks of a plan in parts.

    In the `mode` "parallel" it does as the plan says, in "sequential" all on the device that should
    be fastest alone; "auto" measures both in turn, `together` requests for each network at a time,
    and keeps the faster one; where the plan crashes or hangs meanwhile, the other one. What is
    compiled lies in `folder`, which is removed at the end. `mode` is then what it does, and
    `times_s` are the medians of both.
    """

    def __init__(
        self,
        parts: Parts,
        networks: PlannedNetworks,
        mode: RunMode,
        folder: PrivateFolder,
        together: int = 1,
    ) -> None:
        self._parts, self._networks, self._together = parts, networks, together
        self._folder = folder
        alone = parts.fastest_alone()
        if mode == SEQUENTIAL and not alone:
            raise TargetError("no device of the plan computes all of its calls alone")
        self._alone, self._ways = alone or "", dict[str, Way]()
        if mode != SEQUENTIAL:
            self._ways[PARALLEL] = parts.way(parts.plan.schedule)
            merged = any(named.merges for named in parts.plan.networks)
            if alone and not merged and self._ways[PARALLEL].is_alone_on(alone):
                self._ways = {SEQUENTIAL: self._ways[PARALLEL]}
        if alone and mode != PARALLEL and SEQUENTIAL not in self._ways:
            self._ways[SEQUENTIAL] = parts.alone(alone)
        self.mode, self.times_s = next(iter(self._ways)), dict[str, float]()
        places = sorted({place for way in self._ways.values() for place in way.places})
        self.running = 2 * (len(places) + 1)
        self.own_slots = max(together, 1) * len(parts.names)
        self.layout = tuple(len(cores) for _, cores in places)
        self.choice = self._fault = ""
        self.same: bool | None = None
        self._flows, self._orders, self._keys = Flows(), count(), count()
        self._stations: dict[Place, Station] = {}
        self._way, self._known = LoadedWay(parts={}), dict[_Known, LoadedWay]()
        self.spans: deque[Span] = deque(maxlen=_MOST_SPANS)
        self._lost, self.slow = set[Place](), SlowDevices()
        self._changed, self._stopping = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._turning, self._gone = threading.Lock(), False

    def begin(self, service: Service, first_slot: int) -> None:
        """Load all ways, keep the one that is fastest, and take requests."""
        self._service, self._first_slot = service, first_slot
        loaded = self._compared({name: self._loaded(way) for name, way in self._ways.items()})
        self.mode = min(loaded, key=lambda name: self.times_s.get(name, 0.0))
        self.choice = self._told()
        self._way = self._known[frozenset(), frozenset()] = loaded[self.mode]
        self._keep_only(self._way)
        for part in (part for each in self._way.parts.values() for part in each):
            part.pace = part.pace and Pace(part.pace.expected_s)
        self._judge_by(self._way)
        self.slow.clear()
        self._changed.clear()
        if self._lost:  # since it was tried out
            self._changed.set()
        for work in (self._admit, self._expire, self._replan):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def _compared(self, ways: dict[str, LoadedWay]) -> dict[str, LoadedWay]:
        """All ways, put up and, where there are two, timed in turn; without the plan's where that
        fails and there is another."""
        planned = ways[PARALLEL] if len(ways) > 1 else None
        alone: list[bytes] = []
        for way in ways.values():
            if way is not planned:
                self._put_up(way)
                alone = self._try_out(way)
        if planned is None:
            return ways
        try:
            self._put_up(planned)
            same = self._try_out(planned, on_trial=True) == alone
            placed = (self._networks.served(name).plan.outputs for name in planned.parts)
            unknown = any(None in places for places in placed)  # those are not compared
            self.same = None if same and unknown else same
            self._measure(ways)
        except TilewrightError as error:
            self._fault, left = first_line(error), ways[SEQUENTIAL]
            self.tell(f"The plan fails, and is not carried out: {self._fault}.")
            self._begin_anew(left)
            return {SEQUENTIAL: left}
        return ways

    def _begin_anew(self, way: LoadedWay) -> None:
        """Have only this way, in processes of which none has failed."""
        stations = list(self._stations.values())
        self._stations.clear()
        for station in stations:
            station.stop(at_once=True)
        for station in stations:
            station.join()
        self._lost.clear()
        self._put_up(way)
        self._try_out(way)

    def _told(self) -> str:
        how = {PARALLEL: "as planned", SEQUENTIAL: f"one after the other on {self._alone!r}"}
        if self._fault:
            return f"Computed {how[SEQUENTIAL]}: as planned it failed on trial: {self._fault}."
        if not self.times_s:
            return f"Computed {how[self.mode]}."
        times = ", ".join(f"{how[n]} {format_seconds(s)}" for n, s in self.times_s.items())
        return f"Computed {how[self.mode]}; in turn: {times}."

    def _loaded(self, way: Way) -> LoadedWay:
        parts = {name: self._loaded_parts(name, each) for name, each in way.parts.items()}
        return LoadedWay(parts=parts)

    def _loaded_parts(self, name: str, parts: Sequence[CompiledPart]) -> tuple[LoadedPart, ...]:
        wanted = self._parts.network(name).graph.outputs
        return tuple(
            LoadedPart(
                key=f"part {next(self._keys)}",
                part=part,
                plan=self._networks.slots_of(name, part.inputs, part.outputs),
                stays=staying(parts, number, wanted) if self._is_on_gpu(part.place) else None,
            )
            for number, part in enumerate(parts)
        )

    def _is_on_gpu(self, place: Place) -> bool:
        return self._parts.placements[place[0]].target.kind not in CPU

    def maker_of(self, network: str, tensor: str) -> str:
        """What a plan calls what a tensor of a network is the result of."""
        made = {c.output: c.name for c in self._parts.network(network).fused.calls}
        return made.get(tensor, f"input {tensor}")

    def gather(self, count: int) -> None:
        """Have no part begin before so many requests set out, so that they do as is planned."""
        self._flows.gather(count)

    def _put_up(self, way: LoadedWay) -> None:
        """Have all places of a way, with its parts."""
        waiting: list[Future[None]] = []
        for place in way.places:
            if place not in self._stations:
                self._stations[place] = self._station(place)
            waiting.append(self._stations[place].load(way.at(place)))
        for future in waiting:
            future.result()

    def _station(self, place: Place) -> Station:
        device, cores = place
        placement, slots = self._parts.placements[device], self._service.slots
        post: Post
        if in_this_process(placement):
            cpus = tuple(local_placement(None).binding.cpus[core] for core in cores)
            post = LocalPost(self._service.worker, cpus, slots)
        elif self._is_on_gpu(place):
            post = GpuPost(placement, slots)
        else:
            post = RemotePost(placement, slots)
        supervision = self._service.supervision
        return Station(len(self._stations), place, post, self._flows, supervision, self)

    def _keep_only(self, way: LoadedWay) -> None:
        for place, station in list(self._stations.items()):
            if place not in way.places:
                station.stop()
                station.join()
                del self._stations[place]
                self._lost.discard(place)
            else:
                station.forget(way.at(place))

    def _try_out(self, way: LoadedWay, *, on_trial: bool = False) -> list[bytes]:
        """A few runs with drawn inputs, after which it is known what each part takes; the outputs
        of the last."""
        answers: dict[str, bytes] = {}
        for _ in range(WARM_RUNS):
            for name in way.parts:
                self._run_once(way, [name], on_trial=on_trial)
                answers[name] = b"".join(self._answered(name))
        return list(answers.values())

    def _answered(self, name: str) -> Iterator[bytes]:
        """The outputs of the last request for a network that ran by itself."""
        for place in self._networks.served(name).plan.outputs:
            if place is not None:
                yield self._service.slots.view(self._first_slot, place).tobytes()

    def _measure(self, ways: Mapping[str, LoadedWay]) -> None:
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_ROUNDS):
            for name, way in ways.items():
                asked, on_trial = list(way.parts) * self._together, name == PARALLEL
                samples[name].append(self._run_once(way, asked, on_trial=on_trial))
        self.times_s = {name: median(times) for name, times in samples.items()}

    def _run_once(self, way: LoadedWay, names: Iterable[str], *, on_trial: bool = False) -> float:
        """Seconds in which so many requests on drawn inputs are computed beside each other. Raises
        what the first of them ends in that fails, when all have ended."""
        asked = list(enumerate(names, self._first_slot))
        for slot, name in asked:
            served = self._networks.served(name)
            self._service.slots.write(slot, served.plan, served.drawn_inputs())
        ended, began_s = [Future[Flow]() for _ in asked], monotonic()
        flows = [
            Flow(
                network=name,
                slot=slot,
                order=next(self._orders),
                way=way,
                came_s=began_s,
                done=lambda flow, fault, future=future: _end(future, flow, fault),
                on_trial=on_trial,
            )
            for (slot, name), future in zip(asked, ended, strict=True)
        ]
        self._flows.add(*flows)
        if on_trial and any(place in self._lost for place in way.places):  # before they set out
            for flow in flows:
                self._flows.finish(flow, TargetError("a device was lost before it was tried"))
        for future in as_completed(ended):
            if future.exception() is not None:
                for flow in flows:
                    self._flows.finish(flow, None)
                wait(ended)
            future.result()
        return monotonic() - began_s

    def expected_s(self, network: str) -> float:
        """What a network takes alone, by now, as far as that was measured."""
        if self._gone or not self._way.parts:
            return inf if self._gone else 0.0
        names = self._networks.replicas(network)
        return min((self._way.path_s(name, measured=True) for name in names), default=inf)

    @property
    def is_lost(self) -> bool:
        return self._gone

    def statistics(self) -> tuple[InstanceService, ...]:
        return tuple(station.statistics() for station in list(self._stations.values()))

    def _admit(self) -> None:
        """Let requests set out, no more at a time than keep all places busy."""
        queue = self._service.queue
        taker = Taker(lambda name: BatchTimes.single(self.expected_s(name)))
        while not (queue.over or self._gone or self._stopping.is_set()):
            most = min(self.running, len(self._way.places) + 1)
            if not self._flows.wait_below(most, LOOK_S):
                continue
            taken = queue.take(taker, LOOK_S)
            if taken is not None:
                ((request,), _) = taken
                with self._turning:
                    flow = self._flow(request)
                    self._flows.add(flow)
                    gone = self._gone
                if gone:  # it was taken before that, and set out afterwards
                    fault = RequestFailed("nothing is left that computes the plan")
                    self._flows.finish(flow, fault)

    def _flow(self, request: Request) -> Flow:
        names = self._networks.replicas(request.network)
        name = min(names, key=lambda n: (1 + self._flows.load_of(n)) * self._way.path_s(n))
        return Flow(
            network=name,
            slot=request.slot,
            order=next(self._orders),
            way=self._way,
            due_s=request.due_s,
            done=lambda flow, fault: self._settle(request, flow, fault),
            wanted=lambda: not request.answer.cancelled(),
        )

    def _expire(self) -> None:
        """Give up requests on their way that cannot be answered in time any more."""
        while not self._stopping.is_set():
            for flow in self._flows.late(LOOK_S):
                fault = DeadlineMissed(
                    f"a request for {self._networks.group_of(flow.network)!r} cannot be answered "
                    f"in time: what is left of it takes {format_seconds(flow.left_s)}"
                )
                self._flows.finish(flow, fault)

    def _settle(self, request: Request, flow: Flow, fault: Exception | None) -> None:
        if fault is not None:
            missed = isinstance(fault, DeadlineMissed)
            self._service.settle(request, fault, "missed" if missed else "failed")
            return
        if not flow.complete:
            request.answer.cancel()
        served = self._networks.served(flow.network)
        outputs = dict[str, Array]()
        if not request.answer.cancelled():
            self.spans.extend(flow.spans)
            names = [port.name for port in served.outputs]
            others = self._networks.others(flow.network, flow.others)
            outputs = self._service.slots.read(flow.slot, served.plan, names, others)
        only = len(outputs) == 1
        answer = next(iter(outputs.values())) if only else outputs
        self._service.settle(request, answer, "answered")

    # what happens at places

    def retried(self, flow: Flow) -> None:
        self._service.tally.count(self._networks.group_of(flow.network), "retried")

    def tell(self, message: str) -> None:
        self._service.tell(message)

    def lost(self, place: Place) -> None:
        self._lost.add(place)
        self._changed.set()
        for flow in self._flows.all():
            # before anything is served nobody plans again, and what is on trial does not wait
            if flow.on_trial or not self._threads:
                self._flows.finish(flow, TargetError(f"{place[0]!r} was lost before it was ready"))

    def found(self, place: Place) -> None:
        self._lost.discard(place)
        self._changed.set()

    def slower(self, place: Place, factor: float) -> None:
        self.slow.note(place[0], factor)
        self._changed.set()

    def _replan(self) -> None:
        """Plan again when a device is lost or slow, may be itself again or is found again, as often
        as that happens. One that is found and fails, at its trial or before it, is taken for lost
        for a while; what else happened meanwhile is planned without it."""
        around, doubted, pending = set[str](), DoubtedDevices(), list[str]()
        last_resort: set[str] | None = None
        while not (self._stopping.is_set() or self._gone):
            changed = self._changed.wait(LOOK_S)
            pending += self.slow.tried_again()
            if not (changed or pending or doubted.over) or self._stopping.is_set():
                continue
            self._changed.clear()
            lost, slower = set(self._lost), self.slow.factors
            devices = {device for device, _ in lost}
            without = devices | doubted.without(devices)
            back = around - without
            try:
                way = self._way_around(without, slower)
            except TilewrightError as error:
                if back - {device for device, _ in set(self._lost)}:  # others change it
                    self._tell_failure(back, error)
                    doubted.note(back, self._service.supervision.longest_pause_s)
                    self._changed.set()
                elif doubted.names and devices != last_resort:  # they may be better than nothing
                    last_resort = devices
                    doubted.end()
                    self._changed.set()
                elif self._lost == lost and not self._stopping.is_set():
                    pending.clear()
                    self._give_up(lost, error)
                continue  # where another device is lost by now, that is known
            if back and not self._answers(way, back):
                doubted.note(back, self._service.supervision.longest_pause_s)
                self._changed.set()
                continue
            doubted.forget(back)
            again, pending = [*pending, *sorted(back)], []
            around, last_resort = without, None
            if way is self._way and not (slower or again):
                continue
            with self._turning:
                self._way = way
                self._judge_by(way, again)
                self._flows.turn(way, lost)
            told = [f"without {device!r}" for device in sorted(without)]
            told += [f"with {d!r} {factor:.1f} times as slow" for d, factor in slower.items()]
            told += [f"with {device!r} as at the start" for device in again]
            self.tell(f"Planned again {', '.join(told)}.")

    def _answers(self, way: LoadedWay, back: Collection[str]) -> bool:
        """Whether all networks are computed on a way with devices that were lost; requests take it
        only then."""
        try:
            for name in way.parts:
                self._run_once(way, [name], on_trial=True)
        except TilewrightError as error:
            self._tell_failure(back, error)
            return False
        return not self._stopping.is_set()

    def _tell_failure(self, back: Collection[str], error: TilewrightError) -> None:
        if not self._stopping.is_set():
            named = " and ".join(map(repr, sorted(back)))
            self.tell(f"Still planned without {named}, which started again: {first_line(error)}.")

    def _judge_by(self, way: LoadedWay, again: Collection[str] = ()) -> None:
        """Have places judged by the parts of this way, those of some devices by what they take
        from now on."""
        for place, station in self._stations.items():
            station.judge_by(way.at(place), anew=place[0] in again)

    def _way_around(self, lost: Collection[str], slower: Mapping[str, float]) -> LoadedWay:
        """The way without devices that are lost, where others are slow: one that was planned before
        where that is about the same."""
        about = frozenset((device, round(log2(factor))) for device, factor in slower.items())
        known = frozenset(lost), about
        if known not in self._known:
            way = self._loaded(self._parts.left(lost, slower))
            self._put_up(way)
            self._known[known] = way
        return self._known[known]

    def _give_up(self, lost: Collection[Place], error: TilewrightError) -> None:
        """No other plan is there; without a place that the present one needs nothing is left."""
        self.tell(f"No other plan is found: {first_line(error)}.")
        if any(place in lost for place in self._way.places):
            fault = RequestFailed(f"nothing is left that computes the plan: {first_line(error)}")
            with self._turning:
                self._gone = True
                self._service.lost()
            for flow in self._flows.all():
                self._flows.finish(flow, fault)
            for station in list(self._stations.values()):
                station.stop()  # else it would be started on and on

    def stop(self, *, at_once: bool) -> None:
        self._stopping.set()
        self._changed.set()
        for station in list(self._stations.values()) if at_once else ():
            station.stop(at_once=True)  # one that hangs on trial would be waited for
        for thread in self._threads:
            while thread.is_alive():
                for flow in self._flows.all():
                    if flow.on_trial:
                        self._flows.finish(flow, None)
                thread.join(LOOK_S / 5)
        stations = list(self._stations.values())
        for station in stations:
            station.stop(at_once=at_once)
        for station in stations:
            station.join()
        for flow in self._flows.all():
            self._flows.finish(flow, None)
        self._folder.close()


def _end(future: Future[Flow], flow: Flow, fault: Exception | None) -> None:
    if fault is None:
        future.set_result(flow)
    else:
        future.set_exception(fault)
