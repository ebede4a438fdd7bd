"""Building candidates here and timing them on devices behind a TVM RPC tracker.

Candidates are built by processes of this machine and then timed on all devices of the key side by
side: each takes the next one waiting. A device that is lost gives its candidate back once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from queue import SimpleQueue
from typing import Any

from tilewright.core.errors import TargetError
from tilewright.core.processes import Child, ChildError, ChildTimeout, RemoteError
from tilewright.core.records import Candidate, Failure, Outcome, Placement, Protocol
from tilewright.core.scratch import scratch_folder
from tilewright.graph.workload import Workload
from tilewright.hardware.remote import ServerFacts
from tilewright.measure import base
from tilewright.measure.base import Array, Job, Measurer, as_files, classify, ignore
from tilewright.measure.boards import WORKER, Board, BoardLost
from tilewright.measure.tracker import Tracker

RECONNECT_S = 10.0
BUSY_WAIT_S = 20.0
_FIRST_WAIT_S = 2.0
_MOST_DEVICES = 16
_OVERHEAD_S = 5.0
_PEAKS_TIMEOUT_S = 50.0
FLUSHED = "flushed"
"""`Protocol.activations`: caches are emptied before each call, but for the first operand."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Candidates of one call of `measure`, shared by the devices' threads.

    `done` gets every job when it has an outcome, and None when a device leaves.
    """

    workload: Workload
    protocol: Protocol
    give_up_s: float
    waiting: deque[Job]
    open: int
    losses: dict[int, int] = field(default_factory=dict[int, int])
    done: SimpleQueue[Job | None] = field(default_factory=SimpleQueue[Job | None])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> Job | None:
        """The next job; waits while others may still give one back. None when all are done."""
        with self.changed:
            while not self.waiting and self.open:
                self.changed.wait()
            return self.waiting.popleft() if self.open else None

    def finish(self, job: Job) -> None:
        """A job has its outcome."""
        with self.changed:
            self.open -= 1
            self.changed.notify_all()
        self.done.put(job)

    def lost(self, job: Job, why: str, instance: str) -> None:
        """A device was lost on a job: it waits for another one, or fails for the second time."""
        job.instance = instance
        with self.changed:
            count = self.losses[job.slot] = self.losses.get(job.slot, 0) + 1
            if count == 1:
                self.waiting.appendleft(job)
                self.changed.notify_all()
                return
        job.failure = ("device lost", f"{instance} was lost, as the device before: {why}")
        self.finish(job)

    def over(self) -> bool:
        """Whether every job has its outcome, or nobody wants the rest."""
        return self.open == 0

    def abandon(self) -> None:
        """Let the threads go."""
        with self.changed:
            self.open = 0
            self.waiting.clear()
            self.changed.notify_all()


class RemoteMeasurer(Measurer):
    """Measures candidates on every device a tracker has for a key.

    Rows carry the device's name as `instance`, and the protocol as it was: weights do not rotate
    through copies; caches are emptied before each call instead.
    """

    def __init__(
        self, placement: Placement, tracker: Tracker, key: str, *, seed: int = 0, builders: int = 2
    ) -> None:
        super().__init__(placement, [Child(WORKER) for _ in range(builders)])
        self.boards: list[Board] = []
        self._tracker = tracker
        self._key = key
        self._seed = seed
        self._told: ServerFacts | None = None
        self._folder = scratch_folder()
        self._kernels: dict[int, Any] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._busy: dict[int, Future[None]] = {}

    def close(self) -> None:
        """Give the devices back and stop all processes."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for board in self.boards:
            board.stop()
        super().close()
        self._folder.close()

    def start(self, *, workers: int | None = None) -> None:
        """Start all processes, or so many, and get as many devices as are free.

        Raises `TargetError` when there is none.
        """
        if self.boards:
            return
        count = min(_MOST_DEVICES, len(self._tracker.servers(self._key)))
        super().start(workers=workers)
        self.boards = [Board(self._tracker, self._key) for _ in range(count)]
        for board in self.boards:
            board.start()
        self._threads = ThreadPoolExecutor(max_workers=count)
        first, *others = self.boards
        self._connect(first, BUSY_WAIT_S)
        for future in [self._threads.submit(self._try, board) for board in others]:
            future.result()

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        *,
        run_id: int | None = None,
        give_up_s: float = inf,
        finished: Callable[[Outcome], None] = ignore,
    ) -> list[Outcome]:
        self.start()
        protocol = self._protocol(protocol)
        jobs = self._build_all(workload, candidates)
        outcomes: dict[int, Outcome] = {}

        def finish(job: Job) -> None:
            self._kernels.pop(job.slot, None)
            outcomes[job.slot] = self._outcome(job, workload, protocol, run_id)
            finished(outcomes[job.slot])

        for job in jobs:
            if job.failure is not None:
                finish(job)
        built = [job for job in jobs if job.failure is None]
        began = time.perf_counter()
        batch = _Batch(
            workload=workload,
            protocol=protocol,
            give_up_s=give_up_s,
            waiting=deque(built),
            open=len(built),
        )
        try:
            self._carry_out(batch, len(built), finish)
        finally:
            batch.abandon()
            for job in built:
                self._kernels.pop(job.slot, None)
            self.spent.run_s += time.perf_counter() - began
        return [outcomes[job.slot] for job in jobs]

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        self.start()
        began = time.perf_counter()
        (job,) = self._build_all(workload, [candidate])
        result: Array | None = None
        if job.failure is None:
            with as_files(arrays) as folder:
                kernel = self._kernels.pop(job.slot)
                message = ("evaluate", kernel, workload.text, candidate, str(folder), len(arrays))
                try:
                    result = self._ask_any(message, base.BUILD_TIMEOUT_S)
                except BoardLost as error:
                    job.failure = ("device lost", str(error))
                except (ChildError, RemoteError) as error:
                    job.failure = classify(error, "crash")
        self.spent.verify_s += time.perf_counter() - began
        if result is None:
            kind, message_text = job.failure or ("crash", "no result")
            return self.failure(workload, candidate, kind, message_text)
        return result

    def rest(self) -> None:
        """Give the devices back, for whole networks to have them; the next request gets them
        again."""
        for running in self._busy.values():
            with suppress(TimeoutError):
                running.result(RECONNECT_S)
        for board in self.boards:
            board.disconnect()

    def peaks(self) -> dict[str, float]:
        self.start()
        try:
            return self._ask_any(("peaks", self.placement), _PEAKS_TIMEOUT_S)
        except (BoardLost, ChildError, RemoteError) as error:
            raise TargetError(f"the peaks of {self._key!r} cannot be measured: {error}") from error

    def _build_message(self, job: Job, workload: Workload) -> tuple[Any, ...]:
        return (
            "build",
            job.slot,
            workload.text,
            job.candidate,
            self.placement,
            str(self._folder.path),
        )

    def _built(self, job: Job, answer: dict[str, Any]) -> None:
        self._kernels[job.slot] = answer["kernel"]

    def _protocol(self, protocol: Protocol) -> Protocol:
        """The protocol as it can be kept on the device."""
        flushes = self._told is not None and self._told.flushes
        return replace(protocol, rotation_bytes=0, activations=FLUSHED if flushes else "warm")

    def _connect(self, board: Board, wait_s: float) -> ServerFacts:
        facts = board.connect_for(self.placement, self._told, wait_s)
        self._told = self._told or facts
        return facts

    def _try(self, board: Board) -> None:
        with suppress(TargetError):
            self._connect(board, _FIRST_WAIT_S)

    def _carry_out(self, batch: _Batch, count: int, finish: Callable[[Job], None]) -> None:
        """Let every device work on the batch; raises `TargetError` when the last one is lost."""
        threads = self._threads
        assert threads is not None
        at_work = 0
        for index, board in enumerate(self.boards):
            running = self._busy.get(index)
            if count and (running is None or running.done()):
                self._busy[index] = threads.submit(self._serve, board, batch)
                at_work += 1
        if count and not at_work:
            # every thread is still leaving an earlier batch
            for running in self._busy.values():
                running.result()
            self._carry_out(batch, count, finish)
            return
        while count:
            job = batch.done.get()
            if job is not None:
                count -= 1
                finish(job)
                continue
            at_work -= 1
            if at_work == 0 and batch.open:
                self._give_up(batch, finish)

    def _give_up(self, batch: _Batch, finish: Callable[[Job], None]) -> None:
        for future in self._busy.values():
            future.result()
        for job in batch.waiting:
            if job.slot in batch.losses:
                why = "the device was lost, and no other is left to try it again"
                job.failure = ("device lost", f"{job.instance}: {why}")
                finish(job)
        raise TargetError(
            f"all devices {self._key!r} of the tracker at {self._tracker} are lost",
            hint="What was measured is kept; start the servers again, then run the same command.",
        )

    def _serve(self, board: Board, batch: _Batch) -> None:
        """One device's thread: take jobs until none is left or the device is gone for good."""
        wait_s = RECONNECT_S
        try:
            while board.instance or self._regain(board, batch, wait_s):
                job = batch.take()
                if job is None:
                    return
                wait_s = RECONNECT_S + self._work(board, job, batch)
        finally:
            batch.done.put(None)

    def _work(self, board: Board, job: Job, batch: _Batch) -> float:
        """Time one job; seconds for which the device may still be blocked by it."""
        limit_s = batch.protocol.timeout_s + _OVERHEAD_S
        instance = board.instance
        try:
            instance = self._renewed(board, limit_s)
            kernel, protocol = self._kernels[job.slot], batch.protocol
            message = ("measure", kernel, batch.workload.text, protocol, self._seed)
            job.samples_s = board.request((*message, batch.give_up_s), limit_s)
            job.instance = instance
        except BoardLost as error:
            batch.lost(job, str(error), instance)
            return 0.0
        except (ChildError, RemoteError) as error:
            job.instance = instance
            job.failure = classify(error, "crash")
            batch.finish(job)
            return board.left_s() if isinstance(error, ChildTimeout) else 0.0
        batch.finish(job)
        return 0.0

    def _regain(self, board: Board, batch: _Batch, limit_s: float) -> bool:
        return board.reconnect(lambda wait_s: self._connect(board, wait_s), limit_s, batch.over)

    def _renewed(self, board: Board, limit_s: float) -> str:
        """The device's name, after a new session where the old one would not last."""
        if not board.lasts(limit_s):
            try:
                self._connect(board, RECONNECT_S)
            except TargetError as error:
                raise BoardLost(error.message) from error
        return board.instance

    def _ask_any(self, message: tuple[Any, ...], limit_s: float) -> Any:
        """One request to whichever device answers, once more when it is lost."""
        for future in self._busy.values():
            with suppress(TimeoutError):
                future.result(RECONNECT_S)
        try:
            return self._ask(message, limit_s)
        except BoardLost:
            return self._ask(message, limit_s)

    def _ask(self, message: tuple[Any, ...], limit_s: float) -> Any:
        board = next((board for board in self.boards if board.instance), self.boards[0])
        self._evaluated_on = board.instance or self.placement.device.instance
        self._evaluated_on = self._renewed(board, limit_s)
        return board.request(message, limit_s)


def server_facts(tracker: Tracker, key: str) -> ServerFacts:
    """What a device of a key says about itself.

    Raises `TargetError` when the tracker does not answer, or no device can be had.
    """
    tracker.servers(key)
    board = Board(tracker, key)
    try:
        return board.connect(BUSY_WAIT_S)
    finally:
        board.disconnect()
        board.stop()
