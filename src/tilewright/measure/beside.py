"""Timing kernels while copies of the same kernel run on other cores.

Each neighbour is a process of its own with as many threads as the timed kernel, pinned to cores of
its own. It builds the same candidate and calls it again and again, from before the first sample
until after the last one.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.core import processes, scratch, targets
from tilewright.core.records import Placement, Protocol
from tilewright.measure import base
from tilewright.measure.base import Job, Worker, classify
from tilewright.measure.kernels import KernelMeasurer, open_worker

_POLL_S = 1e-3
_RUNNING = "running"
"""As long as this file is there neighbours go on; each writes `NUMBER` after its first call."""


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

    @contextmanager
    def crowded(self, job: Job, protocol: Protocol) -> Generator[None]:
        """While the block runs, so does the job's kernel in every neighbour.

        Raises ChildError or RemoteError when a neighbour cannot build or run it, or ends before the
        block does, ChildTimeout when one does not begin.
        """
        with scratch.scratch_folder() as folder:
            flag = folder / _RUNNING
            flag.touch()
            started = [flag.with_name(str(number)) for number in range(len(self._neighbours))]
            calls = [
                self._beside.submit(self._keep_running, *neighbour, job, protocol, (flag, path))
                for neighbour, path in zip(self._neighbours, started, strict=True)
            ]
            try:
                _wait(started, calls, protocol)
                yield
            finally:
                flag.unlink()
                wait(calls)
            for call in calls:
                call.result()

    def _time(self, job: Job, protocol: Protocol, give_up_s: float) -> None:
        try:
            with self.crowded(job, protocol):
                super()._time(job, protocol, give_up_s)
        except (processes.ChildError, processes.RemoteError) as error:
            job.samples_s, job.failure = [], classify(error, "crash")

    def _keep_running(
        self,
        placement: Placement,
        worker: Worker,
        job: Job,
        protocol: Protocol,
        files: tuple[Path, Path],
    ) -> None:
        """Build a neighbour's kernel, and run it while the first of the files is there; the second
        is written after its first call."""
        build = ("build", job.slot, job.workload.text, job.candidate, placement)
        worker.request(build, base.BUILD_TIMEOUT_S)
        run = ("keep_running", job.slot, protocol, self._seed, *map(str, files))
        worker.request(run, base.BUILD_TIMEOUT_S + 3 * protocol.timeout_s)
        worker.request(("release", [job.slot]), 10.0)


def _wait(started: Sequence[Path], calls: Sequence[Future[None]], protocol: Protocol) -> None:
    """Until all neighbours run."""
    deadline_s = time.monotonic() + base.START_TIMEOUT_S + base.BUILD_TIMEOUT_S + protocol.timeout_s
    while not all(path.exists() for path in started):
        for call in calls:
            if call.done():
                call.result()
        if time.monotonic() > deadline_s:
            raise processes.ChildTimeout("a neighbour did not begin to run")
        time.sleep(_POLL_S)
