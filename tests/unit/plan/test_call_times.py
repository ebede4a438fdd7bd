"""Calls timed in their places: whose time a change of form is, and what plans make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright
from helpers.scheduling import MICRO, mode, on_cores, plain_problem
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.handoffs import ASSUMED, Handoff
from tilewright.core.planning import PlanningCall
from tilewright.core.schedules import ScheduleResult
from tilewright.deploy import planning, timed_calls
from tilewright.hardware.device import local_placement
from tilewright.models import ModelOptions
from tilewright.plan.call_times import CallTimes, TimeInPlace, as_timed, with_readers
from tilewright.plan.lanes import producers
from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.answering import answer
from tilewright.plan.scheduling.plan_file import read_plan
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.report.schedules import gained

BRANCHES = {name: (mode(us=20), mode(cores=2, us=18)) for name in "bc"}
FORKED = plain_problem(
    {"a": on_cores(2), **BRANCHES, "d": on_cores(2)}, "a>b a>c b>d c>d", name="forked"
)
IN_PLACE: CallTimes = {
    1: {name: TimeInPlace.of([s * MICRO for s in (20, 23, 21)]) for name in "abcd"},
    2: {name: TimeInPlace.of([s * MICRO for s in (11, 10, 10)]) for name in "abcd"},
}


def told(problem: SchedulingProblem, handoff: Handoff | None = ASSUMED["lanes"]) -> ScheduleResult:
    return replace(answer(problem, "ios", 1.0).result, handoff=handoff)


def test_times_in_place_change_the_plan_and_say_so() -> None:
    predicted = plain_problem(
        {"a": on_cores(2), **{n: tuple(_guessed(m) for m in BRANCHES[n]) for n in "bc"}}, "a>b a>c"
    )
    promise = told(predicted)
    assert promise.gain is not None and promise.gain > 1.3
    assert promise.gain_low is not None and promise.gain_low < 1.02
    assert "it is not sure that anything is gained" in gained(promise)
    assert "--time-calls" in gained(promise)
    assert "--time-calls" not in gained(replace(promise, handoff=None))
    timed = told(as_timed(FORKED, IN_PLACE))
    assert timed.gain == pytest.approx(1.0) and "nothing to gain" in gained(timed)
    assert {slot.marks["latency"] for slot in timed.slots} == {"measured"}
    assert {slot.cores for slot in timed.slots} == {(0, 1)}


def _guessed(one: Any) -> Any:
    return replace(
        one, source="model", low_s=0.6 * one.latency_s, high_s=1.7 * one.latency_s, kernel="k"
    )


def test_an_interval_of_latency_says_nothing_of_another_objective() -> None:
    sure = told(FORKED)
    assert "By the intervals" in gained(sure)
    assert "By the intervals" not in gained(replace(sure, objective="energy"))


def test_a_predicted_energy_is_of_the_new_time() -> None:
    modes = (
        mode(us=40, energy_j=1.0, energy_is="predicted"),
        mode(cores=2, us=20, energy_j=1.0, energy_is="measured"),
    )
    timed = as_timed(plain_problem({"a": modes}), IN_PLACE)
    assert [each.energy_j for each in timed.calls[0].modes] == [pytest.approx(0.5), 1.0]


def test_calls_to_be_timed_have_the_kernels_of_all_cores() -> None:
    """Those that are in the network, whose calls in lanes keep them."""
    places = placements_of(("llvm",), None, 4)
    request = PlanningRequest(ModelOptions(), "default", 1e-2, fewer_cores=True)
    with tilewright.open(db="memory:") as session:
        free, timed = (
            planning_data("zoo:mlp", places, asked, session.records, lambda _: None)
            for asked in (request, replace(request, timed=True))
        )
    assert any(len(_kernels(call)) > 1 for call in free.calls), "else nothing is tested"
    assert all(len(_kernels(call)) == 1 for call in timed.calls)


def _kernels(call: PlanningCall) -> set[Any]:
    return {(mode.implementation, *mode.settings.items()) for mode in call.modes}


def test_a_sure_gain_is_told_as_one() -> None:
    found = told(FORKED)
    assert found.gain == found.gain_low == found.gain_high and (found.gain or 0) > 1.1
    assert "not sure" not in gained(found)


def test_no_two_calls_in_their_places_are_one_task() -> None:
    both = {c.name: replace(c, task="conv k1" * (c.name in "bc")) for c in FORKED.calls}
    found = as_timed(replace(FORKED, calls=tuple(both.values())), IN_PLACE)
    first, *others = [call.task for call in found.calls if call.name in "bc"]
    assert all(task.startswith("conv k1") and task != first for task in others)
    assert [(m.latency_s, m.low_s, m.high_s) for m in found.calls[1].modes] == [
        pytest.approx((20 * MICRO, 20 * MICRO, 23 * MICRO)),
        pytest.approx((10 * MICRO, 10 * MICRO, 11 * MICRO)),
    ]


class Worker:
    """Stands for a process with the network loaded: calls take longer from round to round."""

    def __init__(self, each_s: float, growing: float = 1.0) -> None:
        self.each_s, self.growing = each_s, growing

    def time_calls(self, _name: str, _inputs: Any, *, repeats: int) -> list[tuple[str, float]]:
        assert repeats > 1
        self.each_s *= self.growing
        return [(symbol, self.each_s) for symbol in self.symbols]

    symbols: tuple[str, ...] = ()


def test_rounds_of_each_number_of_cores_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    network = prepare("zoo:mlp", ModelOptions(), local_placement(1))
    plan = network.plan
    monkeypatch.setattr(Worker, "symbols", tuple(plan.symbol(call) for call in plan.calls))
    workers: Any = {1: Worker(2e-5, growing=1.2), 2: Worker(1e-5)}
    found = timed_calls.in_rounds(network, plan, workers)
    assert set(found[1]) == set(found[2]) == {call.name for call in network.fused.calls}
    changes = len(plan.calls) - len(network.fused.calls)
    assert sum(each.seconds for each in found[2].values()) == pytest.approx(
        1e-5 * (len(network.fused.calls) + changes)
    )
    for each in found[1].values():
        assert each.high_s > 2 * each.seconds
    events: list[Event] = []
    timed_calls.tell_noise(found, events.append)
    (note,) = [event for event in events if isinstance(event, Note)]
    assert note.message.startswith("On 1 core, calls took up to ")


def test_a_change_of_form_is_the_readers() -> None:
    plan = prepare("zoo:mlp", ModelOptions(), local_placement(1)).plan
    places_s = {call.name: 1.0 for call in plan.calls}
    first, *others = [call.name for call in plan.calls]
    found = with_readers(plan, places_s, set(others))
    assert found == {others[0]: 2.0, **dict.fromkeys(others[1:], 1.0)}, f"{first} counts to nobody"


def test_a_change_of_form_that_two_read_is_the_first_ones() -> None:
    plan = prepare("zoo:squeezenet1_1", ModelOptions(), local_placement(1)).plan
    names, before = [call.name for call in plan.calls], producers(plan)
    changed, (first, second) = next(
        (name, readers)
        for name in names
        if len(readers := [other for other in names if name in before[other]]) == 2
    )
    found = with_readers(plan, dict.fromkeys(names, 1.0), {*names} - {changed})
    assert (found[first], found[second]) == (2.0, 1.0)


def test_a_change_of_form_that_only_an_output_reads_is_the_makers() -> None:
    plan = prepare("zoo:mlp", ModelOptions(), local_placement(1)).plan
    *own, last, changed = [call.name for call in plan.calls]
    places_s = dict.fromkeys([*own, last, changed], 1.0)
    assert with_readers(plan, places_s, {*own, last})[last] == 2.0
    assert with_readers(plan, places_s, own)[own[-1]] == 3.0
    assert with_readers(plan, places_s, []) == {}


def test_plan_time_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def times(network: Any, plan: Any, placement: Any, counts: Any, _events: Any) -> CallTimes:
        asked.append((len(plan.calls) > 0, placement.resources.threads, set(counts)))
        names = [call.name for call in network.fused.calls]
        return {n: dict.fromkeys(names, TimeInPlace(1e-4, 1e-4)) for n in counts}

    monkeypatch.setattr(planning, "timed_calls", times)
    with tilewright.open(db="memory:", threads=1) as session:
        found = session.plan("zoo:mlp", time_calls=True, out=tmp_path)
    assert asked == [(True, 1, {1})] and found.latency_s == pytest.approx(3e-4)
    assert {slot.marks["latency"] for slot in found.slots} == {"measured"}
    assert found.handoff == ASSUMED["lanes"]
    assert "2 µs between lanes (assumed" in (tmp_path / "plan.html").read_text()
    kept = read_plan(tmp_path)
    assert all(call.task for call in kept.problem.calls), "run cannot tell the calls"


@pytest.mark.parametrize(
    ("what", "given", "said"),
    [
        (["zoo:mlp", "zoo:mlp"], {}, "one network on this CPU alone"),
        ("zoo:mlp", {"devices": "cuda -model=H100"}, "one network on this CPU alone"),
        ("zoo:mlp", {"devices": "2*llvm"}, "one network on this CPU alone"),
        ("problem.json", {}, "calls of a problem cannot be timed"),
        ("zoo:mlp", {"time_calls": "yes"}, "time_calls"),
    ],
)
def test_what_cannot_be_timed(what: Any, given: dict[str, Any], said: str) -> None:
    wishes: dict[str, Any] = {"time_calls": True, **given}
    with tilewright.open(db="memory:") as session, pytest.raises(UsageError, match=said):
        session.plan(what, **wishes)


def test_cores_that_are_not_here_are_not_timed() -> None:
    with (
        tilewright.open(db="memory:", threads=4096) as session,
        pytest.raises(TargetError, match="cannot use 4096 threads"),
    ):
        session.plan("zoo:mlp", time_calls=True)
