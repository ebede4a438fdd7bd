"""Plans served in parts at two places: answers, places that fail, and what is planned then."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.toy_plan import ToyParts, ToyPlanServer, check, given, until, wanted
from helpers.fakes.toy_serving_worker import (
    CRASH,
    CRASH_ONCE,
    FAULT,
    HANG,
    HANG_ONCE,
    REFUSE,
    STARTS_NOT,
)
from tilewright.core.errors import InputError, TargetError
from tilewright.core.refusals import DeadlineMissed, RequestFailed, ServerClosed
from tilewright.deploy.compiled_parts import Way
from tilewright.graph.parts import Place
from tilewright.serving.flows import Flow
from tilewright.serving.plan_crew import PlanCrew
from tilewright.serving.stations import WARM_RUNS, Station


def test_requests_flow_through_both_places(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path, ("a", "b")) as server:
        for device in ("left", "right"):
            server.parts.takes(device, 0.01)
        server.crew.spans.clear()
        answers = [server.submit(name, given(n)) for n in range(10) for name in "ab"]
        for number, answer in enumerate(answers):
            np.testing.assert_array_equal(answer.result(10), wanted(number // 2))
        told, spans = server.statistics(), list(server.crew.spans)
    assert [each.answered for each in told.networks] == [10, 10]
    assert [each.device for each in told.instances] == ["left", "right"]
    sides = [[s for s in spans if s.place[0] == device] for device in ("left", "right")]
    beside = [a for a in sides[0] for b in sides[1] if a.begin_s < b.end_s and b.begin_s < a.end_s]
    assert len(beside) >= 10, "one place waited for the other all the time"
    for side in sides:
        ordered = sorted(side, key=lambda span: span.begin_s)
        assert all(a.end_s <= b.begin_s for a, b in zip(ordered, ordered[1:], strict=False))


@pytest.mark.parametrize("merges", [(), (("b", "c"),)])
def test_a_plan_on_one_device_is_timed_beside_the_calls_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges: tuple[tuple[str, ...], ...]
) -> None:
    """Where calls are merged that is another way than all of them one after the other."""
    made = ToyParts.__init__

    def on_the_left(self: ToyParts, *arguments: Any) -> None:
        made(self, *arguments)
        self.plan.networks = [replace(each, merges=merges) for each in self.plan.networks]

    monkeypatch.setattr(ToyParts, "__init__", on_the_left)
    monkeypatch.setattr(ToyParts, "way", lambda self, _: self.alone("left"))
    monkeypatch.setattr(Way, "is_alone_on", lambda *_: True)
    with ToyPlanServer(tmp_path, mode="auto") as server:
        check(server)
        timed = {"sequential", "parallel"} if merges else set[str]()
        assert {*server.crew.times_s} == timed


def test_a_network_that_is_planned_twice_has_replicas(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path, ("a", "a 2")) as server:
        assert list(server.networks) == ["a"]
        server.crew.spans.clear()
        check(server)
        assert {span.network for span in server.crew.spans} == {"a", "a 2"}


@pytest.mark.parametrize("slow", ["right", pytest.param("left", marks=pytest.mark.on_request)])
def test_the_faster_way_is_kept(tmp_path: Path, slow: str) -> None:
    """Alone on the left all is slower where that is slow, and faster where the other one is."""
    (tmp_path / "toy").mkdir()

    class Slow(ToyPlanServer):
        def __init__(self) -> None:
            super().__init__(tmp_path / "toy", mode="auto")

    import helpers.fakes.toy_plan as toy

    class Parts(toy.ToyParts):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            self.takes(slow, 0.03)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "ToyParts", Parts)
        with Slow() as server:
            assert server.crew.mode == {"right": "sequential", "left": "parallel"}[slow]
            assert server.crew.times_s.keys() == {"sequential", "parallel"}
            assert "in turn: as planned" in server.choice
            check(server, count=3)
            assert len(server.pids()) == {"right": 1, "left": 2}[slow]


@pytest.mark.parametrize(
    ("file", "fault", "said", "measured"),
    [
        (STARTS_NOT, "", r"right (core 1) does not start", False),
        (FAULT, CRASH, "ended its process", True),
        pytest.param(FAULT, HANG, "hung", True, marks=pytest.mark.on_request),
        pytest.param(FAULT, HANG, "hung", False, marks=pytest.mark.on_request),
        pytest.param(FAULT, CRASH, "crashed", False, marks=pytest.mark.on_request),
        pytest.param(STARTS_NOT, "", "SIGKILL", True, marks=pytest.mark.on_request),
    ],
)
def test_a_plan_that_fails_on_trial_is_not_carried_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    fault: float | str,
    said: str,
    measured: bool,
) -> None:
    """At its first run, or when both ways are measured."""
    (tmp_path / "right").mkdir()

    def inject() -> None:
        (tmp_path / "right" / file).write_text(str(fault))

    def measure(crew: PlanCrew, *given: Any) -> None:
        inject()
        if file == STARTS_NOT:
            (right,) = (each for each in crew._stations.values() if each.place[0] == "right")
            os.kill(right.statistics().pid or 0, signal.SIGKILL)
        measured_as_usual(crew, *given)

    measured_as_usual = PlanCrew._measure
    monkeypatch.setattr(PlanCrew, "_measure", measure)
    if not measured:
        inject()
    with ToyPlanServer(tmp_path, ("a", "b"), mode="auto") as server:
        assert server.crew.mode == "sequential" and not server.crew.times_s
        assert "one after the other on 'left': as planned it failed on trial: " in server.choice
        assert [each.device for each in server.statistics().instances] == ["left"]
        assert any(note.startswith("The plan fails") for note in server.notes)
        for name in "ab":
            check(server, name, count=3)
        told = server.statistics().networks
    assert [(each.answered, each.failed, each.retried) for each in told] == [(3, 0, 0)] * 2
    assert said in server.choice


@pytest.mark.parametrize(("wish", "how"), [(CRASH_ONCE, "crashed"), (HANG_ONCE, "hung")])
def test_a_part_whose_process_fails_runs_again(tmp_path: Path, wish: float, how: str) -> None:
    with ToyPlanServer(tmp_path) as server:
        before = [server.submit("a", given(n)) for n in range(4)]
        answer = server.submit("a", given(wish))
        np.testing.assert_array_equal(answer.result(10), wanted(wish))
        assert [each.result(10)[0, 0, 0, 0] for each in before] == [3, 7, 11, 15]
        check(server, count=4)
        told = server.statistics()
    assert (told.networks[0].answered, told.networks[0].retried) == (9, 1)
    assert f"left (core 0) {how} at 'a: first'" in server.notes[0]
    assert not any(lost for lost, _ in server.parts.asked)


@pytest.mark.on_request
def test_a_request_that_ends_every_process_is_found_out(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server:
        answer, refused = server.submit("a", given(CRASH)), server.submit("a", given(REFUSE))
        with pytest.raises(RequestFailed, match="ended 3 processes"):
            answer.result(20)
        with pytest.raises(InputError, match="x is refused"):
            refused.result(20)
        check(server)


@pytest.mark.parametrize("device", ["right", pytest.param("left", marks=pytest.mark.on_request)])
def test_without_a_device_it_is_planned_again(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Station, "_slowdown", lambda _station: None)  # however busy the machine is
    with ToyPlanServer(tmp_path) as server:
        server.parts.takes(device, 0.02)
        server.parts.expected_s = 60.0  # nobody is refused for what was only predicted
        answers = [server.submit("a", given(n), deadline_s=30) for n in range(20)]
        (tmp_path / device / STARTS_NOT).touch()
        told = {each.device: each for each in server.statistics().instances}
        os.kill(told[device].pid or 0, signal.SIGKILL)
        for number, answer in enumerate(answers):
            np.testing.assert_array_equal(answer.result(10), wanted(number))
        assert server.parts.asked == [({device}, {})]
        states = {each.device: each.state for each in server.statistics().instances}
        assert states.pop(device) == "lost" and set(states.values()) == {"ready"}
        assert server.notes[-1] == f"Planned again without '{device}'."
        check(server)
        assert server.statistics().networks[0].answered == 40


def test_a_device_that_cannot_be_had_is_no_fault_of_a_request(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server, pytest.MonkeyPatch.context() as patch:
        post = next(s for s in server.crew._stations.values() if s.place[0] == "right")._post
        run, refusals = post.run, [TargetError("no device is free")] * 4

        def run_later(*arguments: Any, **named: Any) -> object:
            if refusals:
                raise refusals.pop()
            return run(*arguments, **named)

        patch.setattr(post, "run", run_later)
        answer = server.submit("a", given(1))
        np.testing.assert_array_equal(answer.result(20), wanted(1))
        assert server.statistics().networks[0].retried == 4
        assert "right (core 1) lost its device" in server.notes[0]


def test_a_process_that_ends_before_a_part_begins_costs_the_request_nothing(
    tmp_path: Path,
) -> None:
    with ToyPlanServer(tmp_path) as server, pytest.MonkeyPatch.context() as patch:
        post = next(s for s in server.crew._stations.values() if s.place[0] == "right")._post
        take, killed = server.crew._flows.take, list[int]()

        def take_as_it_ends(place: Place, patience_s: float) -> tuple[Flow, int] | None:
            found = take(place, patience_s)
            if found is not None and place[0] == "right" and len(killed) < 3:
                killed.append(post.pid or 0)
                os.kill(killed[-1], signal.SIGKILL)
                until(lambda: post.pid is None)
            return found

        patch.setattr(server.crew._flows, "take", take_as_it_ends)
        np.testing.assert_array_equal(server.submit("a", given(1)).result(20), wanted(1))
        told = server.statistics()
        assert len(set(killed)) == 3 and told.networks[0].retried == 0
        assert sum(each.restarts for each in told.instances) == 3


def test_without_any_device_requests_fail(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server:
        for device in ("left", "right"):
            server.parts.takes(device, 0.02)
            (tmp_path / device / STARTS_NOT).touch()
        answers = [server.submit("a", given(n)) for n in range(10)]
        for pid in server.pids():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RequestFailed, match="nothing is left|no instance is left"):
            answers[-1].result(10)
        assert all(isinstance(each.exception(10), (RequestFailed, type(None))) for each in answers)
        with pytest.raises(RequestFailed, match="no instance is left"):
            server.submit("a", given(0))


def test_a_request_that_sets_out_when_nothing_is_left_fails(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server, pytest.MonkeyPatch.context() as patch:
        take, crew, asked = server._queue.take, server.crew, threading.Event()

        def taken_late(*arguments: object) -> object:
            asked.set()
            taken = take(*arguments)  # type: ignore[arg-type]
            if taken is not None:
                crew._give_up(set(crew._way.places), TargetError("all are gone"))
            return taken

        patch.setattr(server._queue, "take", taken_late)
        assert asked.wait(10)
        with pytest.raises(RequestFailed, match="nothing is left"):
            server.submit("a", given(0)).result(10)


def test_a_device_that_is_slow_gets_less(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server:
        server.parts.takes("right", 0.05)

        def seen() -> bool:
            check(server, count=1)
            return any("times as slow" in note for note in server.notes)

        until(seen)
        ((lost, slower),) = server.parts.asked
        assert lost == set() and slower["right"] > 3
        server.crew.spans.clear()
        server.parts.takes("left", 0.05)
        check(server, count=5)
        assert {span.place[0] for span in server.crew.spans} == {"left"}
        for device in ("left", "right"):
            server.parts.takes(device, 0.001)
        server.crew.slow.clock = lambda: time.monotonic() + 11
        until(lambda: server.notes[-1] == "Planned again with 'right' as at the start.")
        server.crew.spans.clear()
        check(server)
        assert {span.place[0] for span in server.crew.spans} == {"left", "right"}
        server.parts.takes("left", 0.04)  # little beside the parts that were used in between
        check(server, count=9)
        until(lambda: server.parts.asked[-1][1].keys() == {"left"})
        assert not any("as fast again" in note for note in server.notes)


def test_what_cannot_be_in_time_is_given_up_between_parts(tmp_path: Path) -> None:
    with ToyPlanServer(tmp_path) as server:
        server.parts.takes("left", 1.5)
        first = server.submit("a", given(0), deadline_s=60)
        late = server.submit("a", given(1), deadline_s=0.5)
        with pytest.raises(DeadlineMissed, match="'a' cannot be answered in time"):
            late.result(10)
        assert not first.done(), "it is told at once"
        server.parts.takes("left", 0.001)
        np.testing.assert_array_equal(first.result(10), wanted(0))
        check(server, count=4)
        told = server.statistics().networks[0]
        parts = {each.device: each.answered for each in server.statistics().instances}
    assert (told.answered, told.missed) == (5, 1)
    assert parts["right"] == WARM_RUNS + 5, "its second part was not computed"
    assert server._queue.over, "a slot was not given back"


def test_closing_and_cancelling(tmp_path: Path) -> None:
    server = ToyPlanServer(tmp_path)
    server.parts.takes("right", 0.1)
    answers = [server.submit("a", given(n)) for n in range(6)]
    assert answers[3].cancel()
    np.testing.assert_array_equal(answers[0].result(10), wanted(0))
    server.close(drain=False)
    with pytest.raises(ServerClosed):
        server.submit("a", given(0))
    assert all(each.done() for each in answers)
    with pytest.raises(CancelledError):
        answers[-1].result()
    assert server._queue.over, "a slot was not given back"


def test_a_place_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    (tmp_path / "right" / STARTS_NOT).touch()
    with pytest.raises(TargetError, match=r"right \(core 1\) does not start"):
        ToyPlanServer(tmp_path)
    with pytest.raises(TargetError, match="no device of the plan computes all"):
        ToyPlanServer(tmp_path, mode="sequential", alone=None)


@pytest.mark.on_request
def test_random_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Whatever is killed when: each request has one answer, its own, or was ended three times."""
    chance, count, stopped = random.Random(7), 150, threading.Event()
    answered: list[int] = []

    def kill(server: ToyPlanServer) -> None:
        while not stopped.wait(chance.uniform(0.1, 0.4)):
            for pid in chance.sample(server.pids(), k=min(1, len(server.pids()))):
                os.kill(pid, signal.SIGKILL)

    with ToyPlanServer(tmp_path) as server:
        for device in ("left", "right"):
            server.parts.takes(device, 0.004)
        killer = threading.Thread(target=kill, args=(server,))
        killer.start()
        answers = []
        for number in range(count):
            answers.append(server.submit("a", given(number), timeout_s=None))
            answers[-1].add_done_callback(lambda _, number=number: answered.append(number))
        found = [each.exception(20) or each.result() for each in answers]
        stopped.set()
        killer.join()
        told = server.statistics().networks[0]
    failed = [each for each in found if isinstance(each, Exception)]
    assert all(isinstance(each, RequestFailed) for each in failed) and len(failed) <= 3
    for number, each in enumerate(found):
        if not isinstance(each, Exception):
            np.testing.assert_array_equal(each, wanted(number))
    assert sorted(answered) == list(range(count))
    assert told.answered + told.failed == count
    assert server._queue.over, "a slot was not given back"
