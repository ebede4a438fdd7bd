"""An instance: a worker process on cores of its own, and the thread that hands it requests, watches
it, and starts it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from math import inf
from statistics import median
from time import monotonic

from tilewright.core.errors import TargetError, TilewrightError, first_line
from tilewright.core.processes import Child, ChildError, ChildTimeout, RemoteError
from tilewright.core.refusals import RequestFailed
from tilewright.core.serving import InstanceService, InstanceState
from tilewright.measure.networks import network_error
from tilewright.serving.networks import ServedNetwork
from tilewright.serving.pace import SLOW, Pace
from tilewright.serving.queue import RequestQueue
from tilewright.serving.requests import Outputs, Request
from tilewright.serving.slots import SharedSlots
from tilewright.serving.tally import Fate, Tally

WORKER = "tilewright.serving.worker"
LOOK_S = 0.5
"""How often an instance without requests looks whether its process is there."""
_WARM_RUNS, _WARM_S = 6, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """When an instance is taken for hung, and what follows when one fails.

    It hangs when a request takes `patience` times what it should, and `least_patience_s`. A request
    whose instance failed runs again `retries` times. An instance is started again after `pause_s`,
    twice as long each time that it fails before it answered, at most `longest_pause_s`; after
    `starts` starts in a row that failed it counts as lost until one succeeds, and when all are lost
    the server gives up. A start may take `start_s`.
    """

    patience: float = 20.0
    least_patience_s: float = 2.0
    retries: int = 2
    pause_s: float = 0.1
    longest_pause_s: float = 10.0
    starts: int = 8
    start_s: float = 300.0


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


class Instance:
    """A worker process with a thread on each of its `cpus`. `own_slot` is where it is warmed up.

    `ready` is done when it has started the first time, or could not. All but that, `close` and
    the statistics is done in a thread of its own, which ends when the queue is over.
    """

    def __init__(self, number: int, cpus: tuple[int, ...], own_slot: int, service: Service) -> None:
        self.number, self._cpus, self._own_slot = number, cpus, own_slot
        self._service = service
        self.ready: Future[None] = Future()
        self._state: InstanceState = "starting"
        self._paces: dict[str, Pace] = {}
        self._restarts, self._answered, self._busy_s = 0, 0, 0.0
        self._failures = 0
        self._began_s = monotonic()
        self._stopping = threading.Event()
        self._child = Child(service.worker, cpus=cpus, inherited=(service.slots.descriptor,))
        self._current: Request | None = None
        self._thread = threading.Thread(
            target=self._work, name=f"tilewright instance {number}", daemon=True
        )
        self._thread.start()

    @property
    def state(self) -> InstanceState:
        """What it is at."""
        slow = self._state == "ready" and any(pace.is_slow for pace in self._paces.values())
        return "slow" if slow else self._state

    def expected_s(self, network: str) -> float:
        """Seconds that a network takes here; infinite where the instance is lost."""
        if self._state in ("lost", "closed") or network not in self._paces:
            return inf
        return self._paces[network].expected_s

    def statistics(self) -> InstanceService:
        """What it did so far."""
        return InstanceService(
            instance=self.number,
            cores=self._cpus,
            state=self.state,
            pid=self._child.pid,
            restarts=self._restarts,
            answered=self._answered,
            busy=self._busy_s / max(1e-9, monotonic() - self._began_s),
            expected_s={name: pace.expected_s for name, pace in self._paces.items()},
        )

    def stop(self, *, at_once: bool = False) -> None:
        """Have it end when its queue is over; `at_once` in the middle of a request, which is
        answered as cancelled."""
        self._stopping.set()
        current = self._current
        if at_once and current is not None:
            current.answer.cancel()
        if at_once or self._state != "ready":
            self._child.abort()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _work(self) -> None:
        try:
            try:
                self._start()
            except (TilewrightError, ChildError) as error:
                self._state = "lost"
                self.ready.set_exception(_told(error, self.number))
                return
            self._state = "ready"
            self.ready.set_result(None)
            while not self._service.queue.over and not self._stopping.is_set():
                if self._child.pid is None and not self._start_again():
                    return
                request = self._service.queue.take(self.expected_s, LOOK_S)
                if request is not None:
                    self._serve(request)
            self._state = "closed"
        finally:
            self._child.stop()

    def _start(self) -> None:
        """Start the process, load all networks, and see how long each takes. Raises ChildError, and
        TilewrightError for what the process refuses."""
        service, limit_s = self._service, self._service.supervision.start_s
        slots = service.slots
        try:
            self._child.request(("prepare", slots.descriptor, *slots.shape, self._cpus), limit_s)
            for name, network in service.networks.items():
                loading = ("load", name, network.folder, list(network.constants), network.plan)
                self._child.request_again(loading, limit_s)
                slots.write(self._own_slot, network.plan, network.drawn_inputs())
                took_s = self._warmed_s(name, limit_s)
                if name not in self._paces or took_s < self._paces[name].begin_s:
                    self._paces[name] = Pace(took_s)
        except RemoteError as error:
            raise network_error(error, "the start of an instance") from error

    def _warmed_s(self, network: str, limit_s: float) -> float:
        """The median of a few runs on drawn inputs, the first left out where there are more."""
        samples_s: list[float] = []
        end_s = monotonic() + _WARM_S
        while len(samples_s) < _WARM_RUNS and (len(samples_s) < 2 or monotonic() < end_s):
            began_s = monotonic()
            self._child.request_again(("run", network, self._own_slot), limit_s)
            samples_s.append(monotonic() - began_s)
        return median(samples_s[1:])

    def _start_again(self) -> bool:
        """Whether it runs again; False when it is stopped meanwhile."""
        supervision, tell = self._service.supervision, self._service.tell
        self._state = "restarting"
        self._restarts += 1
        for attempt in count(1):
            pause_s = supervision.pause_s * 2.0 ** min(16, max(0, self._failures - 1))
            if self._stopping.wait(min(supervision.longest_pause_s, pause_s)):
                return False
            try:
                self._start()
            except (TilewrightError, ChildError) as error:
                self._failures += 1
                tell(f"Instance {self.number} does not start: {first_line(error)}.")
                if attempt >= supervision.starts:
                    self._state = "lost"
                    self._service.lost()
                continue
            self._state = "ready"
            break
        return True

    def _serve(self, request: Request) -> None:
        service, name = self._service, request.network
        network, pace = service.networks[name], self._paces[name]
        supervision = service.supervision
        patience_s = max(supervision.least_patience_s, supervision.patience * pace.expected_s)
        self._current, began_s = request, monotonic()
        try:
            others = self._child.request_again(("run", name, request.slot), patience_s)
        except RemoteError as error:
            service.settle(request, network_error(error, "run"), "failed")
            return
        except ChildError as error:
            self._failed(request, error)
            return
        finally:
            self._current = None
            took_s = monotonic() - began_s
            self._busy_s += took_s
        self._failures = 0
        self._follow(name, pace, took_s)
        names = [port.name for port in network.outputs]
        outputs = service.slots.read(request.slot, network.plan, names, others)
        self._answered += 1
        only = len(names) == 1
        service.settle(request, outputs[names[0]] if only else outputs, "answered")

    def _follow(self, network: str, pace: Pace, took_s: float) -> None:
        """Note what a request took, and tell when the instance becomes slow, or itself again."""
        before = pace.is_slow
        pace.note(took_s)
        if pace.is_slow != before:
            change = f"takes {SLOW:g} times as long as" if pace.is_slow else "is as fast again as"
            self._service.tell(
                f"Instance {self.number} (cores {', '.join(map(str, self._cpus))}) {change} at its "
                f"start for {network!r}."
            )

    def _failed(self, request: Request, error: ChildError) -> None:
        """The process is gone, and this was the request that it computed."""
        service, name = self._service, request.network
        how = "hung" if isinstance(error, ChildTimeout) else "crashed"
        self._failures += 1
        request.failures.append(f"instance {self.number} {how}: {first_line(error)}")
        if not self._stopping.is_set():
            service.tell(
                f"Instance {self.number} {how} in a request for {name!r} and is started "
                f"again: {first_line(error)}."
            )
        if request.answer.cancelled():
            service.queue.release(request)
        elif len(request.failures) <= service.supervision.retries:
            service.tally.count(name, "retried")
            service.queue.again(request)
        else:
            told = "; ".join(request.failures)
            fault = RequestFailed(
                f"a request for {name!r} ended {len(request.failures)} instances, one after the "
                f"other, and is not tried again: {told}",
                hint="Its inputs, or a fault of the compiled network, are the likely cause.",
            )
            service.settle(request, fault, "failed")


def _told(error: TilewrightError | ChildError, number: int) -> TilewrightError:
    if isinstance(error, TilewrightError):
        return error
    return TargetError(f"instance {number} does not start: {error}")
