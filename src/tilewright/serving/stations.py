"""A place where parts of networks are computed: a process, and the thread that hands it parts,
watches it, and starts it again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import count
from statistics import median
from time import monotonic
from typing import Protocol

from tilewright.core.errors import TargetError, TilewrightError, first_line
from tilewright.core.processes import ChildError, ChildTimeout, RemoteError
from tilewright.core.refusals import RequestFailed
from tilewright.core.serving import InstanceService, InstanceState
from tilewright.graph.parts import Place
from tilewright.measure.networks import network_error
from tilewright.serving.batches import ToLoad
from tilewright.serving.flows import Flow, Flows, LoadedPart, Span
from tilewright.serving.instance import LOOK_S, Supervision
from tilewright.serving.pace import Pace, slowdown
from tilewright.serving.posts import GpuPost, Post

WARM_RUNS = 4
"""A part takes what it took in its first runs, but for the first of all."""


class Watch(Protocol):
    """Who hears what happens at places."""

    def retried(self, flow: Flow) -> None:
        """A part of a request runs again."""
        ...

    def tell(self, message: str) -> None:
        """A sentence for people."""
        ...

    def lost(self, place: Place) -> None:
        """A place does not start; it goes on trying."""
        ...

    def found(self, place: Place) -> None:
        """A place that was lost has started, and may be tried out."""
        ...

    def slower(self, place: Place, factor: float) -> None:
        """A place takes so many times as long as at its start."""
        ...


class Station:
    """A place with its process. It computes parts of `flows` from `load` on until `stop`."""

    def __init__(
        self,
        number: int,
        place: Place,
        post: Post,
        flows: Flows,
        supervision: Supervision,
        watch: Watch,
    ) -> None:
        self.number, self.place = number, place
        self._post, self._flows, self._watch = post, flows, watch
        self._supervision = supervision
        self._state: InstanceState = "starting"
        self._restarts, self._answered, self._busy_s, self._failures = 0, 0, 0.0, 0
        self._began_s = monotonic()
        self._stopping = threading.Event()
        self._parts: list[LoadedPart] = []
        self._judged: list[LoadedPart] = []
        self._orders: list[tuple[list[LoadedPart], Future[None]]] = []
        self._opened, self._broken, self._ended = False, False, False
        self._on_probation = False
        self._was_slow = False
        self._ordering = threading.Lock()
        self._thread = threading.Thread(
            target=self._work, name=f"tilewright {self._title}", daemon=True
        )
        self._thread.start()

    @property
    def _title(self) -> str:
        device, cores = self.place
        if isinstance(self._post, GpuPost):  # its one core in a plan is all of it
            return device
        return f"{device} ({'core' if len(cores) == 1 else 'cores'} {', '.join(map(str, cores))})"

    @property
    def state(self) -> InstanceState:
        """What it is at."""
        slow = self._state == "ready" and self._slowdown() is not None
        return "slow" if slow else self._state

    def _slowdown(self) -> float | None:
        """How many times as long the parts that are in use take together as at its start, where it
        is slow."""
        return slowdown(part.pace for part in self._judged if part.pace is not None)

    def statistics(self) -> InstanceService:
        """What it did so far."""
        paces = {part.part.name: part.pace for part in self._parts}
        return InstanceService(
            instance=self.number,
            cores=self._post.cores,
            state=self.state,
            pid=self._post.pid,
            restarts=self._restarts,
            answered=self._answered,
            busy=self._busy_s / max(1e-9, monotonic() - self._began_s),
            expected_s={name: pace.expected_s for name, pace in paces.items() if pace is not None},
            device=self.place[0],
        )

    def load(self, parts: Iterable[LoadedPart]) -> Future[None]:
        """Have these parts there, too; done when they are, or cannot be."""
        parts_there = Future[None]()
        with self._ordering:
            self._orders.append((list(parts), parts_there))
            if self._ended or self._state == "lost":
                self._refuse_orders()
        self._flows.wake()
        return parts_there

    def forget(self, kept: Iterable[LoadedPart]) -> None:
        """From the next start on, load only these parts."""
        self._parts = list(kept)

    def judge_by(self, used: Sequence[LoadedPart], *, anew: bool = False) -> None:
        """From now on these parts, where there are any, say whether it is slow, not others that it
        has loaded; `anew` forgets how long they took of late."""
        for part in used if anew else ():
            part.pace = part.pace and Pace(part.pace.begin_s)
        self._judged = list(used) or self._judged
        self._was_slow = self._slowdown() is not None

    def stop(self, *, at_once: bool = False) -> None:
        """Have it end; `at_once` in the middle of a part."""
        self._stopping.set()
        if at_once or self._state != "ready":
            self._post.abort()
        self._flows.wake()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._orders:
                    self._follow_orders()
                    continue
                if not self._opened:
                    self._stopping.wait(LOOK_S / 10)
                    continue
                gone = self._broken or self._post.pid is None
                if gone and not self._start_again():
                    return
                taken = self._flows.take(self.place, LOOK_S)
                if taken is not None:
                    self._compute(*taken)
            self._state = "closed"
        finally:
            self._post.stop()
            with self._ordering:
                self._ended = True
                self._refuse_orders()

    def _refuse_orders(self) -> None:
        for _, future in self._orders:
            future.set_exception(TargetError(f"{self._title} is lost, or at its end"))
        self._orders = []

    def _follow_orders(self) -> None:
        with self._ordering:
            parts, future = self._orders.pop(0)
        limit_s = self._supervision.start_s
        opening = self._broken or not self._opened or self._post.pid is None
        try:
            if opening:
                self._post.open(_to_load([*self._parts, *parts]), limit_s)
                self._flows.forget(self.place)
                self._broken = False
            else:
                for part in parts:
                    self._post.load(part.to_load, limit_s)
        except (TilewrightError, ChildError, RemoteError) as error:
            self._broken = self._broken or opening  # what it had before is not all there
            future.set_exception(self._told(error))
            return
        self._parts, self._opened, self._state = [*self._parts, *parts], True, "ready"
        future.set_result(None)

    def _told(self, error: Exception) -> TilewrightError:
        if isinstance(error, TilewrightError):
            return error
        if isinstance(error, RemoteError):
            return network_error(error, f"the start of {self._title}")
        return TargetError(f"{self._title} does not start: {first_line(error)}")

    def _start_again(self) -> bool:
        """Whether it runs again; False when it is stopped meanwhile. After so many starts that
        failed it is lost, one that was lost before after the first failure; and is started on and
        on, with the longest pauses, until it answers again."""
        supervision = self._supervision
        if self._state != "lost":
            self._state = "restarting"
        if self._on_probation:
            self._be_lost()
        self._restarts += 1
        for attempt in count(1):
            pause_s = supervision.pause_s * 2.0 ** min(16, max(0, self._failures - 1))
            if self._stopping.wait(min(supervision.longest_pause_s, pause_s)):
                return False
            try:
                self._post.open(_to_load(self._parts), supervision.start_s)
            except (TilewrightError, ChildError, RemoteError) as error:
                self._failures += 1
                if self._state != "lost":
                    self._watch.tell(f"{self._title} does not start: {first_line(error)}.")
                if attempt >= supervision.starts:
                    self._be_lost()
                continue
            was_lost = self._state == "lost"
            self._state, self._broken = "ready", False
            self._flows.forget(self.place)
            if was_lost:
                self._on_probation = True
                self._watch.found(self.place)
            return True
        return False

    def _be_lost(self) -> None:
        """Have nothing more to do here, until a start succeeds."""
        if self._state == "lost":
            return
        with self._ordering:
            self._state = "lost"
            self._watch.lost(self.place)
            self._refuse_orders()

    def _compute(self, flow: Flow, number: int) -> None:
        part = flow.parts[number]
        if not flow.wanted():
            self._flows.finish(flow, None)
            self._flows.ended(flow, number, None, {})
            return
        if self._post.pid is None and not flow.on_trial:  # it ended before this part began
            self._failures += 1
            self._flows.ended(flow, number, None, {})
            return
        supervision, pace = self._supervision, part.pace
        patience_s = supervision.trial_s if flow.on_trial else supervision.start_s
        if pace is not None:
            patience_s = max(supervision.least_patience_s, supervision.patience * pace.expected_s)
        orders = (flow.order, *(each.order for each in self._flows.all() if each is not flow))
        began_s = monotonic()
        try:
            others = self._post.run(part.key, (flow.slot,), patience_s, orders=orders)
        except RemoteError as error:
            self._flows.finish(flow, network_error(error, f"run of {part.part.name}"))
            self._flows.ended(flow, number, None, {})
        except (ChildError, TilewrightError) as error:
            self._failed(flow, number, error)
        else:
            ended_s = monotonic()
            self._failures, self._on_probation = 0, False
            self._answered += 1
            self._follow(part, ended_s - began_s)
            made = part.part
            span = Span(
                part=made.name,
                network=made.network,
                place=self.place,
                begin_s=began_s,
                end_s=ended_s,
                copies=self._post.copies,
            )
            self._flows.ended(flow, number, span, others)
        finally:
            self._busy_s += monotonic() - began_s

    def _follow(self, part: LoadedPart, took_s: float) -> None:
        """Note what a part took; tell when the place becomes slow, or itself again."""
        pace = part.pace
        if pace is None:
            part.samples_s.append(took_s)
            if len(part.samples_s) == WARM_RUNS:
                part.pace = Pace(median(part.samples_s[1:]))
            return
        pace.note(took_s)
        factor = self._slowdown()
        before, self._was_slow = self._was_slow, factor is not None
        if factor is not None and not before:
            self._watch.tell(f"{self._title} takes {factor:.1f} times as long as at its start.")
            self._watch.slower(self.place, factor)
        elif factor is None and before:
            self._watch.tell(f"{self._title} is as fast again as at its start.")

    def _failed(self, flow: Flow, number: int, error: Exception) -> None:
        """The process is gone, or its device is, and this was the part that it computed."""
        how = "hung" if isinstance(error, ChildTimeout) else "crashed"
        how = how if isinstance(error, ChildError) else "lost its device"
        self._failures += 1
        self._broken = True
        self._post.abort()
        if isinstance(error, ChildError):  # else the part has not run
            flow.failures.append(f"{self._title} {how}: {first_line(error)}")
        if not self._stopping.is_set():
            name = flow.parts[number].part.name
            self._watch.tell(f"{self._title} {how} at {name!r}: {first_line(error)}.")
        retries = 0 if flow.on_trial else self._supervision.retries
        if len(flow.failures) > retries and flow.wanted():
            many = f"{len(flow.failures)} processes, one after the other"
            fault = RequestFailed(
                f"a request for {flow.network!r} ended {many if retries else 'its process'}, and "
                f"is not tried again: {'; '.join(flow.failures)}",
                hint="Its inputs, or a fault of the compiled network, are the likely cause.",
            )
            self._flows.finish(flow, fault)
        elif not flow.on_trial:
            self._watch.retried(flow)
        self._flows.ended(flow, number, None, {})


def _to_load(parts: Iterable[LoadedPart]) -> list[ToLoad]:
    return [part.to_load for part in parts]
