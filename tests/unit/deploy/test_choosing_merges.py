"""Which siblings a plan merges: those that gain, and whose parts need no copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import onnx
import pytest

import tilewright
from helpers.networks.modules import modules
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.planning import PlanningData, PlanningMode
from tilewright.core.predictions import Source
from tilewright.core.schedules import ScheduleResult
from tilewright.deploy import merging as merging_of_plans
from tilewright.deploy import planning
from tilewright.deploy.plan_models import ArtifactSource, merging
from tilewright.deploy.plan_parts import PlanParts
from tilewright.plan.network_scheduling import Wanted
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.plan_file import Plan, read_plan
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.sureness import IN_PLACE, PREDICTED
from tilewright.plan.sources import NetworkSource

JOINED = "b.reduce5 + b.reduce3 + b.one"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[PlanningData]:
    """What was told of networks, in which a merged call takes 2.5 times as long as each other one,
    but for the first module's, which takes four times as long."""
    found, predicted = list[PlanningData](), planning.data_of

    def foretold(source: NetworkSource, *given: Any) -> PlanningData:
        data = predicted(source, *given)
        calls = tuple(
            replace(call, modes=tuple(as_long(call.name, mode) for mode in call.modes))
            for call in data.calls
        )
        found.append(replace(data, calls=calls))
        return found[-1]

    def as_long(name: str, mode: PlanningMode) -> PlanningMode:
        seconds = 1e-4 / mode.cores if mode.forms else 0.0
        if " + " in name:
            seconds *= 4.0 if name.startswith("a.") else 2.5
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)

    monkeypatch.setattr(planning, "data_of", foretold)
    return found


def told(folder: Path, what: Sequence[str] | str = "", **wishes: Any) -> ScheduleResult:
    onnx.save(modules(), folder / "modules.onnx")
    with tilewright.open(db="memory:", threads=2) as session:
        return session.plan(what or str(folder / "modules.onnx"), out=folder, **wishes)


def planned(folder: Path, what: Sequence[str] | str = "", **wishes: Any) -> Plan:
    told(folder, what, **wishes)
    return read_plan(folder)


@pytest.mark.parametrize("robust", [False, True])
def test_what_takes_longer_than_its_parts_stays_apart(
    tmp_path: Path, seen: list[PlanningData], robust: bool
) -> None:
    plan = planned(tmp_path, merge=True, robust=robust)
    assert plan.networks[0].merges == (tuple(JOINED.split(" + ")),)
    assert "10 calls instead of 12, since " + JOINED in plan.schedule.note
    assert JOINED in plan.problem.numbers and "a.one" in plan.problem.numbers
    assert not any(": " in name for name in plan.problem.numbers), "parts are views"
    assert plan.problem.merges == ()
    usual, every, inner, last = seen
    assert [len(data.calls) for data in seen] == [14, 16, 16, 15]
    assert [len(data.devices) for data in (usual, every, inner, last)] == [1] * 4


def _longer(monkeypatch: pytest.MonkeyPatch, spread: float, source: Source = "model") -> None:
    """Times are from where `source` says, and merged calls may take `spread` times as long."""
    predicted = planning.scheduling_problem

    def unsure(*given: Any) -> Any:
        problem = predicted(*given)
        calls = (
            replace(c, modes=tuple(wider(m, spread if " + " in c.name else 1.0) for m in c.modes))
            for c in problem.calls
        )
        return replace(problem, calls=tuple(calls))

    def wider(mode: Mode, spread: float) -> Mode:
        return replace(mode, source=source, high_s=mode.latency_s * spread)

    monkeypatch.setattr(planning, "scheduling_problem", unsure)


