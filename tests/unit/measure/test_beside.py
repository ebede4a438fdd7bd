"""Neighbours run from before the first sample until after the last, or cost one failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.errors import NegativeVerdict
from tilewright.core.forms import PLAIN
from tilewright.core.processes import ChildCrash, ChildTimeout, RemoteError
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure import beside, kernels
from tilewright.measure.base import Job
from tilewright.measure.kernels import CrowdedMeasurer, neighbour_placements
from tilewright.measure.networks import NetworkWorker

RELU = Workload(
    arguments=(Argument(type=TensorType((8,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
JOB = Job(
    workload=RELU,
    candidate=Candidate(implementation="generic", settings=(), forms=(PLAIN, PLAIN)),
    slot=7,
)
SHORT = Protocol(timeout_s=0.1)


class Neighbour:
    """A worker process that does what it is told; `fault` is raised by one of its handlers."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.pid: int | None = None
        self.asked: list[str] = []
        self.running = False
        self.fault: tuple[str, Exception] | None = None

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        self.pid = 1
        self.asked.append(message[0])
        if self.fault is not None and self.fault[0] == message[0]:
            raise self.fault[1]
        if message[0] == "keep_running":
            *_, flag, started = message
            self.running = True
            Path(started).touch()
            while Path(flag).exists():
                time.sleep(1e-3)
            self.running = False

    def stop(self) -> None:
        self.asked.append("stop")


@pytest.fixture
def crowd(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[CrowdedMeasurer, list[Neighbour]]]:
    found: list[Neighbour] = []

    def opened(placement: Placement, *_limit: int) -> Neighbour:
        found.append(Neighbour(placement))
        return found[-1]

    monkeypatch.setattr(kernels, "open_worker", opened)
    with CrowdedMeasurer(altered(PLACEMENT, threads=1, cpus=(0, 1, 2)), 2) as measurer:
        yield measurer, found[1:]  # the first one builds what is timed
    assert all(neighbour.asked[-1] == "stop" for neighbour in found)


def test_each_has_cores_of_its_own() -> None:
    placement = altered(PLACEMENT, threads=2, cpus=(4, 5, 6, 7, 8, 9))
    assert [d.binding.cpus for d in neighbour_placements(placement, 2)] == [(4, 5), (6, 7), (8, 9)]


def test_they_run_while_the_kernel_is_timed(crowd: tuple[CrowdedMeasurer, list[Neighbour]]) -> None:
    opened, neighbours = crowd
    for _ in range(2):
        with opened.crowded(JOB, SHORT):
            assert all(neighbour.running for neighbour in neighbours)
        assert not any(neighbour.running for neighbour in neighbours)
    once = ["build", "keep_running", "release"]
    assert all(neighbour.asked == [*once, *once] for neighbour in neighbours)


@pytest.mark.parametrize(
    ("handler", "error"),
    [("build", RemoteError("ValueError", "does not build")), ("keep_running", ChildCrash(-11, ""))],
)
def test_a_neighbour_that_fails(
    crowd: tuple[CrowdedMeasurer, list[Neighbour]], handler: str, error: Exception
) -> None:
    opened, neighbours = crowd
    neighbours[1].fault = (handler, error)
    timed: list[int] = []
    with pytest.raises(type(error)), opened.crowded(JOB, SHORT):
        timed.append(1)
    assert not timed and not neighbours[0].running
    neighbours[1].fault = None
    with opened.crowded(JOB, SHORT):
        timed.append(1)
    assert timed, "the next kernel is timed"


