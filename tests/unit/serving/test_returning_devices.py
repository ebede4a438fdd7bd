"""Devices that a served plan lost: they return when they compute again, unless it gave up."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.fakes.toy_plan import LEFT, RIGHT, ToyPlanServer, check, given, until, wanted
from helpers.fakes.toy_serving_worker import (
    CRASH,
    FAULT,
    REFUSE,
    STARTS_NOT,
)
from tilewright.core.errors import TargetError
from tilewright.graph.parts import Place
from tilewright.serving.doubted_devices import DoubtedDevices
from tilewright.serving.flows import LoadedWay
from tilewright.serving.plan_crew import PlanCrew
from tilewright.serving.slow_devices import SlowDevices


def test_after_giving_up_no_place_is_started_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the one that is lost, nor the other one, which could still compute its parts."""

    def left(*_lost: object) -> None:
        raise TargetError("no device that is left computes the call 'conv'")

    with ToyPlanServer(tmp_path) as server:
        monkeypatch.setattr(server.parts, "left", left)
        stations = list(server.crew._stations.values())
        (tmp_path / "right" / STARTS_NOT).touch()
        pids = {each.device: each.pid for each in server.statistics().instances}
        os.kill(pids["right"] or 0, signal.SIGKILL)
        until(lambda: server.notes[-1:] == ["The server gives up: no instance starts any more."])
        (tmp_path / "right" / STARTS_NOT).unlink()
        for station in stations:
            station.join()
        assert server.pids() == [] and not server.is_ready
        assert {each.state for each in server.statistics().instances} <= {"lost", "closed"}


def _overlooked(_crew: PlanCrew, _place: Place, _factor: float) -> None:
    """Nothing is slow, however busy the machine is."""


def test_a_device_that_was_lost_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed and unable to start, then able to: requests go through it again, none is lost."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    with ToyPlanServer(tmp_path) as server:

        def states() -> set[str]:
            return {each.state for each in server.statistics().instances if each.device == "right"}

        for _ in range(2):
            answers = [server.submit("a", given(n)) for n in range(8)]
            (tmp_path / "right" / STARTS_NOT).touch()
            pids = {each.device: each.pid for each in server.statistics().instances}
            os.kill(pids["right"] or 0, signal.SIGKILL)
            for number, answer in enumerate(answers):
                np.testing.assert_array_equal(answer.result(20), wanted(number))
            until(lambda: server.notes[-1:] == ["Planned again without 'right'."])
            assert states() == {"lost"}
            check(server, count=3)
            (tmp_path / "right" / STARTS_NOT).unlink()
            until(lambda: server.notes[-1:] == ["Planned again with 'right' as at the start."])
            assert states() == {"ready"}
            server.crew.spans.clear()
            check(server)
            assert {span.place[0] for span in server.crew.spans} == {"left", "right"}
        told = server.statistics().networks[0]
    assert (told.answered, told.failed) == (2 * (8 + 3 + 20), 0)
    assert server.parts.asked == [({"right"}, {})], "the plan that it began with was at hand"
    assert server._queue.over, "a slot was not given back"


def test_a_device_that_starts_and_computes_nothing_stays_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashes at its first part: on trial, so that no request is there; and again later."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    with ToyPlanServer(tmp_path) as server:
        (tmp_path / "right" / STARTS_NOT).touch()
        pids = {each.device: each.pid for each in server.statistics().instances}
        os.kill(pids["right"] or 0, signal.SIGKILL)
        until(lambda: server.notes[-1:] == ["Planned again without 'right'."])
        (tmp_path / "right" / FAULT).write_text(str(CRASH))
        (tmp_path / "right" / STARTS_NOT).unlink()
        tries: list[str] = []

        def tried() -> bool:
            check(server, count=2)
            tries[:] = [note for note in server.notes if "Still planned without 'right'" in note]
            return len(tries) >= 3

        until(tried)
        (tmp_path / "right" / FAULT).unlink()
        until(lambda: server.notes[-1:] == ["Planned again with 'right' as at the start."])
        check(server)
        told = server.statistics().networks[0]
    assert (told.failed, told.retried) == (0, 0)
    assert sum("Planned again without" in note for note in server.notes) == 1


