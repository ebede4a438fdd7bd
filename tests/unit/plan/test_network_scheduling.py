"""Scheduling problems from networks and devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.cli.main import main
from tilewright.core.errors import UsageError
from tilewright.core.events import discard
from tilewright.core.handoffs import ASSUMED
from tilewright.core.planning import PlanningData
from tilewright.core.records import Placement
from tilewright.cost.contention import USUAL_CONTENTION_BYTES_PER_S
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.regions import Region, steps_of
from tilewright.models import ModelOptions, loading
from tilewright.plan.lanes import (
    LaneCalls,
    as_run,
    cores_in,
    in_stages,
    names_in,
    stages_of,
    with_barriers,
)
from tilewright.plan.network_scheduling import (
    DeviceTerms,
    Wanted,
    handoff_of,
    precisions_beside,
    scheduling_problem,
)
from tilewright.plan.planning_data import (
    IN_PLACE,
    PlanningRequest,
    data_of,
    placements_of,
    planning_data,
)
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import Limits, ScheduledCall
from tilewright.plan.scheduling.plan_file import read_plan
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.simulator import simulate
from tilewright.plan.sources import ModelSource
from tilewright.store.known_candidates import SettingsName
from tilewright.store.known_handoffs import keep_handoff

Command = Callable[..., tuple[int, str, str]]
MEMORY = ("--db", "memory:")
H100, SMALL = "cuda -model=H100", "zoo:squeezenet1_1"


@cache
def network(threads: int) -> NetworkPlan:
    return prepare(SMALL, ModelOptions(), placements_of(("llvm",), None, threads)["llvm"]).plan


@cache
def data(*devices: str, threads: int = 2) -> PlanningData:
    request = PlanningRequest(ModelOptions(), "default", 1e-2, fewer_cores=True)
    with tilewright.open(db="memory:") as session:
        places = placements_of(devices, None, threads)
        return planning_data(SMALL, places, request, session.records, lambda _: None)


def problem(*devices: str, wanted: Wanted | None = None, threads: int = 2) -> SchedulingProblem:
    return scheduling_problem([data(*devices, threads=threads)], wanted or Wanted())


def test_a_cpu_alone() -> None:
    found = problem("llvm")
    (device,) = found.devices
    assert (device.cores, device.kind, found.links) == (2, "cpu", ())
    assert device.contention_bytes_per_s == USUAL_CONTENTION_BYTES_PER_S
    (told,) = data("llvm").devices
    measured = replace(data("llvm"), devices=(replace(told, contention_bytes_per_s=4e10),))
    (device,) = scheduling_problem([measured], Wanted()).devices
    assert device.contention_bytes_per_s == 4e10
    for call in found.calls:
        assert [(mode.device, mode.cores) for mode in call.modes] == [("llvm", 1), ("llvm", 2)]
        assert all(0 < m.low_s <= m.latency_s <= m.high_s for m in call.modes)
    assert found.calls[-1].answer and not any(call.answer for call in found.calls[:-1])
    called = {call.name for call in data("llvm", threads=2).calls}
    assert "features.3.concat" in called and "features.3.concat" not in found.numbers


def test_networks_in_two_precisions_share_calls_but_not_times() -> None:
    usual = data("llvm")
    calls = [
        replace(
            call, modes=tuple(replace(mode, latency_s=mode.latency_s / 2) for mode in call.modes)
        )
        for call in usual.calls
    ]
    found = scheduling_problem([usual, replace(usual, calls=tuple(calls)), usual], Wanted())
    count = len(found.calls) // 3
    first, other, again = (found.calls[n * count : (n + 1) * count] for n in range(3))
    assert [call.task for call in first] == [call.task for call in again]
    assert not {call.task for call in first} & {call.task for call in other}
    for call, there in zip(first, other, strict=True):
        assert call.task.split()[0] == there.task.split()[0]


def test_a_device_computes_each_network_in_what_it_has_for_that_one() -> None:
    """Beside a CPU a GPU computes a network in bfloat16 in float32, and one on codes on them."""
    usual = data("llvm", H100)
    cpu, gpu = usual.devices
    halves = replace(usual, precision="bfloat16", devices=(replace(cpu, precision="bfloat16"), gpu))
    codes = tuple(replace(device, precision="int8") for device in usual.devices)
    assert precisions_beside(usual) == {}
    assert precisions_beside(halves) == {H100: "float32"}
    assert precisions_beside(replace(usual, precision="int8", devices=codes)) == {}


@dataclass(frozen=True)
class BestOnGpus(ModelSource):
    """With other settings on a GPU than are asked for, as what was compiled for one has them."""

    def settings(self, asked: SettingsName, placement: Placement) -> SettingsName:
        return "best" if placement.target.kind == "cuda" else asked


def test_a_cpu_beside_a_device_with_settings_of_its_own_has_fewer_cores_too() -> None:
    options, places = ModelOptions(), placements_of(("llvm", H100), None, 2)
    request = PlanningRequest(options, "default", 1e-2, fewer_cores=True)
    source = BestOnGpus(loading.load(SMALL, options), options)
    with tilewright.open(db="memory:") as session:
        found = data_of(source, places, request, session.records, discard)
    for call in found.calls:
        own = {m.cores for m in call.modes if m.device == "llvm" and m.implementation != IN_PLACE}
        assert own in ({1, 2}, set())


def test_what_reads_a_joined_result_waits_for_all_of_it() -> None:
    found = problem("llvm")
    reader = found.numbers["features.4.squeeze"]
    before = {found.calls[b].name: size for b, size in found.before[reader]}
    assert before == {
        name: 4 * 64 * 55 * 55 for name in ("features.3.expand1x1", "features.3.expand3x3")
    }


@pytest.mark.parametrize("device", ["llvm", H100])
def test_one_after_the_other_takes_what_predict_says(device: str) -> None:
    planned = schedule_with("sequential", problem(device)).latency_s
    (told,) = data(device, threads=2).devices
    assert told.network is not None
    assert planned == pytest.approx(told.network.latency_s, rel=0.1)


def test_beside_a_gpu_the_cpu_has_inputs_and_wants_outputs() -> None:
    found = problem("llvm", H100)
    first, last = found.calls[0], found.calls[-1]
    assert (first.name, last.name) == ("input input", "outputs")
    assert [mode.device for mode in first.modes] == [mode.device for mode in last.modes] == ["llvm"]
    assert first.output_bytes == 4 * 3 * 224 * 224 and last.answer
    schedule = schedule_with("heft", found)
    ways = {(way.origin, way.destination) for way in schedule.transfers}
    assert ways == {("llvm", H100), (H100, "llvm")}


def test_blocked_results_cost_more_on_their_way() -> None:
    crossing = {call.name: call.crossing_s for call in problem("llvm", H100).calls}
    assert crossing["features.0"] > 1e-6 and crossing["input input"] == 0.0
    assert all(call.crossing_s == 0.0 for call in problem("llvm").calls)


def test_two_networks_share_the_devices() -> None:
    one = data("llvm", threads=2)
    both = scheduling_problem([one, one], Wanted())
    assert both.name == "squeezenet1_1 and squeezenet1_1 2"
    assert len(both.calls) == 2 * len(problem("llvm").calls)
    assert {call.name.partition("/")[0] for call in both.calls} == {
        "squeezenet1_1",
        "squeezenet1_1 2",
    }
    single = schedule_with("heft", scheduling_problem([one], Wanted())).latency_s
    assert schedule_with("heft", both).latency_s < 2.01 * single


def test_terms_and_limits() -> None:
    terms = {H100: DeviceTerms(idle_w=60.0, price_per_hour=2.0, memory_bytes=10**9, power_w=500.0)}
    found = problem(H100, wanted=Wanted(objective="price", deadline_s=1.0, terms=terms))
    (device,) = found.devices
    assert (device.cores, device.kind, device.idle_w, device.power_w) == (1, "cuda", 60.0, 500.0)
    assert (device.memory_bytes, device.price_per_hour) == (10**9, 2.0)
    assert found.limits == Limits(deadlines_s={"": 1.0}) and found.objective == "price"
    with pytest.raises(UsageError, match="no device is called 'cuda'"):
        problem(H100, wanted=Wanted(terms={"cuda": DeviceTerms()}))
    with pytest.raises(UsageError, match="no objective is called 'speed'"):
        Wanted(objective="speed")  # type: ignore[arg-type]


def test_hand_offs_are_those_of_the_machine_or_assumed() -> None:
    one = data("llvm")
    assert scheduling_problem([one], Wanted()).handoff_s == ASSUMED["lanes"].seconds
    assert scheduling_problem([one, one], Wanted()).handoff_s == ASSUMED["parts"].seconds
    assert problem("llvm", H100).handoff_s == ASSUMED["parts"].seconds
    with tilewright.open(db="memory:") as session:
        placement = placements_of(("llvm",), None, 2)["llvm"]
        keep_handoff(session.records, placement, "lanes", [5e-3] * 5)
        request = PlanningRequest(ModelOptions(), "default", 1e-2, fewer_cores=True)
        known = planning_data(SMALL, {"llvm": placement}, request, session.records, lambda _: None)
    slow = scheduling_problem([known], Wanted())
    assert slow.handoff_s == handoff_of([known]).seconds == 5e-3 and handoff_of([known]).day
    beside = {len(s.cores) for s in schedule_with("heft", slow).slots}
    assert beside == {2}, "calls go to other cores, which costs more than it gains"


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(("heft", "threads", "nash", "stages")),
    st.sampled_from((2, 8)),
)
def test_any_schedule_becomes_stages(seed: int, planner: str, cores: int) -> None:
    random = Random(seed)
    usual, predicted = network(cores), problem("llvm", threads=cores)

    def drawn(call: ScheduledCall) -> ScheduledCall:
        alone, factor = random.randint(0, 50) * 1e-6, random.choice((0.5, 0.7, 1.0))
        times = [alone * factor ** log2(mode.cores) for mode in call.modes]
        modes = zip(call.modes, times, strict=True)
        drawn = (replace(m, latency_s=s, low_s=s, high_s=s) for m, s in modes)
        return replace(call, task="", modes=tuple(drawn))

    times = replace(predicted, calls=tuple(map(drawn, predicted.calls)))
    schedule = schedule_with(planner, times, 1.0)
    stages = stages_of(usual, schedule.slots)
    assert sorted(n for stage in stages for n in names_in(stage)) == sorted(
        call.name for call in usual.calls
    )
    staged = in_stages(usual, stages)  # raises for what waits for nothing
    assert [call.name for call in staged.calls] == [n for s in stages for n in names_in(s)]
    cores = {slot.call: slot.cores for slot in schedule.slots}
    for stage in (stage for stage in stages if not isinstance(stage, str)):
        given = [{cores[name] for name in lane.calls} for lane in stage]
        assert all(len(one) == 1 for one in given), "a lane keeps its cores"
        assert [len(one.pop()) for one in map(set, given)] == [lane.cores for lane in stage]
        every = [core for one in given for core in next(iter(one))]
        assert len(every) == len({*every}), "and has them alone"
    in_thought = {
        slot.call: slot for slot in simulate(with_barriers(times, stages), schedule).slots
    }
    ended_s = 0.0
    for stage in stages:
        slots = [in_thought[n] for n in names_in(stage) if n in in_thought]
        assert all(slot.begin_s >= ended_s for slot in slots)
        ended_s = max([ended_s, *(slot.end_s for slot in slots)])
    run = as_run(times, schedule, stages)
    assert list(faults(times, run)) == []
    least_s = 0.0
    for stage in stages:
        every = times.devices[0].cores
        lanes = [LaneCalls([stage], every)] if isinstance(stage, str) else stage
        taken = [[n for n in lane.calls if n in times.numbers] for lane in lanes]
        least_s += max(
            sum(run.slot[name].end_s - run.slot[name].begin_s for name in names) for names in taken
        )
        for lane, names in zip(lanes, taken, strict=True):
            modes = [times.calls[times.numbers[name]].modes for name in names]
            most = [max(m.cores for m in each if m.cores <= lane.cores) for each in modes]
            assert [len(run.slot[name].cores) for name in names] == most
    assert least_s <= run.latency_s + 1e-12
    assert run.latency_s <= least_s + 2 * len(run.slots) * times.handoff_s


@pytest.mark.parametrize("seed", [3, 4])
def test_calls_keep_their_cores_where_that_is_wanted(seed: int) -> None:
    """Whatever is beside them, and with nothing beside them that they could not be beside."""
    random = Random(seed)
    usual, predicted = network(4), problem("llvm", threads=4)

    def drawn(call: ScheduledCall) -> ScheduledCall:
        modes = (replace(m, latency_s=random.choice((1e-4, 2e-4))) for m in call.modes)
        return replace(call, task="", modes=tuple(modes))

    times = replace(predicted, calls=tuple(map(drawn, predicted.calls)))
    slots = schedule_with("heft", times, 1.0).slots
    stages = stages_of(usual, slots, keep=True)
    has, planned = cores_in(stages, 4), {slot.call: len(slot.cores) for slot in slots}
    assert 1 in planned.values()
    assert {name: has[name] for name in planned} == planned
    lent = cores_in(stages_of(usual, slots), 4)
    assert any(lent[name] > cores for name, cores in planned.items()), "else nothing is tested"
    staged = in_stages(usual, stages)
    assert {call.name for call in staged.calls} == {call.name for call in usual.calls}
    regions = [step for step in steps_of(staged) if isinstance(step, Region)]
    wide = [stage for stage in stages if not isinstance(stage, str) and len(stage) > 1]
    beside = [{c.name for lane in each.lanes for c in lane} for each in regions]
    for stage in wide:
        assert any({*names_in(stage)} <= each for each in beside), "a stage was torn"


def test_a_plan_says_what_its_stages_take(tmp_path: Path) -> None:
    with tilewright.open(db="memory:", threads=2) as session:
        told = {
            planner: session.plan(SMALL, ["llvm"], planner=planner, out=tmp_path / planner)
            for planner in ("auto", "ios", "stages", "sequential")
        }
    for planner, result in told.items():
        plan = read_plan(tmp_path / planner)
        assert plan.schedule.objective == result.value
        staged = as_run(plan.problem, plan.schedule, stages_of(network(2), plan.schedule.slots))
        assert staged.objective == pytest.approx(result.value)
    assert told["auto"].value == min(result.value for result in told.values())
    assert told["auto"].bound <= told["auto"].value


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run one command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def test_planned_kept_and_simulated(command: Command, tmp_path: Path) -> None:
    asked = (SMALL, "--devices", "llvm", "--devices", H100, "--price", f"{H100}=2.5")
    code, out, err = command("plan", *asked, "--planner", "heft", "--out", "plan", *MEMORY)
    assert code == 0, err
    assert "Transfers" in out and "nobody knows the idle_w" in out
    folder = tmp_path / "plan"
    names = {"plan.json", "schedule.json", "trace.json", "plan.html"}
    assert {path.name for path in folder.iterdir()} == names
    (network,) = json.loads((folder / "schedule.json").read_text())["networks"]
    assert (network["model"], network["name"]) == (SMALL, "squeezenet1_1")
    code, out, err = command("simulate", "plan", "--slower", f"{H100}=2", "--format", "json")
    assert code == 0, err
    slower = json.loads(out)["data"]["latency_s"]
    planned = json.loads((folder / "plan.json").read_text())["data"]["latency_s"]
    assert planned < slower < 2.01 * planned


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--deadline", "soon"), "--deadline 'soon' is no time"),
        (("--price", "llvm"), "--price 'llvm' is no DEVICE=NUMBER"),
        (("--price", "llvm=1", "--price", "llvm=2"), "--price names 'llvm' twice"),
        (("--max-memory", "llvm=much"), "--max-memory 'llvm=much' is no DEVICE=NUMBER"),
        (("--devices", "llvm", "--devices", "llvm"), "'llvm' is named twice"),
        (("--table", "npu.json"), "--table 'npu.json' is no NAME=FILE"),
        (("--table", "npu="), "--table 'npu=' is no NAME=FILE"),
    ],
)
def test_flags_that_say_nothing(command: Command, flags: Any, said: str) -> None:
    code, _, err = command("plan", SMALL, *flags, *MEMORY)
    assert code == 2 and said in err
