"""What every measurer does: build candidates in worker processes and say how each one ended.

Where kernels are timed is for the measurers themselves: `measure.kernels` uses this machine,
`measure.remote` devices behind a TVM RPC tracker.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.compiler.features.kinds import WIDTHS
from tilewright.core.errors import OutputError, reason_of
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
from tilewright.graph.array_files import save_array
from tilewright.graph.workload import Workload
from tilewright.measure.versions import software_versions

BUILD_TIMEOUT_S = 40.0
_START_TIMEOUT_S = 60.0

Array = npt.NDArray[np.generic]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class TimeSpent:
    """Seconds of wall clock by what they were spent on.

    `kernels` were built in `kernels_s` of their workers' time, which is more where several work.
    """

    build_s: float = 0.0
    run_s: float = 0.0
    verify_s: float = 0.0
    kernels: int = 0
    kernels_s: float = 0.0


@dataclass(slots=True)
class Job:
    """A candidate on its way: where it was built, and what came of it."""

    candidate: Candidate
    slot: int
    worker: int
    kernel_hash: str = ""
    build_s: float = 0.0
    failure: tuple[FailureKind, str] | None = None
    samples_s: list[float] = field(default_factory=list[float])
    instance: str = ""
    energy: EnergyUse | None = None


def ignore(_outcome: Outcome) -> None:
    """Do nothing with an outcome."""


class Measurer(ABC):
    """Builds candidates, times them and evaluates them. Use as a context manager.

    `spent` adds up the seconds of building and timing.
    """

    def __init__(self, placement: Placement, workers: Sequence[Child]) -> None:
        self.placement = placement
        self.spent = TimeSpent()
        self._evaluated_on = placement.device.instance
        self._slots = count(1)
        self._versions = software_versions()
        self._workers = list(workers)
        self._prepared: dict[int, int | None] = {}
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
        self._make_ready(range(len(self._workers))[:workers])

    @abstractmethod
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

    @abstractmethod
    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        """The candidate's result on logical arrays."""

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

    @abstractmethod
    def _build_message(self, job: Job, workload: Workload) -> tuple[Any, ...]:
        """The request that builds a job's kernel; its answer has `kernel_hash` and `build_s`."""

    def _built(self, job: Job, answer: dict[str, Any]) -> None:  # noqa: B027 - optional
        """Take more from the answer to a build."""

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

        def ask(index: int) -> list[Any]:
            found: list[Any] = []
            for message in messages[index :: len(self._workers)]:
                try:
                    found.append(self._ready(index).request(message, BUILD_TIMEOUT_S))
                except (ChildError, RemoteError):
                    found.append(None)
            return found

        for index in range(min(len(messages), len(self._workers))):
            self._ready(index)
        parts = list(self._pool.map(ask, range(len(self._workers))))
        return [
            parts[position % len(self._workers)][position // len(self._workers)]
            for position in range(len(messages))
        ]

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

    def _make_ready(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._workers[index].launch()
        for index in indices:
            self._ready(index)

    def _ready(self, index: int) -> Child:
        worker = self._workers[index]
        if worker.pid is None or self._prepared.get(index) != worker.pid:
            worker.request(("prepare", self.placement), _START_TIMEOUT_S)
            self._prepared[index] = worker.pid
        return worker

    def _build_all(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Job]:
        began = time.perf_counter()
        jobs: list[Job] = []
        for position, candidate in enumerate(candidates):
            worker = position % len(self._workers)
            jobs.append(Job(candidate=candidate, slot=next(self._slots), worker=worker))
        used = sorted({job.worker for job in jobs})
        self._make_ready(used)

        def build(index: int) -> None:
            for job in jobs:
                if job.worker == index:
                    self._build(job, workload)

        list(self._pool.map(build, used))
        self.spent.build_s += time.perf_counter() - began
        built = [job.build_s for job in jobs if job.failure is None]
        self.spent.kernels += len(built)
        self.spent.kernels_s += sum(built)
        return jobs

    def _build(self, job: Job, workload: Workload) -> None:
        message = self._build_message(job, workload)
        try:
            answer: dict[str, Any] = self._ready(job.worker).request(message, BUILD_TIMEOUT_S)
            job.kernel_hash = answer["kernel_hash"]
            job.build_s = answer["build_s"]
            self._built(job, answer)
        except (ChildError, RemoteError) as error:
            job.failure = classify(error, "build")

    def _outcome(
        self, job: Job, workload: Workload, protocol: Protocol, run_id: int | None
    ) -> Outcome:
        if job.failure is not None or not job.samples_s:
            kind, message = job.failure or ("crash", "no samples")
            return Failure(
                workload_key=workload.key,
                candidate=job.candidate,
                device_class=self.placement.device.class_key,
                resources=self.placement.resources,
                kind=kind,
                message=message[:2000],
                kernel_hash=job.kernel_hash,
                versions=self._versions,
                created_at=time.time(),
                run_id=run_id,
                instance=job.instance or self.placement.device.instance,
                binding=self.placement.binding,
            )
        return Measurement(
            workload_key=workload.key,
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
            instance=job.instance or self.placement.device.instance,
            binding=self.placement.binding,
            energy=job.energy,
        )


@contextmanager
def as_files(arrays: Sequence[Array]) -> Generator[Path]:
    """A temporary folder with the arrays as `0.npy`, `1.npy` …: a worker maps them, so that large
    weights do not count several times against its memory limit."""
    try:
        with scratch_folder() as folder:
            for number, array in enumerate(arrays):
                save_array(folder / f"{number}.npy", array)
            yield folder
    except OSError as error:
        raise OutputError(f"cannot write temporary files: {reason_of(error)}") from error


def classify(error: ChildError | RemoteError, otherwise: FailureKind) -> tuple[FailureKind, str]:
    """Kind and message of the failure that an error of a worker means."""
    if isinstance(error, ChildTimeout):
        return "timeout", str(error)
    if isinstance(error, ChildOutOfMemory):
        return "out of memory", str(error)
    if isinstance(error, ChildCrash):
        return "crash", str(error)
    return otherwise, str(error)
