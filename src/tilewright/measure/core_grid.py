"""What a kernel takes on several numbers of cores, alone and beside neighbours, in turn.

    cores   1 1×s 2 2×s   2×s 2 1×s 1   …     one round after the other, every other one backwards

Each number of cores is a process on the first ones, each neighbour, `s`, one on the last ones. In a
round every point has its turn, so that what else happens on the machine hits all alike. Beside a
neighbour only calls count that began after its first ones and ended before its last.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

from tilewright.core.processes import ChildError
from tilewright.core.records import Candidate, Placement
from tilewright.core.timings import Burst
from tilewright.graph.workload import Workload
from tilewright.measure.base import BUILD_TIMEOUT_S, Worker
from tilewright.measure.beside import Player, running
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import on_cpus, open_worker
from tilewright.measure.pairs import per_call_s

ALONE = ""
"""The name of no neighbour."""

ROUNDS, WINDOW_S = 5, 0.03
_BURSTS = 4
"""A window has so many bursts of the slower one at least."""
_BEGIN_S, _SETTLE_S = 60.0, 10.0

BuiltKernel = tuple[Workload, Candidate]
Point = tuple[int, str]
"""A number of cores, and the name of what runs beside."""

Times = dict[Point, float]
"""Seconds of a call by point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A kernel that runs on so many of the last cores."""

    name: str
    kernel: BuiltKernel
    cores: int = 1


class CoreGrid:
    """Kernels on each of `counts` cores of a placement, beside those of the `neighbours` that leave
    them a core: each thread of the placement is one. Use as a context manager."""

    def __init__(
        self,
        placement: Placement,
        counts: Sequence[int],
        neighbours: Sequence[Neighbour] = (),
        *,
        seed: int = 0,
    ) -> None:
        cpus = placement.binding.cpus[: placement.resources.threads]
        self._seed, self._cores = seed, len(cpus)
        self._protocol = kernel_protocol(placement)
        self._own = {n: on_cpus(placement, cpus[:n]) for n in counts}
        self._neighbours = {
            each.name: (each, on_cpus(placement, cpus[-each.cores :]))
            for each in neighbours
            if each.cores < len(cpus)
        }
        self._workers: dict[int | str, Worker] = {
            who: open_worker(place)
            for who, place in (
                *self._own.items(),
                *((name, place) for name, (_, place) in self._neighbours.items()),
            )
        }
        self._pool = ThreadPoolExecutor(2)
        self._windows_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers.values():
            worker.stop()

    @property
    def points(self) -> list[Point]:
        """The points for which there are cores enough."""
        beside = [(name, each.cores) for name, (each, _) in self._neighbours.items()]
        return [
            (count, name)
            for count in self._own
            for name, more in ((ALONE, 0), *beside)
            if count + more <= self._cores
        ]

    def times_s(self, kernels: Mapping[int, BuiltKernel], rounds: int = ROUNDS) -> Times:
        """Median seconds of a call at each point; `kernels` has the one for each number of cores,
        and `neighbours_s` was asked before. Raises ChildError or RemoteError where one does not
        build, crashes, hangs, or ends early."""
        taken: dict[Point, list[float]] = {point: [] for point in self.points}
        for count, kernel in kernels.items():
            self._build(self._workers[count], kernel, self._own[count])
        own_s = {count: max(WINDOW_S, _BURSTS * self._burst_s(count)) for count in kernels}
        for number in range(rounds):
            for count, name in self.points[:: -1 if number % 2 else 1]:
                window_s = max(own_s[count], self._windows_s.get(name, 0.0))
                taken[count, name].append(self._turn_s((count, name), window_s))
        for count in kernels:
            self._workers[count].request(("release", [0]), _SETTLE_S)
        return {point: median(each) for point, each in taken.items()}

    def neighbours_s(self) -> dict[str, float]:
        """Median seconds of a call of each neighbour alone. Raises as `times_s` does."""
        for name, (each, place) in self._neighbours.items():
            self._build(self._workers[name], each.kernel, place)
            self._windows_s[name] = max(WINDOW_S, _BURSTS * self._burst_s(name))
        return {name: self._turn_s((name, ALONE), s) for name, s in self._windows_s.items()}

    def _build(self, worker: Worker, kernel: BuiltKernel, placement: Placement) -> None:
        workload, candidate = kernel
        worker.request(("build", 0, workload.text, candidate, placement), BUILD_TIMEOUT_S)

    def _burst_s(self, who: int | str) -> float:
        """Seconds of a burst of calls."""
        with running([self._player(who)], self._pool, _BEGIN_S) as bursts:
            time.sleep(WINDOW_S)
        self._workers[who].request(("settle",), _SETTLE_S)
        return max((each.end_s - each.begin_s for each in bursts[0]), default=0.0)

    def _turn_s(self, point: tuple[int | str, str], window_s: float) -> float:
        """Seconds of a call in a window of one point, or of a neighbour alone."""
        who, name = point
        with running([self._player(who)], self._pool, _BEGIN_S) as bursts:
            if name == ALONE:
                began_s = time.perf_counter()
                time.sleep(window_s)
                span = began_s, time.perf_counter()
            else:
                other = self._player(name)
                with running([other], self._pool, _BEGIN_S) as others:
                    time.sleep(window_s)
                (theirs,) = others
                if not theirs:
                    raise ChildError("what runs beside did nothing")
                span = theirs[0].begin_s, theirs[-1].end_s
        for each in {who, name} - {ALONE}:
            self._workers[each].request(("settle",), _SETTLE_S)
        return per_call_s(bursts[0], span)

    def _player(self, who: int | str) -> Player:
        worker, asked = self._workers[who], ("keep_running", 0, self._protocol, self._seed)

        def keep_running(files: tuple[Path, Path]) -> list[Burst]:
            return worker.request((*asked, *map(str, files)), _BEGIN_S)

        return keep_running
