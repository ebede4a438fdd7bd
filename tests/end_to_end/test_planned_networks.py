"""Networks that run as plans say: the same results beside each other as one after the other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from helpers.fakes.measuring import measured
from helpers.networks.branches import alone_on_one_core, branches, image
from tilewright.cli.main import main
from tilewright.compiler.execute import LoadedNetwork
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.schedules import PLAN_FILE, RunMode
from tilewright.deploy import plan_parts
from tilewright.deploy.plan_models import loaded_plan
from tilewright.deploy.planned_network import planned_network, planned_ways
from tilewright.deploy.planning import PlanRequest, plan_problem
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import ranked_defaults
from tilewright.models import ModelOptions, loading
from tilewright.plan import sources
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.plan_file import Plan, PlannedKernel, read_plan, write_plan
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem_file import write_problem
from tilewright.plan.scheduling.schedule import Slot
from tilewright.serving import plan_instance as plan_instances
from tilewright.serving.serve import plan_server
from tilewright.serving.served import ServedNetwork
from tilewright.store.known_candidates import choose_plan

T, RELU = 1e-4, "op:relu[shape=1x64x8x8]"


def written(folder: Path, threads: int) -> Plan:
    folder.mkdir(exist_ok=True)
    onnx.save(branches(), folder / "branches.onnx")
    with tilewright.open(db="memory:", threads=threads) as session:
        model = str(folder / "branches.onnx")
        session.plan(model, ["llvm"], planner="sequential", out=folder)
    return read_plan(folder)


@pytest.mark.usefixtures("all_cores")
def test_beside_each_other_they_give_what_they_give_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = alone_on_one_core(written(tmp_path / "plan", threads=2))
    assert {len(slot.cores) for slot in plan.schedule.slots} == {1}
    promised = schedule_with("sequential", plan.problem).objective / plan.schedule.objective
    assert promised > 1.2
    seen: list[LoadedNetwork] = []

    def clock(network: LoadedNetwork, _inputs: object, repeats: int, _warmup: int) -> list[float]:
        """Lanes, which are compiled second, take longer."""
        seen.extend([network] if network not in seen else [])
        return [(1e-3, 1.1e-3)[seen.index(network)]] * repeats

    with tilewright.open(db="memory:") as session:
        with monkeypatch.context() as patched:
            patched.setattr(LoadedNetwork, "time", clock)
            faster = planned_network(plan, session.records)
        assert faster.times_s == {"sequential": 1e-3, "parallel": 1.1e-3}
        assert faster.mode == "sequential", "never slower than one call after the other"
        write_plan(plan, tmp_path / "plan" / PLAN_FILE)
        with plan_server(tmp_path / "plan", session.records, mode="parallel") as server:
            served = server.submit("branches", image()).result()
            (instance,) = server.statistics().instances
            os.kill(instance.pid or 0, signal.SIGKILL)
            again = server.submit("branches", image()).result()
            (restarted,) = server.statistics().instances
        other = planned_network(plan, session.records, mode="parallel")
    assert (other.mode, other.times_s) == ("parallel", {})
    with pytest.raises(UsageError):
        other.run({})
    with pytest.raises(UsageError, match="nothing has run"):
        other.traced()
    assert len(instance.cores) == 2 and restarted.restarts == 1
    for answer in (served, again):
        np.testing.assert_array_equal(answer, other.run(image())["head"])
    for seed in range(2):
        (found,), (wanted,) = (each.run(image(seed)).values() for each in (faster, other))
        assert np.abs(wanted).max() > 0
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    for each in (faster, other):
        planned, ran = (events_of(each.traced(), name) for name in ("plan: llvm", "run: llvm"))
        beside = {"left", "right"} if each.mode == "parallel" else set[str]()
        assert {name: len(found) for name, found in ran.items()} == {
            name: 1 if name in beside else 2 for name in ran
        }, "a call is once on each of its cores"
        assert planned.keys() <= ran.keys() >= {"stem", "left", "right", "head"}
        assert len({ran[name][0]["tid"] for name in beside}) == len(beside)
        begins = {name: min(event["ts"] for event in found) for name, found in ran.items()}
        ends = {name: begins[name] + found[0]["dur"] for name, found in ran.items()}
        assert min(begins.values()) == 0.0 and all(ends[name] > begins[name] for name in ran)
        for before, after in (("stem", "left"), ("stem", "right"), ("left", "head")):
            assert ends[before] <= begins[after]
        in_turn = max(begins["left"], begins["right"]) >= min(ends["left"], ends["right"])
        assert in_turn or each.mode == "parallel"


@pytest.mark.usefixtures("all_cores")
def test_a_plan_for_energy_keeps_the_cores_of_lone_calls(tmp_path: Path) -> None:
    """It computes on the cores of the plan, and no clock is asked: it may be slower on purpose."""
    plan = written(tmp_path, threads=2)
    calls = [
        replace(call, modes=tuple(replace(m, energy_j=1e-3 * m.cores) for m in call.modes))
        for call in plan.problem.calls
    ]
    devices = [replace(each, idle_w=1e-6) for each in plan.problem.devices]
    problem = replace(plan.problem, objective="energy", calls=tuple(calls), devices=tuple(devices))
    plan = replace(plan, problem=problem, schedule=schedule_with("heft", problem))
    one_core = {slot.call for slot in plan.schedule.slots if len(slot.cores) == 1}
    assert {"stem", "head"} <= one_core
    with tilewright.open(db="memory:") as session:
        saving = planned_network(plan, session.records)
        usual = planned_network(plan, session.records, mode="sequential")
    found, wanted = (each.run(image())["head"] for each in (saving, usual))
    assert (saving.mode, saving.times_s, usual.mode) == ("parallel", {}, "sequential")
    assert "Each call had the cores" in saving.choice and "Each call" not in usual.choice
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    ran = events_of(saving.traced(), "run: llvm")
    assert {name: len(ran[name]) for name in one_core & ran.keys()} == dict.fromkeys(one_core, 1)


@pytest.mark.usefixtures("all_cores")
def test_a_server_keeps_the_way_in_which_requests_take_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = alone_on_one_core(written(tmp_path, threads=2))
    write_plan(plan, tmp_path / PLAN_FILE)
    times_s = {"sequential": 2e-3, "parallel": 1e-3}
    with tilewright.open(db="memory:") as session, monkeypatch.context() as patched:

        def timed(_server: object, network: ServedNetwork, repeats: int, _: int) -> list[float]:
            return [times_s[network.name]] * repeats

        patched.setattr(plan_instances, "_timed", timed)
        with plan_server(tmp_path, session.records, mode="auto") as server:
            found = server.submit("branches", image()).result()
            assert not server.has_instances_here, "it was compared already"
            compiled = server.networks["branches"].folder
            assert not (compiled.parent / "sequential").exists(), "the other way is gone"
    assert server.choice == (
        "Computed as planned, in one process; in turn: one call after the other 2 ms, "
        "as planned 1 ms."
    )
    assert found.shape == (1, 8, 16, 16)


def events_of(trace: str, process: str) -> dict[str, list[dict[str, Any]]]:
    """The events of a process of a trace by the names of the calls."""
    events = json.loads(trace)["traceEvents"]
    (number,) = (e["pid"] for e in events if e["ph"] == "M" and e["args"]["name"] == process)
    found: dict[str, list[dict[str, Any]]] = {}
    for event in (e for e in events if e["ph"] == "X" and e["pid"] == number):
        found.setdefault(event["name"], []).append(event)
    return found


@pytest.mark.usefixtures("all_cores")
def test_kernels_that_a_plan_chose_are_those_that_run(tmp_path: Path) -> None:
    """The database knows two kernels of the convolutions beside each other: one that is faster on
    both cores, and another one that is faster on one."""
    onnx.save(branches(), tmp_path / "branches.onnx")
    model = str(tmp_path / "branches.onnx")
    both, one = local_placement(2), local_placement(1)
    network = prepare(model, ModelOptions(), both)
    (left,) = (call for call in network.plan.calls if call.name == "left")
    key, forms = left.workload, left.candidate.forms
    every = [candidate for candidate, _ in ranked_defaults(key, forms, both)]
    wide, narrow = every[:2]
    with tilewright.open(db=tmp_path / "t.db", threads=2) as session:
        session.store.add_workloads([key])
        for place, times in ((both, (50e-6, 90e-6)), (one, (99e-6, 55e-6))):
            where = {"device_class": place.device.class_key, "resources": place.resources}
            for candidate, seconds in zip((wide, narrow), times, strict=True):
                session.store.add([measured(key, candidate, seconds, **where)])
        session.plan(model, settings="best", planner="heft", out=tmp_path / "plan")
        plan = read_plan(tmp_path / "plan")
        slots = {slot.call: slot for slot in plan.schedule.slots}
        (named,) = plan.networks
        for name in ("left", "right"):
            assert len(slots[name].cores) == 1
            assert named.kernels[name].implementation == narrow.implementation
        lanes = session.open_plan(plan, mode="parallel")
        usual = session.open_plan(plan, mode="sequential")
        (found,), (wanted,) = (each.run(image()).values() for each in (lanes, usual))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
        assert (found != wanted).any(), "other kernels round otherwise"
        gone = replace(named, kernels={"left": PlannedKernel("gone", {})})
        with pytest.raises(ModelError, match="kernel of 'left' cannot be compiled here"):
            session.open_plan(replace(plan, networks=(gone,)))

        def kernels(at: Plan, mode: RunMode) -> tuple[list[str], str]:
            ways = planned_ways(at, session.records, mode).plans
            calls = {call.name: call for call in next(iter(ways.values())).calls}
            return list(ways), calls["left"].candidate.implementation

        pair, in_turn = ("left", "right"), ["sequential"]
        alone = laid(plan, {name: replace(slots[name], cores=(0,)) for name in pair})
        for mode in ("auto", "parallel"):
            assert kernels(alone, mode) == (in_turn, wide.implementation), "all cores are its own"
        cores_of = {c.name: [mode.cores for mode in c.modes] for c in plan.problem.calls}
        one = replace(slots["stem"], cores=(0,), mode=cores_of["stem"].index(1))
        missing = replace(named, kernels={**named.kernels, "stem": PlannedKernel("gone", {})})
        lone = replace(laid(plan, {"stem": one}), networks=(missing,))
        assert kernels(lone, "parallel") == (["parallel"], narrow.implementation), "and no stem"
        number = cores_of["left"].index(2)
        on_all = laid(
            plan, {name: replace(slots[name], cores=(0, 1), mode=number) for name in pair}
        )
        for mode in ("auto", "parallel"):
            assert kernels(on_all, mode) == (in_turn, narrow.implementation), "as the plan chose"
        assert kernels(on_all, "sequential") == (in_turn, wide.implementation)


def laid(plan: Plan, slots: Mapping[str, Slot]) -> Plan:
    """The plan with some calls elsewhere."""
    others = [slot for slot in plan.schedule.slots if slot.call not in slots]
    return replace(plan, schedule=replace(plan.schedule, slots=(*others, *slots.values())))


def test_a_plan_of_another_network(tmp_path: Path) -> None:
    plan = written(tmp_path, threads=1)
    with tilewright.open(db="memory:") as session:
        with pytest.raises(UsageError, match="no mode is called 'side'"):
            session.open_plan(tmp_path, mode="side")  # type: ignore[arg-type]
        other = replace(plan.networks[0], model="zoo:mlp")
        with pytest.raises(ModelError, match="zoo:mlp has no call"):
            planned_network(replace(plan, networks=(other,)), session.records)
        wrong = replace(plan.networks[0], options={"size": 3})
        with pytest.raises(ModelError, match="no options of a model"):
            planned_network(replace(plan, networks=(wrong,)), session.records)
        nothing = replace(plan.networks[0], max_error=-1.0)
        with pytest.raises(ModelError, match="no allowed error"):
            planned_network(replace(plan, networks=(nothing,)), session.records)
        twice = replace(plan, networks=plan.networks * 2)
        with pytest.raises(ModelError, match="several networks"):
            planned_network(twice, session.records)
        onnx.save(branches(outputs=9), tmp_path / "branches.onnx")
        with pytest.raises(ModelError, match="'head' is another one"):
            planned_network(plan, session.records)


def test_what_cannot_run_here(tmp_path: Path) -> None:
    with tilewright.open(db="memory:") as session:
        session.plan(RELU, ["cuda -model=H100"], out=tmp_path / "gpu")
        with pytest.raises(TargetError, match="cannot run on this machine"):
            session.open_plan(tmp_path / "gpu")
        session.plan(RELU, ["llvm"], planner="sequential", out=tmp_path / "cpu")
        plan = read_plan(tmp_path / "cpu")
        wide = tuple(replace(device, cores=64) for device in plan.problem.devices)
        wide_plan = replace(plan, problem=replace(plan.problem, devices=wide))
        (device,) = plan.devices
        elsewhere = replace(plan, devices=(replace(device, machine="pi4"),))
        with pytest.raises(TargetError, match="is for a machine pi4"):
            planned_network(elsewhere, session.records)
        with pytest.raises(TargetError, match="is for 64 cores"):
            planned_network(wide_plan, session.records)


def test_a_problem_by_hand_is_no_network(tmp_path: Path) -> None:
    from helpers.scheduling import on_cores, plain_problem

    write_problem(plain_problem({"a": on_cores(1)}), tmp_path / "hand.json")
    plan_problem(tmp_path / "hand.json", PlanRequest(out=tmp_path))
    with tilewright.open(db="memory:") as session, pytest.raises(ModelError, match="by hand"):
        session.open_plan(tmp_path)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = ("--db", "memory:", "--format", "json")

    def data(*words: str) -> dict[str, Any]:
        assert main(words) == 0
        return json.loads(capsys.readouterr().out)["data"]

    run: Callable[..., dict[str, Any]] = data
    for folder in ("made", "run"):
        Path(folder).mkdir()
    monkeypatch.chdir("made")
    onnx.save(relu(), "relu.onnx")
    run("plan", "relu.onnx", "--max-error", "1e-7", "--out", "p", *memory)
    monkeypatch.chdir(tmp_path / "run")
    x = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(1, 64, 8, 8)
    np.save("x.npy", x)
    with monkeypatch.context() as patched:
        patched.setattr("tilewright.session.planning.opened_plan", None)  # it would compile
        assert main(("run", "../made/p", "--input", "inptu=x.npy")) == 2
    assert "no input is called 'inptu'" in capsys.readouterr().err
    allowed: list[float | None] = []
    read: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(sources, "choose_plan", noting(allowed, choose_plan))
        patched.setattr(loading, "load", noting(read, loading.load))
        found = run("run", "../made/p", "--input", "x.npy", "--trace", "t.json", *memory[2:])
    assert len(events_of(Path("t.json").read_text(), "run: llvm")) == 1
    assert found["mode"] == "sequential" and found["times_s"] == {}
    assert len(read) == 1, "the model is read once"
    np.testing.assert_array_equal(np.load(found["outputs"][0]["file"]), np.maximum(x, 0))
    plan = read_plan(Path("../made/p"))
    with tilewright.open(db="memory:") as session, monkeypatch.context() as patched:
        patched.setattr(sources, "choose_plan", noting(allowed, choose_plan))
        loaded = loaded_plan(Path("../made/p"))
        patched.setattr(loading, "load", noting(read, loading.load))
        plan_parts.PlanParts(loaded, session.records, tmp_path)
    assert len(read) == 1
    assert allowed == [1e-7, 1e-7]
    write_plan(plan, Path("../made/p") / PLAN_FILE)
    assert main(("run", "../made/p", "--input", "x.npy", "--target", "cuda")) == 2
    assert main(("run", "nowhere", "--mode", "parallel", "--input", "x.npy")) == 2
    assert "are for plans" in capsys.readouterr().err


def relu() -> onnx.ModelProto:
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 64, 8, 8))]
        for name in ("input", "result")
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["input"], ["result"])], "relu", *ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def noting(given: list[Any], choose: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and the last argument is noted."""

    def chosen(*arguments: Any) -> Any:
        given.append(arguments[-1])
        return choose(*arguments)

    return chosen
