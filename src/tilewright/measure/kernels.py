"""Building and timing candidates in worker processes of this machine.

Workers build side by side, then time one after the other, so that nothing builds while something
is timed. Whatever goes wrong with a candidate costs one `Failure` and at most one worker restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from tilewright.core.records import Candidate, Device, Failure, Outcome, Protocol
from tilewright.graph.workload import Workload
from tilewright.measure import base
from tilewright.measure.base import Array, Job, Measurer, as_files, classify, ignore
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.processes import Child, ChildError, RemoteError

WORKER = "tilewright.measure.kernel_worker"
MEMORY_LIMIT_BYTES = 3 << 29
"""1.5 GiB of private data per worker."""
_SETTLE_S = 10.0


class KernelMeasurer(Measurer):
    """Measures candidates on the local CPU, with `energy` also what a call takes; workers die with
    it."""

    def __init__(
        self,
        device: Device,
        *,
        seed: int = 0,
        builders: int | None = None,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        energy: KernelEnergy | None = None,
    ) -> None:
        count = builders or max(1, min(4, len(device.cpus)))
        environment = {"TVM_NUM_THREADS": str(device.threads)}
        workers = [
            Child(
                WORKER,
                environment=environment,
                memory_limit_bytes=memory_limit_bytes,
                cpus=device.cpus,
            )
            for _ in range(count)
        ]
        super().__init__(device, workers)
        self._seed = seed
        self._energy = energy

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
        (job,) = self._build_all(workload, [candidate])
        result: Array | None = None
        if job.failure is None:
            try:
                with as_files(arrays) as folder:
                    result = self._workers[job.worker].request(
                        ("evaluate", job.slot, str(folder), len(arrays)), base.BUILD_TIMEOUT_S
                    )
            except (ChildError, RemoteError) as error:
                job.failure = classify(error, "crash")
            self._finish(job.worker, [job])
        self.spent.verify_s += time.perf_counter() - began
        if result is None:
            kind, message = job.failure or ("crash", "no result")
            return self.failure(workload, candidate, kind, message)
        return result

    def peaks(self) -> dict[str, float]:
        worker = self._ready(0)
        found: dict[str, float] = worker.request(("peaks", self.device), base.BUILD_TIMEOUT_S)
        self._settle(0, [])
        return found

    def _build_message(self, job: Job, workload: Workload) -> tuple[Any, ...]:
        return ("build", job.slot, workload.text, job.candidate, self.device)

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
        if jobs and self._workers[worker].pid is not None:
            self._settle(worker, [job.slot for job in jobs])

    def _settle(self, worker: int, slots: Sequence[int]) -> None:
        """Have a worker forget kernels and its threads sleep; one that does not answer is ended,
        and starts anew when it is wanted."""
        try:
            self._workers[worker].request(("release", list(slots)), _SETTLE_S)
            self._workers[worker].request(("settle",), _SETTLE_S)
        except (ChildError, RemoteError):
            self._workers[worker].stop()