def test_a_neighbour_that_does_not_begin(
    crowd: tuple[CrowdedMeasurer, list[Neighbour]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, neighbours = crowd
    monkeypatch.setattr(kernels.base, "START_TIMEOUT_S", 0.05)
    monkeypatch.setattr(kernels.base, "BUILD_TIMEOUT_S", 0.0)
    monkeypatch.setattr(neighbours[0], "request", lambda *_: time.sleep(0.3))
    with pytest.raises(ChildTimeout, match="did not begin"), opened.crowded(JOB, SHORT):
        pass


class Hanging(NetworkWorker):
    """A worker that gives `signs` of life, and then none until it is ended."""

    signs = 0

    def __init__(self) -> None:
        super().__init__(PLACEMENT)
        self.ended = Event()

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        goes_on = beside.going_on(Path(message[-2]), Path(message[-1]))
        for _ in range(self.signs):
            assert goes_on()
            time.sleep(0.05)
        if not self.ended.wait(60):
            return "nobody ended it"
        raise ChildCrash(-9, "")

    def abort(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("signs", [0, 1, 20])
def test_a_network_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signs: int
) -> None:
    for name, seconds in (("_QUIET_S", 0.3), ("_BEGIN_S", 0.3), ("_WATCH_S", 0.02), ("_TIMES", 1)):
        monkeypatch.setattr(beside, name, seconds)
    flag, sign = tmp_path / "flag", tmp_path / "sign"
    flag.touch()
    worker = Hanging()
    worker.signs = signs
    began_s = time.monotonic()
    with pytest.raises(NegativeVerdict, match="the partner hangs: none of its runs ends"):
        worker.keep_running("partner", [], (flag, sign), most_s=1.0)
    assert time.monotonic() - began_s < 30
    assert sign.exists() == bool(signs)


class Seconds:
    """Pauses that end at once, whose seconds are counted; `passed` is called after each. While it
    `stands`, none passes."""

    def __init__(self, passed: Callable[[float], object] = lambda _: None) -> None:
        self.s, self.passed, self.stands = 0.0, passed, False

    def __call__(self, over: Event, seconds: float) -> bool:
        if self.stands:
            return over.wait()
        self.s += seconds
        self.passed(self.s)
        time.sleep(0)
        return over.is_set()


@pytest.mark.parametrize(("began_s", "most_s"), [(None, 120), (0.5, 30), (3.0, 30), (5.0, 50)])
def test_one_that_began_before_has_as_long_to_begin_as_to_go_on(
    tmp_path: Path, began_s: float | None, most_s: float
) -> None:
    """One that is stopped between two batches, say."""
    clock, ended = Seconds(), Event()
    with beside.noticing_hangs(tmp_path / "sign", ended.set, began_s, clock) as watched:
        assert ended.wait(60)
    assert watched.hangs and watched.began_s is None
    assert most_s < clock.s <= most_s + 1


def test_how_long_it_took_to_begin_counts_afterwards(tmp_path: Path) -> None:
    """After six seconds a sign, and then none for a minute."""
    sign, ended = tmp_path / "sign", Event()
    clock = Seconds(lambda passed_s: passed_s == 6.0 and sign.touch())
    with beside.noticing_hangs(sign, ended.set, None, clock) as watched:
        assert ended.wait(60)
    assert watched.hangs and watched.began_s == 6.0 and 66 < clock.s <= 67


class Batches(NetworkWorker):
    """A worker that runs in the first batches, and is then stopped from without."""

    def __init__(self, batches: int, clock: Seconds) -> None:
        super().__init__(PLACEMENT)
        self.left, self.ended = batches, Event()
        self._pause = clock

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        self.left -= 1
        if self.left >= 0:
            Path(message[-1]).touch()
            return []
        assert self.ended.wait(60)
        raise ChildCrash(-9, "")

    def abort(self) -> None:
        self.ended.set()


@pytest.mark.parametrize(("batches", "most_s"), [(0, 120), (1, 30), (3, 30)])
def test_a_network_that_is_stopped_between_batches_is_ended_as_soon_as_one_that_hangs(
    tmp_path: Path, batches: int, most_s: float
) -> None:
    clock = Seconds()
    clock.stands = True
    worker = Batches(batches, clock)
    for number in range(batches):
        assert not worker.keep_running("partner", [], (tmp_path, tmp_path / str(number)), 1.0)
    clock.stands = False
    with pytest.raises(NegativeVerdict, match="the partner hangs"):
        worker.keep_running("partner", [], (tmp_path, tmp_path / "sign"), 1.0)
    assert most_s < clock.s <= most_s + 1


def test_one_that_runs_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_WATCH_S", 0.01)
    flag, sign = tmp_path / "flag", tmp_path / "sign"
    flag.touch()
    goes_on = beside.going_on(flag, sign)
    with beside.noticing_hangs(sign, pytest.fail) as watched:
        for _ in range(20):
            assert goes_on() and beside.quiet_s(sign) < 30
            time.sleep(0.01)
    flag.unlink()
    assert not goes_on() and not watched.hangs and watched.began_s is not None
    assert beside.quiet_s(flag) == 0.0
