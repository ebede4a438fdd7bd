"""Building candidates here and timing them on devices behind a TVM RPC tracker.

Candidates are built by processes of this machine and then timed on all devices of the key side by
side: each takes the next one waiting. A device that is lost gives its candidate back once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from tilewright.core import errors, scratch
from tilewright.core.processes import ChildError, ChildTimeout, RemoteError
from tilewright.core.records import Placement, Protocol
from tilewright.hardware.remote import ServerFacts
from tilewright.measure import base
from tilewright.measure.base import Array, BoardLost, Job, Measurer, Worker, classify
from tilewright.measure.boards import WORKER, Board, Tracker

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

    Who takes from `waiting` gets a job, or None when all have their outcomes. `done` gets every job
    when it has one, and None when a device leaves. `lost` are the jobs that a device was lost on.
    """

    protocol: Protocol
    give_up_s: float
    waiting: SimpleQueue[Job | None] = field(default_factory=SimpleQueue[Job | None])
    done: SimpleQueue[Job | None] = field(default_factory=SimpleQueue[Job | None])
    lost: dict[int, Job] = field(default_factory=dict[int, Job])
    over: bool = False

    def lose(self, job: Job, why: str) -> None:
        """A device was lost on a job: it waits for another one, or fails for the second time."""
        if job.slot not in self.lost:
            self.lost[job.slot] = job
            self.waiting.put(job)
            return
        job.failure = ("device lost", f"{job.instance} was lost, as the device before: {why}")
        self.done.put(job)


