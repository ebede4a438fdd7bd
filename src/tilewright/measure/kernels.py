"""Building and timing candidates in worker processes of this machine.

Workers build side by side, then time one after the other, so that nothing builds while something
is timed. The threads of a worker spin for a while after their last kernel; they are waited for only
where something else is timed next. Whatever goes wrong with a candidate costs one `Failure` and at
most one worker restart.

Kernels can be timed while copies of the same kernel run on other cores. Each neighbour is a process
of its own with as many threads as the timed kernel, pinned to cores of its own. It builds the same
candidate and calls it again and again, from before the first sample until after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

from tilewright.compiler.cuda.nvidia import environment_of
from tilewright.core import targets
from tilewright.core.errors import NegativeVerdict, TargetError
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Placement, Protocol
from tilewright.core.timings import Burst
from tilewright.hardware.meters import KernelEnergy
from tilewright.measure import base
from tilewright.measure.base import Array, Job, Measurer, Worker, classify
from tilewright.measure.beside import ENDED, Player, quiet_s, running, written_ns

WORKER = "tilewright.measure.kernel_worker"
MEMORY_LIMIT_BYTES = 3 << 29
"""1.5 GiB of private data per worker."""
_SETTLE_S = 10.0
_QUIET_S, _POLL_S = 2.0, 0.05

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def open_worker(placement: Placement, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Worker:
    """A kernel worker on a placement's CPUs, which sees no GPU but the placement's; it starts with
    its first request."""
    worker = Worker(WORKER, placement, memory_limit_bytes=memory_limit_bytes)
    worker.environment |= environment_of(placement)
    return worker


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
        super().__init__(
            placement, [open_worker(placement, memory_limit_bytes) for _ in range(count)]
        )
        self._seed = seed
        self._energy = energy
        self._restless: set[int] = set()
        self._free: SimpleQueue[int] = SimpleQueue()
        for index in range(count):
            self._free.put(index)

    def side_by_side(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> list[_Result]:
        # in threads that live as long as the measurer, and so does a worker that starts anew there
        base.make_ready(self._workers)
        return list(self._pool.map(function, items))

    def rest(self) -> None:
        self._rest(self._restless)

    def peaks(self) -> dict[str, float]:
        self.rest()
        self._restless.add(0)
        return self._workers[0].request(
            ("peaks", self.placement.target, self.placement.resources), base.BUILD_TIMEOUT_S
        )

    def _time_all(
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        give_up_s: float,
        finish: Callable[[Job], None],
    ) -> None:
        for worker in sorted({job.worker for job in jobs}):
            mine = [job for job in jobs if job.worker == worker]
            self._rest(self._restless - {worker})
            for job in mine:
                self._time(job, protocol, give_up_s)
                self._meter(job, protocol)
                finish(job)
            self._finish(worker, mine)

    def _evaluated(self, job: Job, arrays: Sequence[Array]) -> Array | None:
        job.worker = self._free.get()
        try:
            self._build(job)
            found = self._answer(
                job,
                arrays,
                lambda folder: self._workers[job.worker].request(
                    ("evaluate", job.slot, folder, len(arrays)), base.BUILD_TIMEOUT_S
                ),
            )
            self._finish(job.worker, [job])
        finally:
            self._free.put(job.worker)
        return found

    def _time(self, job: Job, protocol: Protocol, give_up_s: float) -> None:
        request = ("measure", job.slot, protocol, self._seed, give_up_s)
        for _ in range(2):
            if job.failure is not None:
                return
            try:
                job.samples_s = self._workers[job.worker].request(request, protocol.timeout_s)
                return
            except (ChildError, RemoteError) as error:
                if isinstance(error, RemoteError) and error.kind == "KeyError":
                    # a crash of an earlier candidate took this kernel along
                    self._build(job)
                else:
                    job.failure = classify(error, "crash")

    def _meter(self, job: Job, protocol: Protocol) -> None:
        """Measure the energy of a kernel that has a time."""
        if self._energy is None or job.failure is not None:
            return

        def work(seconds: float) -> int:
            return self._workers[job.worker].request(
                ("repeat", job.slot, protocol, self._seed, seconds), protocol.timeout_s + seconds
            )

        job.energy = self._energy.of(work)

    def _finish(self, worker: int, jobs: Sequence[Job]) -> None:
        """Have a worker forget the kernels of jobs that have ended."""
        if self._workers[worker].pid is not None:
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


def beside(placement: Placement, threads: int) -> tuple[Placement, Placement]:
    """The placement on its first CPUs, and one with so many threads on the next ones. Raises
    TargetError where there are not enough."""
    own, cpus = placement.resources.threads, placement.binding.cpus
    if own + threads > len(cpus):
        raise TargetError(
            f"{own} threads and {threads} beside them need {own + threads} CPUs; this process is "
            f"allotted {len(cpus)}",
            hint="Use fewer --threads, or fewer --beside-threads.",
        )
    first = replace(placement, binding=targets.Binding(cpus=cpus[:own]))
    return first, on_cpus(placement, cpus[own : own + threads])


def on_cpus(placement: Placement, cpus: tuple[int, ...]) -> Placement:
    """The placement on these CPUs alone, with a thread on each."""
    resources = replace(targets.threads_alone(len(cpus)), kind=placement.resources.kind)
    return replace(placement, resources=resources, binding=targets.Binding(cpus=cpus))


def neighbour_placements(placement: Placement, count: int) -> list[Placement]:
    """The placement itself on its first CPUs, then each neighbour on the next ones."""
    threads, cpus = placement.resources.threads, placement.binding.cpus
    return [
        replace(
            placement, binding=targets.Binding(cpus=cpus[number * threads : (number + 1) * threads])
        )
        for number in range(count + 1)
    ]


class CrowdedMeasurer(KernelMeasurer):
    """As `KernelMeasurer`, with `neighbours` copies of each timed kernel beside it."""

    def __init__(self, placement: Placement, neighbours: int, *, seed: int = 0) -> None:
        own, *others = neighbour_placements(placement, neighbours)
        super().__init__(own, seed=seed)
        self._neighbours = [(other, open_worker(other)) for other in others]
        self._beside = ThreadPoolExecutor(max_workers=neighbours)

    def close(self) -> None:
        """Stop the workers and the neighbours."""
        super().close()
        self._beside.shutdown(wait=False, cancel_futures=True)
        for _, worker in self._neighbours:
            worker.stop()

    def crowded(self, job: Job, protocol: Protocol) -> AbstractContextManager[object]:
        """While the block runs, so does the job's kernel in every neighbour.

        Raises ChildError or RemoteError when a neighbour cannot build or run it, or ends before the
        block does, ChildTimeout when one does not begin.
        """
        players = [
            partial(self._keep_running, *neighbour, job, protocol) for neighbour in self._neighbours
        ]
        begin_s = base.START_TIMEOUT_S + base.BUILD_TIMEOUT_S + protocol.timeout_s
        return running(players, self._beside, begin_s)

    def _time(self, job: Job, protocol: Protocol, give_up_s: float) -> None:
        try:
            with self.crowded(job, protocol):
                super()._time(job, protocol, give_up_s)
        except (ChildError, RemoteError) as error:
            job.samples_s, job.failure = [], classify(error, "crash")

    def _keep_running(
        self,
        placement: Placement,
        worker: Worker,
        job: Job,
        protocol: Protocol,
        files: tuple[Path, Path],
    ) -> list[Burst]:
        """Build a neighbour's kernel, and run it while the first of the files is there; the second
        is written after its first call."""
        build = ("build", job.slot, job.workload.text, job.candidate, placement)
        worker.request(build, base.BUILD_TIMEOUT_S)
        run = ("keep_running", job.slot, protocol, self._seed, *map(str, files))
        bursts = worker.request(run, base.BUILD_TIMEOUT_S + 3 * protocol.timeout_s)
        worker.request(("release", [job.slot]), 10.0)
        return bursts


class AccompaniedMeasurer(KernelMeasurer):
    """As `KernelMeasurer`, while `partner` runs on cores of its own: from before the first kernel
    of a batch is timed until after the last one, and not while kernels are built. What goes wrong
    with the partner is no failure of a kernel: `measure` raises NegativeVerdict, which begins with
    `name`, and has no outcome of what was timed after the partner had ended. Where nothing is heard
    of the partner it waits for its next sign, or its end, before it believes a kernel's time."""

    def __init__(
        self, placement: Placement, partner: Player, *, name: str = "", seed: int = 0
    ) -> None:
        super().__init__(placement, seed=seed)
        self._partner, self._name = partner, name
        self._one = ThreadPoolExecutor(max_workers=1)
        self._ended, self._sign = Event(), Path()

    def close(self) -> None:
        """Stop the workers; whoever opened the partner closes it."""
        super().close()
        self._one.shutdown(wait=False, cancel_futures=True)

    def _time_all(
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        give_up_s: float,
        finish: Callable[[Job], None],
    ) -> None:
        if not jobs:
            return

        late: list[Job] = []

        def accompanied(job: Job) -> None:
            self._hear()
            (late.append if self._ended.is_set() else finish)(job)

        self._ended.clear()
        try:
            with running([self._play], self._one, base.START_TIMEOUT_S + protocol.timeout_s):
                super()._time_all(jobs, protocol, give_up_s, accompanied)
            if late:
                raise ChildError(ENDED)
        except (ChildError, RemoteError, NegativeVerdict) as error:
            raise NegativeVerdict(f"beside {self._name or 'a partner'}: {error}") from error

    def _time(self, job: Job, protocol: Protocol, give_up_s: float) -> None:
        if not self._ended.is_set():
            super()._time(job, protocol, give_up_s)

    def _hear(self) -> None:
        """Wait until the partner ends or gives another sign, where it gave none for a while. One
        that hangs is ended by who runs it (`noticing_hangs`)."""
        if quiet_s(self._sign) > _QUIET_S:
            before = written_ns(self._sign)
            while written_ns(self._sign) == before and not self._ended.wait(_POLL_S):
                pass

    def _play(self, files: tuple[Path, Path]) -> list[Burst]:
        """The partner, whose end is known as soon as it comes."""
        self._sign = files[1]
        try:
            return self._partner(files)
        finally:
            self._ended.set()
