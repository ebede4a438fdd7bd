"""The session with a board: how long it lasts, what ends it, and how another device is found.

The tracker, the process that holds the session and the clock are stand-ins.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.errors import TargetError
from tilewright.core.processes import Child, ChildCrash, ChildTimeout, RemoteError
from tilewright.measure import boards
from tilewright.measure.boards import SESSION_S, Board, BoardLost, NoFreeDevice, Tracker


class Clock:
    """Stands still but for sleeping."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Devices:
    """A tracker with one device, which is free after so many questions."""

    def __init__(self, busy: int = 0) -> None:
        self.busy, self.asked = busy, 0

    def request(self, key: str, wait_s: float) -> Any:
        del wait_s
        return SimpleNamespace(host="10.0.0.7", port=9090, match=f"{key}:1")

    def free(self, key: str) -> int:
        del key
        self.asked += 1
        return int(self.asked > self.busy)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(boards, "time", clock)
    return clock


class Process:
    """What the process was asked; it fails once where `failure` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    def request(self, message: tuple[Any, ...]) -> Any:
        self.asked.append(message)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return "facts"


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(Child, "request", lambda _, message, _timeout_s: process.request(message))
    return process


def board(devices: Devices | None = None, **named: float) -> Board:
    return Board(cast(Tracker, devices or Devices()), "box", **named)


@pytest.mark.usefixtures("process")
def test_a_session_lasts_as_long_as_its_server_lets_it(clock: Clock) -> None:
    """What would take longer than what is left is not begun."""
    short, usual = board(session_s=10.0), board()
    assert short.left_s() == 0.0 and not short.lasts(0.0), "there is none yet"
    for each in (short, usual):
        assert each.connect(1.0) == "facts"
    assert (short.left_s(), usual.left_s()) == (10.0, SESSION_S)
    assert short.lasts(9.5) and not short.lasts(10.0)
    clock.now_s += 8
    assert short.lasts(1.5) and not short.lasts(2.0) and short.left_s() == 2.0
    clock.now_s += 5
    assert short.left_s() == 0.0 and usual.left_s() == SESSION_S - 13
    usual.disconnect()
    assert not usual.lasts(0.0), "it was given back"


def test_a_device_is_asked_for_given_back_and_asked_for_again(process: Process) -> None:
    made = board(session_s=10.0)
    made.disconnect()
    assert process.asked == [], "there is none to give back"
    made.connect(1.0)
    made.connect(1.0)
    opening = ("connect", "10.0.0.7", 9090, "box:1", 10.0)
    assert process.asked == [opening, ("disconnect",), opening]
    assert "10.0.0.7" in made.instance and "9090" in made.instance


def test_a_device_that_does_not_answer_cannot_be_used(process: Process) -> None:
    made = board()
    process.failure = RemoteError("RPCError", "in C++:\nno route to host", "trace")
    with pytest.raises(TargetError) as found:
        made.connect(1.0)
    said = "the device rpc:box@10.0.0.7:9090 cannot be used: no route to host"
    assert found.value.message == said and found.value.hint
    assert made.instance == "" and made.left_s() == 0.0


def test_only_devices_of_the_same_kind_are_used(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "same_kind", lambda placement, facts, told: told == facts)
    made, facts = board(), cast(Any, "facts")
    assert made.connect_for(PLACEMENT, facts, 1.0) == "facts"
    assert process.asked[-1] == ("use_threads", PLACEMENT.resources.threads) and made.instance
    with pytest.raises(TargetError, match="another kind of device"):
        made.connect_for(PLACEMENT, None, 1.0)
    assert process.asked[-1] == ("disconnect",) and made.instance == ""


@pytest.mark.parametrize(
    ("failure", "raised", "kept"),
    [
        (RemoteError("DeviceLost", "it is gone", ""), BoardLost, False),
        (RemoteError("ValueError", "too odd", ""), RemoteError, True),
        (ChildCrash(-11, "last words"), BoardLost, False),
        (ChildTimeout("no answer"), ChildTimeout, False),
    ],
)
def test_what_a_failed_request_means(
    process: Process, failure: Exception, raised: type[Exception], kept: bool
) -> None:
    """An error of the kernel's own leaves the session as it is; anything else ends it."""
    made = board()
    made.connect(1.0)
    assert made.request(("run",), 1.0) == "facts"
    process.failure = failure
    with pytest.raises(raised) as found:
        made.request(("run",), 1.0)
    assert type(found.value) is raised
    assert bool(made.instance) == kept


def test_another_device_is_waited_for(clock: Clock) -> None:
    """The tracker is asked every 0.3 s; an attempt is made only where a device is free."""
    devices, attempts = Devices(busy=3), []

    def attempt(wait_s: float) -> Any:
        attempts.append(wait_s)
        if len(attempts) == 1:
            raise NoFreeDevice("somebody was faster")

    assert board(devices).reconnect(attempt, 60.0, lambda: False)
    assert (devices.asked, len(attempts)) == (5, 2)
    assert clock.now_s == pytest.approx(100 + 4 * 0.3)


def test_waiting_for_a_device_ends(clock: Clock) -> None:
    devices = Devices(busy=1000)
    assert not board(devices).reconnect(pytest.fail, 3.0, lambda: False)
    assert clock.now_s == pytest.approx(103, abs=0.31) and devices.asked >= 10
    clock.now_s, none = 100.0, Devices()
    assert not board(none).reconnect(pytest.fail, 3.0, lambda: True)
    assert (none.asked, clock.now_s) == (0, 100.0), "it was told to stop"
