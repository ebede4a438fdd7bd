"""Building and timing candidates in worker processes.

Workers build side by side, then time one after the other, so that nothing builds while something
is timed. Whatever goes wrong with a candidate costs one `Failure` and at most one worker restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import OutputError
from tilewright.core.records import (
    Candidate,
    Device,
    Failure,
    FailureKind,
    Measurement,
    Outcome,
    Protocol,
)
from tilewright.graph.workload import Workload
from tilewright.measure.processes import (
    Child,
    ChildCrash,
    ChildError,
    ChildOutOfMemory,
    ChildTimeout,
    RemoteError,
)
from tilewright.measure.versions import software_versions

WORKER = "tilewright.measure.kernel_worker"
BUILD_TIMEOUT_S = 40.0
MEMORY_LIMIT_BYTES = 3 << 29
"""1.5 GiB of private data per worker."""
_START_TIMEOUT_S = 60.0

Array = npt.NDArray[np.generic]


@dataclass(slots=True)
class TimeSpent:
    """Seconds of wall clock by what they were spent on."""

    build_s: float = 0.0
    run_s: float = 0.0
    verify_s: float = 0.0


@dataclass(slots=True)
class _Job:
    candidate: Candidate
    slot: int
    worker: int
    kernel_hash: str = ""
    build_s: float = 0.0
    failure: tuple[FailureKind, str] | None = None
    samples_s: list[float] = field(default_factory=list[float])


def _ignore(_outcome: Outcome) -> None:
    pass


class KernelMeasurer:
    """Measures candidates on the local CPU. Use as a context manager; workers die with it.

    `spent` adds up the seconds of building and timing.
    """

    def __init__(
        self,
        device: Device,
        *,
        seed: int = 0,
        builders: int | None = None,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        self.device = device
        self.spent = TimeSpent()
        self._seed = seed
        self._slots = 0
        self._versions = software_versions()
        count = builders or max(1, min(4, len(device.cpus)))
        environment = {"TVM_NUM_THREADS": str(device.threads)}
        self._workers = [
            Child(
                WORKER,
                environment=environment,
                memory_limit_bytes=memory_limit_bytes,
                cpus=device.cpus,
            )
            for _ in range(count)
        ]
        self._prepared: dict[int, int | None] = {}
        self._pool = ThreadPoolExecutor(max_workers=count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def start(self) -> None:
        """Start all workers from this thread, so that they live as long as it does."""
        for index in range(len(self._workers)):
            self._ready(index)

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        *,
        run_id: int | None = None,
        give_up_s: float = inf,
        finished: Callable[[Outcome], None] = _ignore,
    ) -> list[Outcome]:
        """Build and time candidates; one outcome each, in their order.

        Candidates slower than `give_up_s` get a single sample. `finished` gets each outcome as soon
        as it is known, so that a kill loses at most the candidate in flight.
        """
        jobs = self._build_all(workload, candidates)
        outcomes: dict[int, Outcome] = {}

        def finish(job: _Job) -> None:
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
                finish(job)
            self._finish(worker, mine)
        self.spent.run_s += time.perf_counter() - began
        return [outcomes[job.slot] for job in jobs]

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        """The candidate's result on logical arrays."""
        began = time.perf_counter()
        (job,) = self._build_all(workload, [candidate])
        result: Array | None = None
        if job.failure is None:
            try:
                with _as_files(arrays) as folder:
                    result = self._workers[job.worker].request(
                        ("evaluate", job.slot, str(folder), len(arrays)), BUILD_TIMEOUT_S
                    )
            except (ChildError, RemoteError) as error:
                job.failure = _classify(error, "crash")
            self._finish(job.worker, [job])
        self.spent.verify_s += time.perf_counter() - began
        if result is None:
            kind, message = job.failure or ("crash", "no result")
            return self.failure(workload, candidate, kind, message)
        return result

    def current_hashes(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[str | None]:
        """Hash of each scheduled kernel as today's templates make it; None where they fail."""

        def identify(index: int) -> list[str | None]:
            found: list[str | None] = []
            for workload, candidate in kernels[index :: len(self._workers)]:
                message = ("identify", workload.text, candidate, self.device)
                try:
                    found.append(self._ready(index).request(message, BUILD_TIMEOUT_S))
                except (ChildError, RemoteError):
                    found.append(None)
            return found

        for index in range(min(len(kernels), len(self._workers))):
            self._ready(index)
        parts = list(self._pool.map(identify, range(len(self._workers))))
        return [
            parts[position % len(self._workers)][position // len(self._workers)]
            for position in range(len(kernels))
        ]

    def peaks(self) -> dict[str, float]:
        """Measured `flop_per_s`, `bytes_per_s` (memory) and `cache_bytes_per_s` of the device."""
        worker = self._ready(0)
        found: dict[str, float] = worker.request(("peaks", self.device), BUILD_TIMEOUT_S)
        worker.request(("settle",), 10.0)
        return found

    def failure(
        self, workload: Workload, candidate: Candidate, kind: FailureKind, message: str
    ) -> Failure:
        """A failure of this device and these versions, now."""
        return Failure(
            workload_key=workload.key,
            candidate=candidate,
            device_class=self.device.class_key,
            kind=kind,
            message=message[:2000],
            versions=self._versions,
            created_at=time.time(),
        )

    def _ready(self, index: int) -> Child:
        worker = self._workers[index]
        if worker.pid is None or self._prepared.get(index) != worker.pid:
            worker.request(("prepare", self.device), _START_TIMEOUT_S)
            self._prepared[index] = worker.pid
        return worker

    def _build_all(self, workload: Workload, candidates: Sequence[Candidate]) -> list[_Job]:
        began = time.perf_counter()
        jobs: list[_Job] = []
        for position, candidate in enumerate(candidates):
            self._slots += 1
            worker = position % len(self._workers)
            jobs.append(_Job(candidate=candidate, slot=self._slots, worker=worker))
        used = sorted({job.worker for job in jobs})
        for index in used:
            self._ready(index)

        def build(index: int) -> None:
            for job in jobs:
                if job.worker == index:
                    self._build(job, workload)

        list(self._pool.map(build, used))
        self.spent.build_s += time.perf_counter() - began
        return jobs

    def _build(self, job: _Job, workload: Workload) -> None:
        message = ("build", job.slot, workload.text, job.candidate, self.device)
        try:
            answer: dict[str, Any] = self._ready(job.worker).request(message, BUILD_TIMEOUT_S)
            job.kernel_hash = answer["kernel_hash"]
            job.build_s = answer["build_s"]
        except (ChildError, RemoteError) as error:
            job.failure = _classify(error, "build")

    def _time(self, job: _Job, workload: Workload, protocol: Protocol, give_up_s: float) -> None:
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
                    job.failure = _classify(error, "crash")
                    return
                # a crash of an earlier candidate took this kernel along
                self._build(job, workload)
            except ChildError as error:
                job.failure = _classify(error, "crash")

    def _finish(self, worker: int, jobs: Sequence[_Job]) -> None:
        if not jobs or self._workers[worker].pid is None:
            return
        try:
            self._workers[worker].request(("release", [job.slot for job in jobs]), 10.0)
            self._workers[worker].request(("settle",), 10.0)
        except (ChildError, RemoteError):
            self._workers[worker].stop()

    def _outcome(
        self, job: _Job, workload: Workload, protocol: Protocol, run_id: int | None
    ) -> Outcome:
        if job.failure is not None or not job.samples_s:
            kind, message = job.failure or ("crash", "no samples")
            return Failure(
                workload_key=workload.key,
                candidate=job.candidate,
                device_class=self.device.class_key,
                kind=kind,
                message=message[:2000],
                kernel_hash=job.kernel_hash,
                versions=self._versions,
                created_at=time.time(),
                run_id=run_id,
            )
        return Measurement(
            workload_key=workload.key,
            candidate=job.candidate,
            device_class=self.device.class_key,
            protocol=protocol,
            kernel_hash=job.kernel_hash,
            samples_s=tuple(job.samples_s),
            build_s=job.build_s,
            versions=self._versions,
            created_at=time.time(),
            run_id=run_id,
        )


@contextmanager
def _as_files(arrays: Sequence[Array]) -> Generator[Path]:
    """A temporary folder with the arrays as `0.npy`, `1.npy` …: a worker maps them, so that large
    weights do not count several times against its memory limit."""
    try:
        with TemporaryDirectory(prefix="tilewright-") as folder:
            for number, array in enumerate(arrays):
                np.save(Path(folder) / f"{number}.npy", array)
            yield Path(folder)
    except OSError as error:
        raise OutputError(f"cannot write temporary files: {error.strerror}") from error


def _classify(error: ChildError | RemoteError, otherwise: FailureKind) -> tuple[FailureKind, str]:
    if isinstance(error, ChildTimeout):
        return "timeout", str(error)
    if isinstance(error, ChildOutOfMemory):
        return "out of memory", str(error)
    if isinstance(error, ChildCrash):
        return "crash", str(error)
    return otherwise, str(error)
