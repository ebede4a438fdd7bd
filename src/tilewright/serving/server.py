"""A server: networks behind one queue, computed by instances side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Self

from tilewright.core import arguments
from tilewright.core.errors import UsageError, close_matches
from tilewright.core.events import EventSink, Note, discard
from tilewright.core.refusals import DeadlineMissed, QueueFull, RequestFailed
from tilewright.core.serving import InstanceOption, ServerStatistics
from tilewright.core.units import format_seconds
from tilewright.deploy.network_calls import ordered_inputs
from tilewright.graph.network import Array
from tilewright.serving.crew import Crew, Instances
from tilewright.serving.instance import WORKER, Service, Supervision
from tilewright.serving.layouts import Kind, layout_text
from tilewright.serving.queue import RequestQueue
from tilewright.serving.requests import Answer, Outputs, Request
from tilewright.serving.served import ServedNetwork, largest_batch
from tilewright.serving.slots import SharedSlots
from tilewright.serving.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How many requests wait at most, how instances are watched, the module that they run, and who
    is told what happens."""

    queue: int = 64
    supervision: Supervision = Supervision()
    worker: str = WORKER
    events: EventSink = discard


class Server:
    """Networks that answer requests, each at any time and from any thread, until `close`.

        with tilewright.serve({"a": "folder-a"}) as server:
            answer = server.submit("a", x=array, deadline_s=0.05)
            answer.result()

    `layout` is the number of cores of each instance, or its kind, or who computes; `choice` says
    why there are these, and `considered` what there could have been instead, `options` is what else
    it was given.
    """

    def __init__(
        self,
        networks: Sequence[ServedNetwork],
        layout: Sequence[int | Kind] | Crew,
        options: ServerOptions = ServerOptions(),
        choice: str = "",
    ) -> None:
        """Start all instances and wait until they are ready.

        Raises TargetError for more cores than there are, and what the first instance raises that
        does not start.
        """
        self._crew = Instances(layout) if isinstance(layout, Sequence) else layout
        self.networks = {network.name: network for network in networks}
        self.layout, self.choice, self.options = self._crew.layout, choice, options
        self.considered: tuple[InstanceOption, ...] = ()
        self._events, self._began_s = options.events, monotonic()
        count = arguments.count_of(options.queue, "queue", 1)
        running = self._crew.running * self.largest_batch
        largest = max(network.slot_bytes for network in networks)
        self._slots = SharedSlots.create(count + running + self._crew.own_slots, largest)
        self._tally = Tally(self.networks)
        self._queue = RequestQueue(count, running, self._soonest_s, self._missed)
        self._service = Service(
            networks=self.networks,
            queue=self._queue,
            slots=self._slots,
            tally=self._tally,
            supervision=options.supervision,
            worker=options.worker,
            tell=lambda message: self._events(Note(message=message)),
            lost=self._lost,
        )
        self._closing = threading.Lock()
        self._ended = False
        self._clock = threading.Thread(
            target=self._queue.expire, name="tilewright deadlines", daemon=True
        )
        self._clock.start()
        try:
            self._crew.begin(self._service, count + running)
            self.choice = self.choice or self._crew.choice
        except BaseException:
            self.close(drain=False)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        self.close(drain=kind is None)

    @property
    def largest_batch(self) -> int:
        """How many requests an instance computes at a time at most."""
        return largest_batch(self.networks.values())

    @property
    def instances(self) -> str:
        """All instances as people write them: `1x2,2x1@4`."""
        return self._crew.text if isinstance(self._crew, Instances) else layout_text(self.layout)

    @property
    def has_instances_here(self) -> bool:
        """Whether instances of this machine compute whole requests, not parts of a plan, nor only
        devices elsewhere."""
        return isinstance(self._crew, Instances) and bool(self._crew.here)

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken, and an instance is there to compute them."""
        states = {instance.state for instance in self._crew.statistics()}
        return not self._ended and bool(states & {"ready", "slow"})

    def submit(
        self,
        network: str,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        deadline_s: float | None = None,
        timeout_s: float | None = 0.0,
        **named: Array,
    ) -> Answer:
        """Have a network computed on inputs by name, in a dictionary or as arguments; they are
        copied. The result is what the artifact returns: an array, or several by name.

        A request that cannot be answered `deadline_s` from now ends in DeadlineMissed and is not
        computed; one whose instances crash or hang again and again in RequestFailed. The answer can
        be cancelled until it is there. Functions that are called when it is there must not wait for
        the server.

        Raises QueueFull where there is no room within `timeout_s` (None: waits for it), UsageError
        for an unknown network and for a wrong name, shape or type of input, InputError for an index
        out of range, ServerClosed after `close`.
        """
        served = self._served(network)
        given = {**arguments.named_of(inputs or {}, "inputs"), **named}
        served.refuse_several(given)
        arrays = ordered_inputs(served.inputs, given)
        limit_s = inf if deadline_s is None else _positive(deadline_s, "deadline_s")
        submitted_s = monotonic()
        try:
            slot, order = self._queue.reserve(timeout_s)
        except QueueFull:
            self._tally.count(network, "refused")
            raise
        try:
            self._slots.write(slot, served.plan, arrays)
        except BaseException:
            self._queue.give_up(slot)
            raise
        request = Request(
            network=network,
            slot=slot,
            order=order,
            submitted_s=submitted_s,
            due_s=submitted_s + limit_s,
        )
        request.answer = Answer(partial(self._withdrawn, request))
        self._queue.put(request)
        return request.answer

    async def infer(
        self,
        network: str,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        deadline_s: float | None = None,
        **named: Array,
    ) -> Outputs:
        """The same where others work meanwhile: the result itself. Raises what `submit` raises, and
        what the request ends in; a full queue is not waited for."""
        given = {**arguments.named_of(inputs or {}, "inputs"), **named}
        answer = self.submit(network, given, deadline_s=deadline_s)
        return await asyncio.wrap_future(answer)

    def statistics(self) -> ServerStatistics:
        """What became of all requests until now, and how the instances are."""
        return ServerStatistics(
            seconds=monotonic() - self._began_s,
            waiting=self._queue.waiting,
            networks=self._tally.services(),
            instances=self._crew.statistics(),
        )

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Take no more requests, and end all instances when those that were taken are answered.

        With `drain=False`, and after `timeout_s`, those that are left are cancelled.
        """
        self._queue.close()
        over = drain and self._queue.wait_until_over(timeout_s)
        with self._closing:
            if self._ended:
                return
            self._cancel_left()
            self._crew.stop(at_once=not over)
            self._cancel_left()  # what an instance put back as it was stopped
            self._clock.join()
            self._slots.close()
            self._ended = True

    def _cancel_left(self) -> None:
        for request in self._queue.left():
            request.answer.cancel()
            self._queue.release(request)

    def _served(self, network: str) -> ServedNetwork:
        found = self.networks.get(arguments.text_of(network, "network"))
        if found is None:
            raise UsageError(
                f"No network is called {network!r} here.",
                hint=close_matches(network, self.networks),
            )
        return found

    def _soonest_s(self, network: str) -> float:
        """What a network takes on the instance that is fastest for it."""
        return self._crew.expected_s(network)

    def _missed(self, request: Request) -> None:
        takes = format_seconds(self._soonest_s(request.network))
        limit = format_seconds(request.due_s - request.submitted_s)
        fault = DeadlineMissed(
            f"a request for {request.network!r} cannot be answered within {limit}: it takes {takes}"
        )
        self._service.settle(request, fault, "missed")

    def _withdrawn(self, request: Request) -> None:
        self._tally.count(request.network, "cancelled")
        self._queue.withdraw(request)

    def _lost(self) -> None:
        """An instance is lost; without any nobody computes what waits."""
        if self._crew.is_lost:
            fault = RequestFailed("no instance is left: none starts any more")
            self._queue.close(fault)
            for request in self._queue.left():
                self._service.settle(request, fault, "failed")
            self._events(Note(message="The server gives up: no instance starts any more."))


def _positive(value: object, name: str) -> float:
    number = float(value) if isinstance(value, (int, float)) else 0.0
    if not 0 < number < inf:
        raise UsageError(f"{name} must be a number of seconds above 0, not {value!r}.")
    return number