def test_what_merging_promises_is_told_with_its_interval(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve calls take as long as 11.5: by predicted times that is not sure."""
    _longer(monkeypatch, 1.5)
    result = told(tmp_path, merge=True, planner="sequential")
    promise = result.merging
    assert promise is not None and not promise.sure
    assert promise.gain == pytest.approx(12 / 11.5) and promise.gain_high == promise.gain
    assert promise.gain_low == pytest.approx(12 / (11.5 + 1.25))
    said = f"merging promises {promise.gain:.2f}× by predicted times, {promise.gain_low:.2f}× to "
    assert said in promise.doubt and f"up to {PREDICTED:.2f}× was promised" in promise.doubt
    assert JOINED in result.note and f"not sure: {said}" in str(result)


def test_a_gain_by_merging_that_intervals_leave_is_sure(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch
) -> None:
    _longer(monkeypatch, 1.0)
    result = told(tmp_path, merge=True, planner="sequential")
    assert result.merging is not None and result.merging.sure
    assert "sure: merging promises 1.04×; by the intervals of its times 1.04× to 1.04×" in str(
        result
    )


def test_of_times_that_are_exact_a_gain_by_merging_is_sure_above_what_promises_were(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch
) -> None:
    _longer(monkeypatch, 1.0, "exact")
    result = told(tmp_path, merge=True, planner="sequential")
    assert result.merging is not None and result.merging.gain == pytest.approx(12 / 11.5)
    assert f"such promises were up to {IN_PLACE:.2f} times what runs gave" in result.merging.doubt


def test_where_something_else_is_to_be_least_no_gain_in_latency_is_told(
    tmp_path: Path, seen: list[PlanningData]
) -> None:
    result = told(tmp_path, merge=True, wanted=Wanted(objective="throughput"))
    assert result.merging is None and JOINED in result.note


def test_in_parts_one_call_after_the_other_calls_are_apart(
    tmp_path: Path, seen: list[PlanningData]
) -> None:
    class Uncompiled(PlanParts):
        def compile(self, placement: Any, parts: Any) -> None:
            pass

    file = str(tmp_path / "modules.onnx")
    plan = planned(tmp_path, [file, "zoo:mlp"], merge=True, planner="sequential", seconds=30)
    with tilewright.open(db="memory:") as session:
        parts = Uncompiled(plan, session.records, tmp_path)
        ways = parts.way(plan.schedule), parts.alone("llvm")
    as_planned, alone = (
        [call for part in way.parts["modules"] for call in part.calls] for way in ways
    )
    assert JOINED in as_planned and JOINED not in alone
    assert set(JOINED.split(" + ")) <= {*alone} and len(alone) == len(as_planned) + 2
    expected = [sum(part.expected_s for part in way.parts["modules"]) for way in ways]
    assert expected[0] == pytest.approx(expected[1]), "a merged call counts once"


def test_nothing_is_merged_unasked(tmp_path: Path, seen: list[PlanningData]) -> None:
    assert planned(tmp_path).networks[0].merges == () and len(seen) == 1


def test_without_siblings_nothing_else_is_looked_at(
    tmp_path: Path, seen: list[PlanningData]
) -> None:
    plan = planned(tmp_path, "zoo:mlp", merge=True)
    assert plan.networks[0].merges == () and len(seen) == 1


def test_of_two_networks_each_has_its_own(tmp_path: Path, seen: list[PlanningData]) -> None:
    file = str(tmp_path / "modules.onnx")
    plan = planned(tmp_path, [file, "zoo:mlp"], merge=True, seconds=30)
    assert [network.merges for network in plan.networks] == [(tuple(JOINED.split(" + ")),), ()]
    assert f"modules/{JOINED}" in plan.problem.numbers and len(seen) == 8


def test_a_plan_with_merges_that_is_no_faster_is_not_kept(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner that was asked decides at the end."""
    answered = planning._answered

    def slower(problem: Any, *given: Any) -> Any:
        found = answered(problem, *given)
        if JOINED in problem.numbers:
            return replace(found, schedule=replace(found.schedule, objective=1.0))
        return found

    monkeypatch.setattr(planning, "_answered", slower)
    result = told(tmp_path, merge=True)
    plan = read_plan(tmp_path)
    assert len(seen) == 4 and plan.networks[0].merges == ()
    assert "since" not in plan.schedule.note and JOINED not in plan.problem.numbers
    assert f"nothing is merged: with {JOINED} it is " in result.note
    assert result.merging is not None


@pytest.mark.parametrize("without", [[True], [False], [True, False]])
def test_where_a_planner_finds_nothing(
    tmp_path: Path,
    seen: list[PlanningData],
    monkeypatch: pytest.MonkeyPatch,
    without: list[bool],
) -> None:
    """With merges, without, or either way: the other way is kept, if there is one."""
    answered = planning._answered

    def stuck(problem: Any, *given: Any) -> Any:
        if (JOINED in problem.numbers) in without:
            raise NothingFound("none with that limit")
        return answered(problem, *given)

    monkeypatch.setattr(planning, "_answered", stuck)
    if len(without) == 2:
        with pytest.raises(NothingFound, match="none with that limit"):
            planned(tmp_path, merge=True)
        return
    plan = planned(tmp_path, merge=True)
    assert bool(plan.networks[0].merges) != without[0]
    assert ("nothing was found without" in plan.schedule.note) != without[0]


@pytest.mark.parametrize("number", [1, 3])
def test_of_merged_calls_of_which_not_enough_is_known_none_is_kept(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Where energy counts, say, and nobody knows that of a merged call."""
    problem_of, told = planning.scheduling_problem, list[bool]()

    def unknown(*given: Any) -> Any:
        told.append(True)
        if len(told) > number:
            raise ModelError("nobody knows")
        return problem_of(*given)

    monkeypatch.setattr(planning, "scheduling_problem", unknown)
    plan = planned(tmp_path, merge=True)
    assert plan.networks[0].merges == () and len(seen) == len(told) > number


@pytest.mark.parametrize("robust", [False, True])
def test_robust_plans_are_compared_by_upper_ends(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch, robust: bool
) -> None:
    """A merged call that is faster as expected, and slower by the end of its interval."""
    monkeypatch.setattr(merging_of_plans, "_may_gain", lambda *_: True)
    chosen = merging_of_plans.decided
    monkeypatch.setattr(merging_of_plans, "decided", lambda p, _, s: chosen(p, lambda e: e, s))
    problem_of = planning.scheduling_problem

    def unsure(*given: Any) -> Any:
        problem = problem_of(*given)
        calls = (
            replace(c, modes=tuple(replace(m, high_s=9 * m.high_s) for m in c.modes))
            if " + " in c.name
            else c
            for c in problem.calls
        )
        return replace(problem, calls=tuple(calls))

    monkeypatch.setattr(planning, "scheduling_problem", unsure)
    plan = planned(tmp_path, merge=True, robust=robust)
    assert (JOINED in plan.problem.numbers) != robust


def test_where_nothing_is_merged_planning_has_the_rest_of_the_time(
    tmp_path: Path, seen: list[PlanningData], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, had_s = planning._answered, list[float]()

    def timed(problem: Any, named: Any, request: Any, *given: Any) -> Any:
        had_s.append(request.limit_s)
        return answered(problem, named, request, *given)

    monkeypatch.setattr(planning, "_answered", timed)
    planned(tmp_path, "zoo:mlp", merge=True, seconds=9)
    assert had_s == [6.0]
    planned(tmp_path, merge=True, seconds=9)
    assert had_s == [6.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("what", "given", "said"),
    [
        ("zoo:mlp", {"tables": {"card": "table.csv"}}, "no table knows"),
        ("problem.json", {}, "merged unless its file says so"),
        ("zoo:mlp", {"merge": "yes"}, "merge"),
    ],
)
def test_where_nothing_can_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, given: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("call,latency_s\n*,1e-3\n")
    Path("table.json").write_text("{}")
    monkeypatch.setattr(planning, "read_table", lambda _path: None)
    wishes: dict[str, Any] = {"merge": True, **given}
    with tilewright.open(db="memory:") as session, pytest.raises(UsageError, match=said):
        session.plan(what, **wishes)


def test_calls_of_an_artifact_stay_as_they_were_compiled() -> None:
    source = ArtifactSource(cast(Any, None))
    assert merging(source, ()) is source
    with pytest.raises(ModelError, match="of an artifact cannot be merged"):
        merging(source, (("a", "b"),))