class RemoteMeasurer(Measurer):
    """Measures candidates on every device a tracker has for a key.

    Rows carry the device's name as `instance`, and the protocol as it was: weights do not rotate
    through copies; caches are emptied before each call instead.
    """

    def __init__(self, placement: Placement, tracker: Tracker, key: str, *, seed: int = 0) -> None:
        super().__init__(placement, [Worker(WORKER, placement, here=False) for _ in range(2)])
        self._boards: list[Board] = []
        self._tracker = tracker
        self._key = key
        self._seed = seed
        self._told: ServerFacts | None = None
        self._folder = scratch.scratch_folder()
        self._threads = ThreadPoolExecutor(max_workers=_MOST_DEVICES)
        self._busy: dict[Board, Future[None]] = {}

    def close(self) -> None:
        """Give the devices back and stop all processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for board in self._boards:
            board.stop()
        super().close()
        self._folder.close()

    def start(self, *, workers: int | None = None) -> None:
        """Start all processes, or so many, and get as many devices as are free.

        Raises `TargetError` when there is none.
        """
        if self._boards:
            return
        count = min(_MOST_DEVICES, len(self._tracker.servers(self._key)))
        super().start(workers=workers)
        self._boards = [Board(self._tracker, self._key) for _ in range(count)]
        for board in self._boards:
            board.launch()
        for board in self._boards:
            board.get_ready()
        first, *others = self._boards
        self._connect(first, BUSY_WAIT_S)
        wait([self._threads.submit(self._connect, board, _FIRST_WAIT_S) for board in others])

    def rest(self) -> None:
        """Give the devices back, for whole networks to have them; the next request gets them
        again."""
        wait(self._busy.values(), RECONNECT_S)
        for board in self._boards:
            board.disconnect()

    def peaks(self) -> dict[str, float]:
        self.start()
        request = ("peaks", self.placement.target, self.placement.resources)
        try:
            return self._ask_any(request, _PEAKS_TIMEOUT_S)
        except (ChildError, RemoteError) as error:
            raise errors.TargetError(
                f"the peaks of {self._key!r} cannot be measured: {error}"
            ) from error

    def _build_message(self, job: Job) -> tuple[Any, ...]:
        return (*super()._build_message(job), str(self._folder.path))

    def _protocol(self, protocol: Protocol) -> Protocol:
        self.start()
        flushes = self._told is not None and self._told.flushes
        return replace(protocol, rotation_bytes=0, activations=FLUSHED if flushes else "warm")

    def _evaluated(self, job: Job, arrays: Sequence[Array]) -> Array | None:
        self.start()
        self._build(job)

        def ask(folder: str) -> Array:
            message = (job.kernel, job.workload.text, job.candidate, folder, len(arrays))
            return self._ask_any(("evaluate", *message), base.BUILD_TIMEOUT_S)

        return self._answer(job, arrays, ask)

    def _connect(self, board: Board, wait_s: float) -> ServerFacts:
        facts = board.connect_for(self.placement, self._told, wait_s)
        self._told = self._told or facts
        return facts

    def _time_all(
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        give_up_s: float,
        finish: Callable[[Job], None],
    ) -> None:
        """Let every device work on the jobs; raises `TargetError` when the last one is lost."""
        if not jobs:
            return
        batch = _Batch(protocol=protocol, give_up_s=give_up_s)
        for job in jobs:
            batch.waiting.put(job)
        if all(board in self._busy for board in self._boards):
            # every thread may still be leaving an earlier batch
            wait(self._busy.values(), return_when=FIRST_COMPLETED)
        left = {board: future for board, future in self._busy.items() if not future.done()}
        free = [board for board in self._boards if board not in left]
        self._busy = left | {
            board: self._threads.submit(self._serve, board, batch) for board in free
        }
        at_work, unfinished = len(free), len(jobs)
        try:
            while unfinished and at_work:
                job = batch.done.get()
                if job is None:
                    at_work -= 1
                else:
                    unfinished -= 1
                    finish(job)
        finally:
            batch.over = True
            for _ in free:
                batch.waiting.put(None)
        if unfinished:
            self._give_up(batch, finish)

    def _give_up(self, batch: _Batch, finish: Callable[[Job], None]) -> None:
        for future in self._busy.values():
            future.result()
        for job in batch.lost.values():
            if not job.samples_s and job.failure is None:
                why = "the device was lost, and no other is left to try it again"
                job.failure = ("device lost", f"{job.instance}: {why}")
                finish(job)
        raise errors.TargetError(
            f"all devices {self._key!r} of the tracker at {self._tracker} are lost",
            hint="What was measured is kept; start the servers again, then run the same command.",
        )

    def _serve(self, board: Board, batch: _Batch) -> None:
        """One device's thread: take jobs until none is left or the device is gone for good."""
        wait_s = RECONNECT_S
        try:
            while board.instance or board.reconnect(
                lambda wait_s: self._connect(board, wait_s), wait_s, lambda: batch.over
            ):
                job = batch.waiting.get()
                if job is None:
                    return
                wait_s = RECONNECT_S + self._work(board, job, batch)
        finally:
            batch.done.put(None)

    def _work(self, board: Board, job: Job, batch: _Batch) -> float:
        """Time one job; seconds for which the device may still be blocked by it."""
        limit_s = batch.protocol.timeout_s + _OVERHEAD_S
        request = ("measure", job.kernel, job.workload.text, batch.protocol, self._seed)
        job.instance, blocked_s = board.instance, 0.0
        try:
            job.instance = self._renewed(board, limit_s)
            job.samples_s = board.request((*request, batch.give_up_s), limit_s)
        except BoardLost as error:
            batch.lose(job, str(error))
            return 0.0
        except (ChildError, RemoteError) as error:
            job.failure = classify(error, "crash")
            blocked_s = board.left_s() if isinstance(error, ChildTimeout) else 0.0
        batch.done.put(job)
        return blocked_s

    def _renewed(self, board: Board, limit_s: float) -> str:
        """The device's name, after a new session where the old one would not last."""
        if not board.lasts(limit_s):
            try:
                self._connect(board, RECONNECT_S)
            except errors.TargetError as error:
                raise BoardLost(error.message) from error
        return board.instance

    def _ask_any(self, message: tuple[Any, ...], limit_s: float) -> Any:
        """One request to whichever device answers, once more when it is lost."""
        wait(self._busy.values(), RECONNECT_S)
        try:
            return self._ask(message, limit_s)
        except BoardLost:
            return self._ask(message, limit_s)

    def _ask(self, message: tuple[Any, ...], limit_s: float) -> Any:
        board = next((board for board in self._boards if board.instance), self._boards[0])
        self._evaluated_on = board.instance or self.placement.device.instance
        self._evaluated_on = self._renewed(board, limit_s)
        return board.request(message, limit_s)


def server_facts(tracker: Tracker, key: str) -> ServerFacts:
    """What a device of a key says about itself.

    Raises `TargetError` when the tracker does not answer, or no device can be had.
    """
    tracker.servers(key)
    with Board(tracker, key) as board:
        try:
            return board.connect(BUSY_WAIT_S)
        finally:
            board.disconnect()
