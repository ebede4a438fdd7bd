"""Building and timing candidates in worker processes of this machine.

Workers build side by side, then time one after the other, so that nothing builds while something
is timed. The threads of a worker spin for a while after their last kernel; they are waited for only
where something else is timed next. Whatever goes wrong with a candidate costs one `Failure` and at
most one worker restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from math import inf
from queue import SimpleQueue
from typing import Any, TypeVar

from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Candidate, Failure, Outcome, Placement, Protocol
from tilewright.graph.workload import Workload
from tilewright.measure import base
from tilewright.measure.base import Array, Job, Measurer, as_files, classify, ignore
from tilewright.measure.energy import KernelEnergy

WORKER = "tilewright.measure.kernel_worker"
MEMORY_LIMIT_BYTES = 3 << 29
"""1.5 GiB of private data per worker."""
_SETTLE_S = 10.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class KernelMeasurer(Measurer):
    """Measures candidates on the local CPU, with `energy` also what a call takes; workers die with
    it."""

    def __init__(
        self,
        placement: Placement,
        *,
        seed: int = 0,
        builders: int | None = None,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        energy: KernelEnergy | None = None,
    ) -> None:
        count = builders or max(1, min(4, len(placement.binding.cpus)))
        environment = {"TVM_NUM_THREADS": str(placement.resources.threads)}
        workers = [
            Child(
                WORKER,
                environment=environment,
                memory_limit_bytes=memory_limit_bytes,
                cpus=placement.binding.cpus,
            )
            for _ in range(count)
        ]
        super().__init__(placement, workers)
        self._seed = seed
        self._energy = energy
        self._restless: set[int] = set()
        self._free: SimpleQueue[int] = SimpleQueue()
        for index in range(count):
            self._free.put(index)

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
        jobs = self._build_all(workload, candidates)
        outcomes: dict[int, Outcome] = {}

        def finish(job: Job) -> None:
            outcomes[job.slot] = self._outcome(job, workload, protocol, run_id)
            finished(outcomes[job.slot])

        for job in jobs:
            if job.failure is not None:
                finish(job)
        began = time.perf_counter()
        for worker in range(len(self._workers)):
            mine = [job for job in jobs if job.worker == worker and job.failure is None]
            if mine:
                self._rest(self._restless - {worker})
            for job in mine:
                self._time(job, workload, protocol, give_up_s)
                self._meter(job, protocol)
                finish(job)
            self._finish(worker, mine)
        self.spent.run_s += time.perf_counter() - began
        return [outcomes[job.slot] for job in jobs]

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        began = time.perf_counter()
        result: Array | None = None
        with self._free_worker() as worker:
            job = Job(candidate=candidate, slot=next(self._slots), worker=worker)
            self._build(job, workload)
            if job.failure is None:
                try:
                    with as_files(arrays) as folder:
                        result = self._workers[worker].request(
                            ("evaluate", job.slot, str(folder), len(arrays)), base.BUILD_TIMEOUT_S
                        )
                except (ChildError, RemoteError) as error:
                    job.failure = classify(error, "crash")
                self._finish(worker, [job])
        self.spent.verify_s += time.perf_counter() - began
        if result is None:
            kind, message = job.failure or ("crash", "no result")
            return self.failure(workload, candidate, kind, message)
        return result

    def side_by_side(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> list[_Result]:
        # in threads that live as long as the measurer, and so does a worker that starts anew there
        self._make_ready(range(len(self._workers)))
        return list(self._pool.map(function, items))

    def rest(self) -> None:
        self._rest(self._restless)

    def peaks(self) -> dict[str, float]:
        self.rest()
        worker = self._ready(0)
        found: dict[str, float] = worker.request(("peaks", self.placement), base.BUILD_TIMEOUT_S)
        self._restless.add(0)
        return found

    @contextmanager
    def _free_worker(self) -> Generator[int]:
        """A worker that nobody else evaluates on."""
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)

    def _build_message(self, job: Job, workload: Workload) -> tuple[Any, ...]:
        return ("build", job.slot, workload.text, job.candidate, self.placement)

    def _time(self, job: Job, workload: Workload, protocol: Protocol, give_up_s: float) -> None:
        for _ in range(2):
            if job.failure is not None:
                return
            try:
                request = ("measure", job.slot, protocol, self._seed, give_up_s)
                worker = self._ready(job.worker)
                job.samples_s = worker.request(request, protocol.timeout_s)
                return
            except RemoteError as error:
                if error.kind != "KeyError":
                    job.failure = classify(error, "crash")
                    return
                # a crash of an earlier candidate took this kernel along
                self._build(job, workload)
            except ChildError as error:
                job.failure = classify(error, "crash")

    def _meter(self, job: Job, protocol: Protocol) -> None:
        """Measure the energy of a kernel that has a time."""
        if self._energy is None or job.failure is not None:
            return

        def work(seconds: float) -> int:
            request = ("repeat", job.slot, protocol, self._seed, seconds)
            return self._ready(job.worker).request(request, protocol.timeout_s + seconds)

        job.energy = self._energy.of(work)

    def _finish(self, worker: int, jobs: Sequence[Job]) -> None:
        """Have a worker forget the kernels of jobs that have ended."""
        if jobs and self._workers[worker].pid is not None:
            self._restless.add(worker)
            self._tell(worker, ("release", [job.slot for job in jobs]))

    def _rest(self, workers: Iterable[int]) -> None:
        """Return when the threads of these workers sleep."""
        for worker in sorted(workers):
            self._restless.discard(worker)
            if self._workers[worker].pid is not None:
                self._tell(worker, ("settle",))

    def _tell(self, worker: int, message: tuple[Any, ...]) -> None:
        """Send a worker what it only has to obey; one that does not answer is ended, and starts
        anew when it is wanted."""
        try:
            self._workers[worker].request(message, _SETTLE_S)
        except (ChildError, RemoteError):
            self._workers[worker].stop()