def test_a_device_that_fails_its_trial_and_is_not_lost_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its network refuses what it is given, and its process lives."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    with ToyPlanServer(tmp_path) as server:
        service = server.crew._service
        brief = replace(service.supervision, longest_pause_s=0.2)
        server.crew._service = replace(service, supervision=brief)
        (tmp_path / "right" / STARTS_NOT).touch()
        pids = {each.device: each.pid for each in server.statistics().instances}
        os.kill(pids["right"] or 0, signal.SIGKILL)
        until(lambda: server.notes[-1:] == ["Planned again without 'right'."])
        (tmp_path / "right" / FAULT).write_text(str(REFUSE))
        (tmp_path / "right" / STARTS_NOT).unlink()
        until(lambda: server.notes[-1].startswith("Still planned without 'right'"))
        check(server, count=3)
        (tmp_path / "right" / FAULT).unlink()
        until(lambda: server.notes[-1] == "Planned again with 'right' as at the start.")
        check(server)
        assert server.statistics().networks[0].failed == 0


def test_what_happens_beside_a_trial_that_fails_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the device, unless nothing else is left: then it is tried at once."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    with ToyPlanServer(tmp_path) as server:
        crew, over, found = server.crew, ["left"], [False]
        patient = replace(crew._service.supervision, longest_pause_s=1000.0)
        crew._service = replace(crew._service, supervision=patient)
        crew.lost(RIGHT)
        until(lambda: server.notes[-1:] == ["Planned again without 'right'."])

        def over_with_the_trial(_slow: SlowDevices) -> list[str]:
            return [over.pop()] if over and RIGHT not in crew._lost else []

        monkeypatch.setattr(SlowDevices, "tried_again", over_with_the_trial)
        monkeypatch.setattr(crew, "_answers", lambda *_: found[-1])
        crew.found(RIGHT)
        told = "Planned again without 'right', with 'left' as at the start."
        until(lambda: server.notes[-1] == told)
        found.append(True)
        crew.lost(LEFT)
        told = "Planned again without 'left', with 'right' as at the start."
        until(lambda: server.notes[-1] == told)
        check(server)


def test_a_trial_without_its_device_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lost before the request set out, so that nobody tells it."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    with ToyPlanServer(tmp_path) as server:
        server.crew._lost.add(RIGHT)
        with pytest.raises(TargetError, match="was lost before"):
            server.crew._run_once(server.crew._way, ["a"], on_trial=True)
        server.crew._lost.clear()
        check(server, count=3)


def test_a_device_whose_parts_cannot_be_loaded_is_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else changes meanwhile, and each wait is twice as long as the one before."""
    monkeypatch.setattr(PlanCrew, "slower", _overlooked)
    waits_s: list[float] = []
    note = DoubtedDevices.note

    def noted(doubted: DoubtedDevices, devices: Iterable[str], first_s: float) -> None:
        note(doubted, devices, first_s)
        waits_s.extend(doubted._pauses_s.values())

    monkeypatch.setattr(DoubtedDevices, "note", noted)
    with ToyPlanServer(tmp_path) as server:
        crew, faults = server.crew, ["one", "two", "three"]
        brief = replace(crew._service.supervision, longest_pause_s=0.05)
        crew._service = replace(crew._service, supervision=brief)
        crew.lost(RIGHT)
        until(lambda: server.notes[-1:] == ["Planned again without 'right'."])
        around = crew._way_around

        def fails(lost: Collection[str], slower: Mapping[str, float]) -> LoadedWay:
            if not lost and faults:
                raise TargetError(f"the part is refused: {faults.pop(0)}")
            return around(lost, slower)

        monkeypatch.setattr(crew, "_way_around", fails)
        crew.found(RIGHT)
        until(lambda: server.notes[-1] == "Planned again with 'right' as at the start.")
        check(server)
        assert server.statistics().networks[0].failed == 0
    told = [note for note in server.notes if note.startswith("Still planned without 'right'")]
    assert [each.split(": ")[-1] for each in told] == ["one.", "two.", "three."]
    assert waits_s == [0.05, 0.1, 0.2]
