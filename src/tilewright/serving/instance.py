"""An instance: a worker process on cores of its own or with the session of a device elsewhere, and
the thread that hands it requests, watches it, and starts it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from math import inf
from statistics import median
from time import monotonic

from tilewright.core.errors import TargetError, TilewrightError, first_line
from tilewright.core.processes import ChildError, ChildTimeout, RemoteError
from tilewright.core.refusals import RequestFailed
from tilewright.core.serving import InstanceService, InstanceState
from tilewright.graph.network import Array
from tilewright.measure.networks import network_error
from tilewright.serving.batch_pace import BatchPace
from tilewright.serving.earliest import Taker
from tilewright.serving.grouping import BatchTimes, Costs, worthwhile
from tilewright.serving.layouts import Kind
from tilewright.serving.pace import SLOW
from tilewright.serving.posts import Post
from tilewright.serving.queue import RequestQueue
from tilewright.serving.requests import Outputs, Request
from tilewright.serving.served import ServedNetwork
from tilewright.serving.slots import SharedSlots
from tilewright.serving.tally import Fate, Tally

WORKER = "tilewright.serving.worker"
LOOK_S = 0.5
"""How often an instance without requests looks whether its process is there."""
_WARM_RUNS, _COMPARED_RUNS, _WARM_S = 6, 24, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """When an instance is taken for hung, and what follows when one fails.

    It hangs when a request takes `patience` times what it should, and `least_patience_s`. A request
    whose instance failed runs again `retries` times. An instance is started again after `pause_s`,
    twice as long each time that it fails before it answered, at most `longest_pause_s`; after
    `starts` starts in a row that failed it counts as lost until one succeeds, and when all are lost
    the server gives up: then none is started any more. A start may take `start_s`. What is compared
    with something else, which is there in its place, may take `trial_s` until it is known how long
    it takes.
    """

    patience: float = 20.0
    least_patience_s: float = 2.0
    retries: int = 2
    pause_s: float = 0.1
    longest_pause_s: float = 10.0
    starts: int = 8
    start_s: float = 300.0
    trial_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the instances of a server have in common. `worker` is the module that they run, `tell`
    takes sentences for people, `lost` hears that an instance is."""

    networks: Mapping[str, ServedNetwork]
    queue: RequestQueue
    slots: SharedSlots
    tally: Tally
    supervision: Supervision
    worker: str
    tell: Callable[[str], None]
    lost: Callable[[], None]

    def settle(self, request: Request, outcome: Outputs | Exception, fate: Fate) -> None:
        """Free the slot, and answer if anybody still waits for it."""
        self.queue.release(request)
        if not request.answer.claim():
            return
        now_s = monotonic()
        answered = fate == "answered"
        self.tally.count(request.network, fate, now_s - request.submitted_s if answered else None)
        if answered and now_s > request.due_s:
            self.tally.count(request.network, "late")
        request.answer.deliver(outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What an instance computes with: a process, the networks as they were compiled for it, what
    people call its device, empty where they named none, and the kind of instance, None where it is
    another device."""

    post: Post
    networks: Mapping[str, ServedNetwork]
    device: str = ""
    kind: Kind | None = None


class Instance:
    """A worker process at its seat. `own_slot` is where it is warmed up.

    `ready` is done when it has started the first time, or could not. All but that, `close` and
    the statistics is done in a thread of its own, which ends when the queue is over.
    """

    def __init__(self, number: int, seat: Seat, own_slot: int, service: Service) -> None:
        self.number, self._seat, self._own_slot = number, seat, own_slot
        self._post = seat.post
        self._service = service
        kind = seat.kind
        first = frozenset[str]() if kind is None else frozenset(kind.networks)
        alike = (seat.device, None if kind is None else (kind.cores, kind.batch))
        self._taker = Taker(self.times, alike, first)
        self.ready: Future[None] = Future()
        self._state: InstanceState = "starting"
        self._paces: dict[str, BatchPace] = {}
        self._costs: dict[str, Costs] = {}
        self._restarts, self._answered, self._busy_s = 0, 0, 0.0
        self._failures, self._broken = 0, False
        self._began_s = monotonic()
        self._stopping = threading.Event()
        self._current: Sequence[Request] = ()
        self._thread = threading.Thread(
            target=self._work, name=f"tilewright instance {number}", daemon=True
        )
        self._thread.start()

    @property
    def state(self) -> InstanceState:
        """What it is at."""
        slow = self._state == "ready" and any(p.is_slow for p in [*self._paces.values()])
        return "slow" if slow else self._state

    def expected_s(self, network: str) -> float:
        """Seconds that a network takes here; infinite where the instance is lost."""
        if self._state in ("lost", "closed") or network not in self._paces:
            return inf
        return self._paces[network].expected_s(1)

    def times(self, network: str) -> BatchTimes:
        """The same of each size of a batch that is worth it."""
        if self.expected_s(network) == inf:
            return BatchTimes.single(inf)
        return BatchTimes(costs=self._costs[network], now_s=self._now_s(network))

    def _now_s(self, network: str) -> dict[int, float]:
        pace = self._paces[network]
        return {size: pace.expected_s(size) for size, _ in self._costs[network]}

    def statistics(self) -> InstanceService:
        """What it did so far."""
        return InstanceService(
            instance=self.number,
            cores=self._post.cores,
            state=self.state,
            pid=self._post.pid,
            restarts=self._restarts,
            answered=self._answered,
            busy=self._busy_s / max(1e-9, monotonic() - self._began_s),
            expected_s={name: pace.expected_s(1) for name, pace in self._paces.items()},
            batches_s={name: self._now_s(name) for name, sizes in self._costs.items() if sizes[1:]},
            device=self._seat.device,
            batch=None if self._seat.kind is None else self._seat.kind.batch,
            networks=() if self._seat.kind is None else self._seat.kind.networks,
        )

    def stop(self, *, at_once: bool = False) -> None:
        """Have it end when its queue is over; `at_once` in the middle of requests, which are
        answered as cancelled."""
        self._stopping.set()
        for request in self._current if at_once else ():
            request.answer.cancel()
        if at_once or self._state != "ready":
            self._post.abort()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _work(self) -> None:
        try:
            try:
                self._start()
            except (TilewrightError, ChildError) as error:
                self._state = "lost"
                self.ready.set_exception(self._told(error))
                return
            self._state = "ready"
            self.ready.set_result(None)
            while not self._service.queue.over and not self._stopping.is_set():
                gone = self._broken or self._post.pid is None
                if gone and not self._start_again():
                    return
                taken = self._service.queue.take(self._taker, LOOK_S)
                if taken is not None:
                    self._serve(*taken)
            self._state = "closed"
        finally:
            self._service.queue.leave(self._taker)
            self._post.stop()

    def _start(self) -> None:
        """Start the process, load all networks, and see how long each takes. Raises ChildError, and
        TilewrightError for what the process refuses and for a device that cannot be had."""
        limit_s, networks = self._service.supervision.start_s, self._seat.networks.values()
        try:
            self._post.open([network.to_load for network in networks], limit_s)
            for network in networks:
                self._service.slots.write(self._own_slot, network.plan, network.drawn_inputs())
                self._warm_up(network, limit_s)
        except RemoteError as error:
            raise network_error(error, "the start of an instance") from error
        self._broken = False

    def _warm_up(self, network: ServedNetwork, limit_s: float) -> None:
        """See how long it takes in each size of a batch, and which are worth it: medians of runs on
        drawn inputs, in turn, the first of each left out where there are more."""
        sizes, name = network.batches.sizes, network.name
        rounds = _WARM_RUNS if len(sizes) == 1 else _COMPARED_RUNS
        samples_s: dict[int, list[float]] = {size: [] for size in sizes}
        end_s = monotonic() + _WARM_S * len(sizes)
        for number in range(rounds):
            if number >= 2 and monotonic() >= end_s:
                break
            for size, taken_s in samples_s.items():
                began_s = monotonic()
                self._post.run(name, [self._own_slot] * size, limit_s, size)
                taken_s.append(monotonic() - began_s)
        took_s = {size: median(taken_s[1:]) for size, taken_s in samples_s.items()}
        if name in self._paces:
            took_s = {size: min(s, self._paces[name].begin_s[size]) for size, s in took_s.items()}
        self._costs[name] = worthwhile(took_s)
        self._paces[name] = BatchPace(took_s)

    def _start_again(self) -> bool:
        """Whether it runs again; False when it is stopped meanwhile, or nobody waits for it any
        more: the queue is over, after `close` or because the server gave up."""
        service, queue = self._service, self._service.queue
        supervision, tell = service.supervision, service.tell
        queue.leave(self._taker)
        self._state = "restarting"
        self._restarts += 1
        for attempt in count(1):
            pause_s = supervision.pause_s * 2.0 ** min(16, max(0, self._failures - 1))
            pause_s = min(supervision.longest_pause_s, pause_s)
            if queue.over or self._stopping.wait(pause_s) or queue.over:
                return False
            try:
                self._start()
            except (TilewrightError, ChildError) as error:
                self._failures += 1
                tell(f"{self._title} does not start: {first_line(error)}.")
                if attempt >= supervision.starts:
                    self._state = "lost"
                    service.lost()
                continue
            self._state = "ready"
            break
        return True

    def _serve(self, requests: Sequence[Request], size: int) -> None:
        """Compute requests for a network in a batch of this size, and settle each."""
        service, name = self._service, requests[0].network
        pace, supervision = self._paces[name], service.supervision
        patience_s = max(supervision.least_patience_s, supervision.patience * pace.expected_s(size))
        slots = [request.slot for request in requests]
        self._current, began_s = requests, monotonic()
        try:
            others = self._post.run(name, slots, patience_s, size)
        except RemoteError as error:
            self._refused(requests, network_error(error, "run"))
            return
        except (ChildError, TilewrightError) as error:
            self._failed(requests, error)
            return
        finally:
            self._current = ()
            took_s = monotonic() - began_s
            self._busy_s += took_s
        self._failures = 0
        self._follow(name, size, took_s)
        self._answered += len(requests)
        service.tally.count_batch(name, len(requests))
        for request in requests:
            self._answer(request, others)

    def _answer(self, request: Request, others: Mapping[int, Array]) -> None:
        """Answer with the outputs in its slot, and those that have no place there."""
        service, network = self._service, self._service.networks[request.network]
        names = [port.name for port in network.outputs]
        outputs = service.slots.read(request.slot, network.plan, names, others)
        only = len(names) == 1
        service.settle(request, outputs[names[0]] if only else outputs, "answered")

    def _refused(self, requests: Sequence[Request], error: TilewrightError) -> None:
        """The network refuses these inputs; of several requests each runs alone, to find whose."""
        if len(requests) == 1:
            self._service.settle(requests[0], error, "failed")
            return
        for request in requests:
            self._again(request)

    def _follow(self, network: str, size: int, took_s: float) -> None:
        """Note what a batch took, and tell when the instance becomes slow, or itself again."""
        is_slow = self._paces[network].note(size, took_s)
        if is_slow is not None:
            change = f"takes {SLOW:g} times as long as" if is_slow else "is as fast again as"
            self._service.tell(
                f"Instance {self.number} ({self._where}) {change} at its start for {network!r}."
            )

    @property
    def _title(self) -> str:
        device = self._seat.device
        return f"Instance {self.number} ({device})" if device else f"Instance {self.number}"

    @property
    def _where(self) -> str:
        cores = self._post.cores
        told = f"{'core' if len(cores) == 1 else 'cores'} {', '.join(map(str, cores))}"
        return f"{self._seat.device}, {told}" if self._seat.device else told

    def _failed(self, requests: Sequence[Request], error: ChildError | TilewrightError) -> None:
        """The process is gone, or its device is, and these were the requests that it computed; or
        was to compute, where the device could not even be had."""
        service, name = self._service, requests[0].network
        how = "hung" if isinstance(error, ChildTimeout) else "crashed"
        how = how if isinstance(error, ChildError) else "lost its device"
        self._broken = True
        self._post.abort()
        what = "a request" if len(requests) == 1 else f"a batch of {len(requests)} requests"
        self._failures += 1
        if not self._stopping.is_set():
            service.tell(
                f"{self._title} {how} in {what} for {name!r} and is started again: "
                f"{first_line(error)}."
            )
        for request in requests:
            if isinstance(error, ChildError):
                request.failures.append(f"{self._title} {how} in {what}: {first_line(error)}")
                self._try_again(request)
            else:
                self._again(request)

    def _try_again(self, request: Request) -> None:
        """Let a request whose instance failed run once more, unless it did so too often."""
        service, name = self._service, request.network
        if len(request.failures) <= service.supervision.retries or request.answer.cancelled():
            self._again(request)
        else:
            told, retries = "; ".join(request.failures), service.supervision.retries
            many = f"{len(request.failures)} instances, one after the other"
            fault = RequestFailed(
                f"a request for {name!r} ended {many if retries else 'its instance'}, and is not "
                f"tried again: {told}",
                hint="Its inputs, or a fault of the compiled network, are the likely cause.",
            )
            service.settle(request, fault, "failed")

    def _again(self, request: Request) -> None:
        """Let a request run once more, alone; unless nobody waits for it."""
        if request.answer.cancelled():
            self._service.queue.release(request)
            return
        self._service.tally.count(request.network, "retried")
        request.alone = True
        self._service.queue.again(request)

    def _told(self, error: TilewrightError | ChildError) -> TilewrightError:
        if isinstance(error, TilewrightError):
            return error
        return TargetError(f"instance {self.number} does not start: {error}")
