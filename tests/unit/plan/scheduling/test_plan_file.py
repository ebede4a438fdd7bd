"""Plans as files: read as they were written, and refused where they are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, on_cores, plain_problem, random_problem
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import discard
from tilewright.core.schedules import PLAN_FILE
from tilewright.deploy import planning
from tilewright.deploy.planning import (
    Devices,
    Networks,
    PlanRequest,
    plan_networks,
    plan_problem,
)
from tilewright.deploy.simulating import Otherwise, simulate_plan
from tilewright.models import ModelOptions
from tilewright.plan.network_scheduling import Wanted
from tilewright.plan.planning_data import PlanningRequest
from tilewright.plan.scheduling.plan_file import (
    Plan,
    PlannedNetwork,
    read_plan,
    read_times,
    write_plan,
)
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem_file import write_problem
from tilewright.store import open_store

CHAIN = plain_problem({name: on_cores(20) for name in "abc"}, "a>b b>c", name="chain")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(("sequential", "heft")))
def test_a_plan_is_read_as_it_was_written(seed: int, planner: str) -> None:
    problem = random_problem(seed)
    schedule = schedule_with(planner, problem)
    networks = tuple(
        PlannedNetwork(name=name, model=f"zoo:{name}", options={"batch": 2})
        for name in dict.fromkeys(call.network for call in problem.calls)
    )
    plan = Plan(problem=problem, schedule=schedule, networks=networks)
    path = Path("plan-of-test.json")
    try:
        write_plan(plan, path)
        assert read_plan(path) == plan
    finally:
        path.unlink()


def test_an_unknown_planner_is_told_before_anything_is_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(planning, "source_of", lambda model, *_: asked.append(model))
    networks = Networks(
        models=("zoo:squeezenet1_1",),
        devices=Devices(placements={}),
        predicted=PlanningRequest(ModelOptions(), "default", 1e-2),
        wanted=Wanted(),
    )
    with open_store("memory:") as store, pytest.raises(UsageError, match="Did you mean cpsat"):
        plan_networks(networks, PlanRequest(planner="cpstat"), store, discard)
    assert not asked


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_problem(CHAIN, tmp_path / "chain.json")
    plan_problem(tmp_path / "chain.json", PlanRequest(planner="sequential", out=tmp_path / "plan"))
    return tmp_path / "plan"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file | {"format": "tilewright plan 9"}, "known is 'tilewright plan 1'"),
        (lambda file: file | {"what": 1}, "unknown field"),
        (
            lambda file: file | {"networks": [{"name": "other", "model": "zoo:resnet18"}]},
            "no call is of its network 'other'",
        ),
        (
            lambda file: file | {"schedule": file["schedule"] | {"slots": []}},
            "breaks the problem: call 'a' has 0 slots",
        ),
    ],
)
def test_what_is_no_plan_is_refused(written: Path, change: object, said: str) -> None:
    path = written / PLAN_FILE
    path.write_text(json.dumps(change(json.loads(path.read_text()))))  # type: ignore[operator]
    with pytest.raises(ModelError, match="is no plan") as refused:
        read_plan(written)
    assert said in refused.value.message


def test_a_broken_or_missing_file(written: Path, tmp_path: Path) -> None:
    path = written / PLAN_FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match="is no plan"):
        read_plan(written)
    with pytest.raises(ModelError):
        read_plan(tmp_path / "nowhere")
    (tmp_path / "times.json").write_text('{"a": "soon"}')
    with pytest.raises(ModelError, match="has no times"):
        read_times(tmp_path / "times.json")


def test_other_times(written: Path) -> None:
    planned = simulate_plan(written, Otherwise()).latency_s
    assert planned == pytest.approx(3 * 10 * MICRO)
    slower = simulate_plan(written, Otherwise(slower={"cpu": 1.5}))
    assert slower.latency_s == pytest.approx(1.5 * planned) == pytest.approx(slower.sequential)
    one = simulate_plan(written, Otherwise(times_s={"b": 25 * MICRO}, slower={"cpu": 2.0}))
    assert one.latency_s == pytest.approx((20 + 50 + 20) * MICRO)
    assert one.bound <= one.latency_s
    with pytest.raises(ModelError, match="the plan has no call 'd'"):
        simulate_plan(written, Otherwise(times_s={"d": 1.0}))
    with pytest.raises(ModelError, match="the plan has no device 'cup'.*cpu"):
        simulate_plan(written, Otherwise(slower={"cup": 1.0}))
    with pytest.raises(ModelError, match="latency_s"):
        simulate_plan(written, Otherwise(times_s={"a": -1.0}))


def test_a_trace_and_a_page_of_both(written: Path, tmp_path: Path) -> None:
    simulate_plan(written, Otherwise(slower={"cpu": 2.0}), tmp_path / "slower")
    events = json.loads((tmp_path / "slower" / "trace.json").read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["plan: cpu", "simulated: cpu"]
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == 2 * 3 * 2  # twice three calls on two cores each
    last = {pid: max(e["ts"] + e["dur"] for e in bars if e["pid"] == pid) for pid in (1, 2)}
    assert last == pytest.approx({1: 30.0, 2: 60.0})
    page = (tmp_path / "slower" / "plan.html").read_text()
    assert "Plan of chain" in page and "Memory over time" in page
