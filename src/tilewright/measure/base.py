"""What every measurer does: build candidates in worker processes and say how each one ended.

Where kernels are timed is for the measurers themselves: `measure.kernels` uses this machine,
`measure.remote` devices behind a TVM RPC tracker.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.compiler.features.kinds import WIDTHS
from tilewright.core.output_files import attempting
from tilewright.core.processes import (
    Child,
    ChildCrash,
    ChildError,
    ChildOutOfMemory,
    ChildTimeout,
    RemoteError,
)
from tilewright.core.records import (
    Candidate,
    EnergyUse,
    Failure,
    FailureKind,
    Measurement,
    Outcome,
    Placement,
    Protocol,
)
from tilewright.core.scratch import scratch_folder
from tilewright.graph.workload import Workload
from tilewright.hardware.environment import software_versions

START_TIMEOUT_S, BUILD_TIMEOUT_S = 60.0, 40.0

Array = npt.NDArray[np.generic]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class BoardLost(ChildError):
    """The connection to a device broke in the middle of a request."""


_KINDS: dict[type[Exception], FailureKind] = {
    ChildTimeout: "timeout",
    ChildOutOfMemory: "out of memory",
    ChildCrash: "crash",
    BoardLost: "device lost",
}


class Worker(Child):
    """A child process that serves `prepare`, which it is asked before anything else, also when it
    has started anew.

    One that runs kernels, `here`, has the placement's CPUs and as many threads.
    """

    def __init__(
        self,
        module: str,
        placement: Placement,
        *,
        here: bool = True,
        memory_limit_bytes: int | None = None,
    ) -> None:
        threads = placement.host_threads
        super().__init__(
            module,
            environment={"TVM_NUM_THREADS": str(threads)} if here else None,
            memory_limit_bytes=memory_limit_bytes,
            cpus=placement.binding.cpus if here else None,
        )
        self._preparing = ("prepare", threads, placement.binding.cpus)
        self._prepared: int | None = None

    def request(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        self.get_ready()
        return super().request(message, timeout_s)

    def get_ready(self) -> None:
        """Start the process where it does not run, and wait until it can be asked."""
        if self.pid is None or self._prepared != self.pid:
            super().request(self._preparing, START_TIMEOUT_S)
            self._prepared = self.pid


def classify(error: ChildError | RemoteError, otherwise: FailureKind) -> tuple[FailureKind, str]:
    """Kind and message of the failure that an error of a worker means."""
    return _KINDS.get(type(error), otherwise), str(error)


@dataclass(slots=True)
class TimeSpent:
    """Seconds of wall clock by what they were spent on.

    `kernels` were built in `kernels_s` of their workers' time, which is more where several work.
    """

    build_s: float = 0.0
    run_s: float = 0.0
    kernels: int = 0
    kernels_s: float = 0.0


@dataclass(slots=True)
class Job:
    """A candidate on its way: where it was built, and what came of it.

    `kernel` is what a device elsewhere gets; here, the worker holds it in `slot`.
    """

    workload: Workload
    candidate: Candidate
    slot: int
    worker: int = 0
    kernel_hash: str = ""
    build_s: float = 0.0
    kernel: Any = None
    failure: tuple[FailureKind, str] | None = None
    samples_s: list[float] = field(default_factory=list[float])
    instance: str = ""
    energy: EnergyUse | None = None


def ignore(_outcome: Outcome) -> None:
    """Do nothing with an outcome."""


class Measurer(ABC):
    """Builds candidates, times them and evaluates them. Use as a context manager.

    `spent` adds up the seconds of building and timing. `at_once` is how many candidates are best
    built side by side, of several tasks where one has fewer; 1 where tasks gain nothing from that.
    """

    at_once = 1

    def __init__(self, placement: Placement, workers: Sequence[Worker]) -> None:
        self.placement = placement
        self.spent = TimeSpent()
        self._evaluated_on = placement.device.instance
        self._slots = count(1)
        self._ahead: dict[tuple[str, Candidate], Job] = {}
        self._versions = software_versions()
        self._workers = list(workers)
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._workers)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def start(self, *, workers: int | None = None) -> None:
        """Start all workers, or so many, side by side.

        They start in this thread, so that they live as long as it does. Others start when there is
        something for them to build.
        """
        make_ready(self._workers[:workers])

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
        """Build and time candidates; one outcome each, in their order.

        Candidates slower than `give_up_s` get a single sample. `finished` gets each outcome as soon
        as it is known, in the calling thread, so that a kill loses at most what is in flight.
        """
        protocol = self._protocol(protocol)
        jobs = self._build_all(workload, candidates)
        outcomes: dict[int, Outcome] = {}

        def finish(job: Job) -> None:
            job.kernel = None
            outcomes[job.slot] = self._outcome(job, protocol, run_id)
            finished(outcomes[job.slot])

        for job in jobs:
            if job.failure is not None:
                finish(job)
        began = time.perf_counter()
        try:
            self._time_all(
                [job for job in jobs if job.failure is None], protocol, give_up_s, finish
            )
        finally:
            self.spent.run_s += time.perf_counter() - began
        return [outcomes[job.slot] for job in jobs]

    def build_ahead(self, kernels: Sequence[tuple[Workload, Candidate]]) -> None:
        """Build kernels of several tasks side by side; `measure` finds them built, once."""
        jobs = self._built(kernels)
        self._ahead |= {(job.workload.key, job.candidate): job for job in jobs}

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        """The candidate's result on logical arrays."""
        job = Job(workload=workload, candidate=candidate, slot=next(self._slots))
        result = self._evaluated(job, arrays)
        if result is None:
            return self.failure(workload, candidate, *(job.failure or ("crash", "no result")))
        return result

    def side_by_side(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> list[_Result]:
        """What a function that evaluates makes of each item, in their order; as many at a time as
        `evaluate` can serve."""
        return [function(item) for item in items]

    def rest(self) -> None:  # noqa: B027 - optional
        """Return when no worker disturbs what another process is to time."""

    @abstractmethod
    def peaks(self) -> dict[str, float]:
        """Measured `flop_per_s`, `bytes_per_s` (memory) and `cache_bytes_per_s` of the device."""

    def _protocol(self, protocol: Protocol) -> Protocol:
        """The protocol as it can be kept on the device, which is got hold of."""
        return protocol

    def _time_all(  # noqa: B027 - for those with workers
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        give_up_s: float,
        finish: Callable[[Job], None],
    ) -> None:
        """Time what was built, and finish each job."""

    def _evaluated(  # noqa: B027 - for those with workers
        self, job: Job, arrays: Sequence[Array]
    ) -> Array | None:
        """Build a candidate and get its result on arrays; None where the job failed."""

    def _answer(self, job: Job, arrays: Sequence[Array], ask: Callable[[str], Array]) -> Any:
        """What `ask` gets for a folder that holds the arrays; None where the job failed."""
        if job.failure is None:
            try:
                with as_files(arrays) as folder:
                    return ask(str(folder))
            except (ChildError, RemoteError) as error:
                job.failure = classify(error, "crash")
        return None

    def _build_message(self, job: Job) -> tuple[Any, ...]:
        """The request that builds a job's kernel; its answer has `kernel_hash`, `build_s`, and
        `kernel` where that goes elsewhere."""
        return ("build", job.slot, job.workload.text, job.candidate, self.placement)

    def current_hashes(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[str | None]:
        """Hash of each scheduled kernel as today's templates make it; None where they fail."""
        return self._answers(
            [
                ("identify", workload.text, candidate, self.placement)
                for workload, candidate in kernels
            ]
        )

    def features(
        self, workload: Workload, candidates: Sequence[Candidate], kind: str
    ) -> npt.NDArray[np.float64]:
        """Features of lowered kernels, a row per candidate; nan where one does not lower.

        KeyError for a kind that is not in `compiler.features.kinds.WIDTHS`.
        """
        rows = np.full((len(candidates), WIDTHS[kind]), np.nan)
        messages = [("features", workload.text, c, self.placement, kind) for c in candidates]
        for row, found in zip(rows, self._answers(messages), strict=True):
            if found is not None:
                row[:] = found
        return rows

    def _answers(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The workers' answers to requests that are spread over them; None for those that fail."""
        found: list[Any] = [None] * len(messages)

        def ask(position: int, worker: Worker) -> None:
            with suppress(ChildError, RemoteError):
                found[position] = worker.request(messages[position], BUILD_TIMEOUT_S)

        self._spread(len(messages), ask)
        return found

    def _spread(self, count: int, work: Callable[[int, Worker], None]) -> None:
        """Do so much work over the workers, which get ready for it, in turn."""
        workers = len(self._workers)
        make_ready(self._workers[:count])

        def do(index: int) -> None:
            for position in range(index, count, workers):
                work(position, self._workers[index])

        list(self._pool.map(do, range(min(count, workers))))

    def failure(
        self, workload: Workload, candidate: Candidate, kind: FailureKind, message: str
    ) -> Failure:
        """A failure of the device evaluated on last, and of these versions, now."""
        return Failure(
            workload_key=workload.key,
            candidate=candidate,
            device_class=self.placement.device.class_key,
            resources=self.placement.resources,
            kind=kind,
            message=message[:2000],
            versions=self._versions,
            created_at=time.time(),
            instance=self._evaluated_on,
            binding=self.placement.binding,
        )

    def _build_all(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Job]:
        """A job for each candidate; those that were built ahead are taken as they are."""
        ahead = [self._ahead.pop((workload.key, c), None) for c in candidates]
        pairs = zip(candidates, ahead, strict=True)
        built = iter(self._built([(workload, c) for c, job in pairs if job is None]))
        return [job or next(built) for job in ahead]

    def _built(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[Job]:
        began = time.perf_counter()
        jobs = [
            Job(workload=workload, candidate=candidate, slot=next(self._slots), worker=worker)
            for worker, (workload, candidate) in zip(
                cycle(range(len(self._workers))), kernels, strict=False
            )
        ]
        self._spread(len(jobs), lambda position, _worker: self._build(jobs[position]))
        self.spent.build_s += time.perf_counter() - began
        self.spent.kernels += sum(job.failure is None for job in jobs)
        self.spent.kernels_s += sum(job.build_s for job in jobs)
        return jobs

    def _build(self, job: Job) -> None:
        worker, message = self._workers[job.worker], self._build_message(job)
        try:
            answer: dict[str, Any] = worker.request(message, BUILD_TIMEOUT_S)
            job.kernel_hash, job.build_s = answer["kernel_hash"], answer["build_s"]
            job.kernel = answer.get("kernel")
        except (ChildError, RemoteError) as error:
            job.failure = classify(error, "build")

    def _outcome(self, job: Job, protocol: Protocol, run_id: int | None) -> Outcome:
        instance = job.instance or self.placement.device.instance
        if job.failure is not None or not job.samples_s:
            fault = job.failure or ("crash", "no samples")
            return replace(
                self.failure(job.workload, job.candidate, *fault),
                kernel_hash=job.kernel_hash,
                run_id=run_id,
                instance=instance,
            )
        return Measurement(
            workload_key=job.workload.key,
            candidate=job.candidate,
            device_class=self.placement.device.class_key,
            resources=self.placement.resources,
            protocol=protocol,
            kernel_hash=job.kernel_hash,
            samples_s=tuple(job.samples_s),
            build_s=job.build_s,
            versions=self._versions,
            created_at=time.time(),
            run_id=run_id,
            instance=instance,
            binding=self.placement.binding,
            energy=job.energy,
        )


def make_ready(workers: Sequence[Worker]) -> None:
    """Start workers side by side, and wait until all of them can be asked."""
    for worker in workers:
        worker.launch()
    for worker in workers:
        worker.get_ready()


@contextmanager
def as_files(arrays: Sequence[Array]) -> Generator[Path]:
    """A temporary folder with the arrays as `0.npy`, `1.npy` …: a worker maps them, so that large
    weights do not count several times against its memory limit."""
    with attempting("write temporary files"), scratch_folder() as folder:
        for number, array in enumerate(arrays):
            np.save(folder / f"{number}.npy", array)
        yield folder
