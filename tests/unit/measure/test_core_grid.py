"""Points of a grid of cores and neighbours have their turns, and only what ran beside counts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.core.forms import PLAIN
from tilewright.core.processes import ChildCrash, ChildError
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.core.timings import Burst
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure import core_grid
from tilewright.measure.core_grid import ALONE, CoreGrid, Neighbour
from tilewright.testing.implementations import made_up_placement

RELU = Workload(
    arguments=(Argument(type=TensorType((8,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
KERNEL = (RELU, Candidate(implementation="generic", settings=(), forms=(PLAIN, PLAIN)))
NEIGHBOUR = Neighbour(name="stream", kernel=KERNEL)
PLACEMENT = replace(
    made_up_placement(), resources=threads_alone(3), binding=Binding(cpus=(4, 5, 6, 7))
)
RUNNING: set[tuple[int, ...]] = set()
LOG: list[tuple[tuple[int, ...], str]] = []


class Worker:
    """A process on some CPUs whose calls take 12 ms of one CPU, and half as long again beside
    another process; that on the CPUs `idle` never calls, that on `broken` crashes."""

    idle: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()

    def __init__(self, placement: Placement) -> None:
        self.cpus = placement.binding.cpus
        assert placement.resources == threads_alone(len(self.cpus))

    def stop(self) -> None:
        LOG.append((self.cpus, "stop"))

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        LOG.append((self.cpus, message[0]))
        if message[0] != "keep_running":
            return None
        if self.cpus == self.broken:
            raise ChildCrash(11, "gone")
        flag, started = map(Path, message[-2:])
        RUNNING.add(self.cpus)
        started.touch()
        found: list[Burst] = []
        while flag.exists():
            before = len(RUNNING)
            began_s = time.perf_counter()
            time.sleep(1e-3)
            busy_s = 0.012 / len(self.cpus) * (1.5 if before == len(RUNNING) == 2 else 1.0)
            found.append(Burst(began_s, time.perf_counter(), 1, busy_s))
        RUNNING.discard(self.cpus)
        return [] if self.cpus == self.idle else found


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    RUNNING.clear()
    LOG.clear()
    monkeypatch.setattr(core_grid, "open_worker", Worker)
    monkeypatch.setattr(core_grid, "WINDOW_S", 0.02)


def test_each_point_for_which_there_are_cores_is_timed() -> None:
    large = Neighbour(name="large", kernel=KERNEL, cores=3)
    with CoreGrid(PLACEMENT, (1, 2, 3), [NEIGHBOUR, large]) as grid:
        assert grid.points == [(1, ALONE), (1, "stream"), (2, ALONE), (2, "stream"), (3, ALONE)]
        assert grid.neighbours_s() == {"stream": pytest.approx(0.012)}
        times = grid.times_s(dict.fromkeys((1, 2, 3), KERNEL), rounds=2)
    wanted = {(1, ALONE): 0.012, (1, "stream"): 0.018, (2, ALONE): 0.006, (2, "stream"): 0.009}
    assert times == pytest.approx({**wanted, (3, ALONE): 0.004})
    assert {cpus for cpus, what in LOG if what == "stop"} == {(4,), (4, 5), (4, 5, 6), (6,)}
    for place, (cpus, what) in enumerate(LOG[:-1]):
        later = [each for each in LOG[place + 1 :] if each[1] in ("keep_running", "settle")]
        if what == "keep_running" and cpus != (6,):
            assert (cpus, "settle") in later, "its threads sleep before others are timed"


def test_a_neighbour_that_does_nothing_and_a_kernel_that_crashes_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CoreGrid(PLACEMENT, (1,), [NEIGHBOUR]) as grid:
        grid.neighbours_s()
        monkeypatch.setattr(Worker, "idle", (6,))
        with pytest.raises(ChildError, match="did nothing"):
            grid.times_s({1: KERNEL}, rounds=1)
        monkeypatch.setattr(Worker, "broken", (4,))
        with pytest.raises(ChildCrash, match="gone"):
            grid.times_s({1: KERNEL}, rounds=1)
    assert not RUNNING
