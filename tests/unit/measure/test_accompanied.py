"""A partner runs while kernels are timed, not while they are built; its end is no kernel's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.errors import NegativeVerdict
from tilewright.core.forms import PLAIN
from tilewright.core.processes import ChildCrash
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol
from tilewright.core.timings import Burst
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure import kernels
from tilewright.measure.kernels import AccompaniedMeasurer

RELU = Workload(
    arguments=(Argument(type=TensorType((4,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
CANDIDATES = [
    Candidate(implementation="i", settings=(("n", number),), forms=(PLAIN, PLAIN))
    for number in range(3)
]


class Partner:
    """What runs beside; `fault` is raised instead, `most` is how often it lets itself start."""

    def __init__(self) -> None:
        self.running = False
        self.started = 0
        self.fault: Exception | None = None
        self.early = False
        self.hangs_s = 0.0

    def __call__(self, files: tuple[Path, Path]) -> list[Burst]:
        if self.fault is not None:
            raise self.fault
        self.started += 1
        self.running = True
        files[1].touch()
        while files[0].exists() and not self.early:
            if self.hangs_s:
                time.sleep(self.hangs_s)
                raise NegativeVerdict("it hangs")
            files[1].touch()
            time.sleep(1e-3)
        self.running = False
        return [Burst(0.0, 1.0, 1, 1.0)]


PARTNER = Partner()


class Worker:
    """A worker that answers at once; `said` are requests with whether the partner ran."""

    said: list[tuple[str, bool]]
    failing: set[str]

    def __init__(self, *_arguments: object, **_named: object) -> None:
        self.pid: int | None = None
        self.environment: dict[str, str] = {}

    def launch(self) -> None:
        self.pid = 1

    get_ready = launch

    def stop(self) -> None:
        self.pid = None

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        Worker.said.append((message[0], PARTNER.running))
        if message[0] in Worker.failing:
            raise ChildCrash(-11, "gone")
        return {"build": {"kernel_hash": "h", "build_s": 0.01}, "measure": [1e-3]}.get(message[0])


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Iterator[AccompaniedMeasurer]:
    Worker.said, Worker.failing = [], set()
    PARTNER.__init__()
    monkeypatch.setattr(kernels, "Worker", Worker)
    with AccompaniedMeasurer(PLACEMENT, PARTNER, name="stream") as opened:
        yield opened


def test_it_runs_while_a_batch_is_timed_and_not_while_it_is_built(
    measurer: AccompaniedMeasurer,
) -> None:
    for _ in range(2):
        found = measurer.measure(RELU, CANDIDATES, Protocol())
        assert all(isinstance(each, Measurement) for each in found)
    ran = {
        name: {beside for said, beside in Worker.said if said == name} for name, _ in Worker.said
    }
    assert ran["measure"] == {True} and ran["build"] == {False}
    assert PARTNER.started == 2 and not PARTNER.running


def test_a_kernel_that_crashes_is_a_failure_of_that_kernel(measurer: AccompaniedMeasurer) -> None:
    Worker.failing = {"measure"}
    found = measurer.measure(RELU, CANDIDATES[:1], Protocol())
    assert isinstance(found[0], Failure) and found[0].kind == "crash"


def test_without_a_kernel_that_builds_nothing_is_started(measurer: AccompaniedMeasurer) -> None:
    Worker.failing = {"build"}
    (found,) = measurer.measure(RELU, CANDIDATES[:1], Protocol())
    assert isinstance(found, Failure) and PARTNER.started == 0


@pytest.mark.parametrize("way", ["crashes", "ends early"])
def test_a_partner_that_ends_is_an_error(measurer: AccompaniedMeasurer, way: str) -> None:
    if way == "crashes":
        PARTNER.fault = ChildCrash(-11, "")
    PARTNER.early = way == "ends early"
    known: list[object] = []

    def ended(outcome: Outcome) -> None:
        known.append(outcome)
        assert measurer._ended.wait(60)  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(NegativeVerdict, match=r"beside stream: .*(SIGSEGV|ended before)"):
        measurer.measure(RELU, CANDIDATES, Protocol(), finished=ended)
    assert not any(isinstance(each, Failure) for each in known)


def test_what_is_timed_after_the_partner_ended_is_not_kept(measurer: AccompaniedMeasurer) -> None:
    known: list[Outcome] = []

    def ends(outcome: Outcome) -> None:
        known.append(outcome)
        PARTNER.early = True
        assert measurer._ended.wait(60)  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(NegativeVerdict, match="beside stream: what runs beside ended before"):
        measurer.measure(RELU, CANDIDATES, Protocol(), finished=ends)
    assert [each.candidate for each in known] == CANDIDATES[:1]
    assert [name for name, _ in Worker.said].count("measure") == 1


def test_what_is_timed_while_nothing_is_heard_of_the_partner_is_not_kept(
    measurer: AccompaniedMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel is kept that ended shortly after the partner's last sign; the next ones wait."""
    monkeypatch.setattr(kernels, "_QUIET_S", 0.0)
    PARTNER.hangs_s = 0.5
    known: list[Outcome] = []
    with pytest.raises(NegativeVerdict, match="beside stream: it hangs"):
        measurer.measure(RELU, CANDIDATES, Protocol(), finished=known.append)
    assert not known and [name for name, _ in Worker.said].count("measure") == 1


def test_a_partner_whose_signs_seem_old_is_waited_for(
    measurer: AccompaniedMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are long, or its file is on another machine whose clock is another one."""
    monkeypatch.setattr(kernels, "quiet_s", lambda _sign: 3600.0)
    began_s = time.monotonic()
    found = measurer.measure(RELU, CANDIDATES, Protocol())
    assert all(isinstance(each, Measurement) for each in found)
    assert time.monotonic() - began_s < 30


def test_a_network_that_ends_is_told_by_the_name_of_the_partner(
    measurer: AccompaniedMeasurer,
) -> None:
    PARTNER.fault = NegativeVerdict("the network's process failed")
    with pytest.raises(NegativeVerdict, match="beside stream: the network's process failed"):
        measurer.measure(RELU, CANDIDATES, Protocol())
