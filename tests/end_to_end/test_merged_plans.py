"""Plans that merge sibling calls, compiled, run and served: the results are ONNX Runtime's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from helpers.networks.modules import images, modules
from helpers.networks.onnx_models import reference
from helpers.networks.planned_networks import predict_equal_times, spread
from helpers.processes.rpc_processes import Farm
from tilewright.cli.main import main
from tilewright.core.errors import ModelError
from tilewright.core.schedules import PLAN_FILE
from tilewright.deploy import planning
from tilewright.plan.call_times import CallTimes, TimeInPlace
from tilewright.plan.network_scheduling import DeviceTerms, Wanted
from tilewright.plan.scheduling.plan_file import Plan, read_plan, write_plan
from tilewright.serving.serve import plan_server

MERGED = {("a.reduce5", "a.reduce3", "a.one"), ("b.reduce5", "b.reduce3", "b.one")}


@pytest.fixture
def equal_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls take as long as each other, so that one is better than two."""

    def times(network: Any, _plan: Any, _on: Any, counts: Any, _events: Any) -> CallTimes:
        names = [call.name for call in network.fused.calls]
        return {n: dict.fromkeys(names, TimeInPlace(2e-4 / n, 2e-4 / n)) for n in counts}

    monkeypatch.setattr(planning, "timed_calls", times)


def merged(
    folder: Path, *, side: int = 8, reduced: int = 16, threads: int = 2, **wishes: Any
) -> Plan:
    folder.mkdir(exist_ok=True)
    onnx.save(modules(side=side, reduced=reduced), folder / "modules.onnx")
    with tilewright.open(db="memory:", threads=threads) as session:
        asked = {"time_calls": True, "merge": True, "seconds": 6, **wishes}
        session.plan(str(folder / "modules.onnx"), ["llvm"], out=folder, **asked)
    return read_plan(folder)


def check(found: np.ndarray, seed: int, tolerance: float = 1e-5) -> None:
    wanted = reference(modules(), images(seed))["head"]
    assert np.abs(wanted).max() > 0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def names_of(plan: Plan) -> set[tuple[str, ...]]:
    """The calls that each merged call of a plan's only network was."""
    (network,) = plan.networks
    return {*network.merges}


@pytest.mark.usefixtures("all_cores", "equal_times")
@pytest.mark.parametrize("planner", ["auto", "ios", "heft"])
def test_merged_calls_run_and_are_served(tmp_path: Path, planner: str) -> None:
    plan = merged(tmp_path, planner=planner)
    assert names_of(plan) == MERGED
    assert "calls instead of 12, since" in plan.schedule.note
    assert {" + ".join(group) for group in plan.networks[0].merges} < plan.problem.numbers.keys()
    with tilewright.open(db="memory:") as session:
        with session.open_plan(tmp_path, mode="parallel") as network:
            for seed in range(2):
                check(network.run(images(seed))["head"], seed)
            ran = {e["name"] for e in json.loads(network.traced())["traceEvents"] if "dur" in e}
            assert {" + ".join(group) for group in plan.networks[0].merges} <= ran
        with session.open_plan(tmp_path) as network:
            assert network.times_s.keys() == {"sequential", "parallel"}
            check(network.run(images(2))["head"], 2)
        with session.open_plan(tmp_path, mode="sequential") as network:
            check(network.run(images(3))["head"], 3)
            ran = {e["name"] for e in json.loads(network.traced())["traceEvents"] if "dur" in e}
            assert "a.one" in ran, "apart, as it was"
        with plan_server(tmp_path, session.records, mode="parallel") as server:
            check(server.submit("modules", images(4)).result(), 4)


@pytest.mark.usefixtures("equal_times")
def test_parts_that_would_be_copied_are_not_merged(tmp_path: Path) -> None:
    """Behind nine channels of 25 pixels no operand of a kernel can begin."""
    assert names_of(merged(tmp_path, side=5, reduced=9, threads=1)) == set()


@pytest.mark.usefixtures("equal_times")
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8-weights"])
def test_in_other_precisions(tmp_path: Path, precision: Any) -> None:
    options = tilewright.ModelOptions(precision=precision)
    plan = merged(tmp_path, threads=1, options=options)
    assert names_of(plan) == MERGED
    with tilewright.open(db="memory:") as session, session.open_plan(tmp_path) as network:
        found = network.run(images())
        check(found["head"], 0, tolerance=0.02)
        assert all(each.right for each in network.checked(images(), found))


@pytest.fixture
def planned(tmp_path: Path, equal_times: None) -> Iterator[Path]:
    merged(tmp_path, threads=1)
    yield tmp_path


def test_it_is_served_in_the_way_that_is_faster(planned: Path) -> None:
    with (
        tilewright.open(db="memory:") as session,
        plan_server(planned, session.records, mode="auto") as server,
    ):
        for seed in range(2):
            check(server.submit("modules", images(seed)).result(240), seed)


def test_a_plan_whose_calls_cannot_be_merged_any_more(planned: Path) -> None:
    plan = read_plan(planned)
    for groups in ((("a.one", "nothing"),), (("stem", "head"),)):
        (network,) = plan.networks
        broken = replace(plan, networks=(replace(network, merges=groups),))
        write_plan(broken, planned / PLAN_FILE)
        with (
            tilewright.open(db="memory:") as session,
            pytest.raises(ModelError, match="cannot be stacked"),
        ):
            session.open_plan(planned)
        np.save(planned / "x.npy", images()["input"])
        assert main(["run", str(planned), "--input", str(planned / "x.npy")]) == 4


def test_a_plan_of_something_else_than_merges(
    planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = planned / PLAN_FILE
    held = json.loads(file.read_text())
    held["networks"][0]["merges"] = "a.one"
    file.write_text(json.dumps(held))
    np.save(planned / "x.npy", images()["input"])
    assert main(["run", str(planned), "--input", str(planned / "x.npy")]) == 4
    assert "merges" in capsys.readouterr().err


@pytest.fixture
def equal_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are predicted to take as long as each other."""
    predict_equal_times(monkeypatch)


@pytest.mark.usefixtures("equal_predictions")
@pytest.mark.parametrize("mode", ["auto", "parallel", "sequential"])
def test_networks_beside_each_other_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """Of two networks, each has its own merged calls; one after the other all are apart."""
    monkeypatch.chdir(tmp_path)
    onnx.save(modules(), "one.onnx")
    onnx.save(modules(side=16), "two.onnx")
    np.save("one.npy", images(5)["input"])
    np.save("two.npy", images(6, side=16)["input"])
    memory = ("--db", "memory:", "--format", "json")
    words = ("--merge", "--threads", "1", "--seconds", "30", "--out", "p", *memory)
    assert main(["plan", "one.onnx", "two.onnx", *words]) == 0
    plan = read_plan(Path("p"))
    assert [len(network.merges) for network in plan.networks] == [2, 2]
    capsys.readouterr()
    inputs = ("--input", "one/input=one.npy", "--input", "two/input=two.npy")
    said = ("--mode", mode, "--out", "out", *memory[2:])
    assert main(["run", "p", *inputs, *said]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert len(found["times_s"]) == (2 if mode == "auto" else 0)
    outputs = found["outputs"]
    assert {each["name"] for each in outputs} == {"one/head", "two/head"}
    for each in outputs:
        name, _, tensor = each["name"].partition("/")
        side = 8 if name == "one" else 16
        wanted = reference(modules(side=side), images(5 if name == "one" else 6, side=side))[tensor]
        found = np.load(each["file"])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.on_request
@pytest.mark.usefixtures("equal_predictions")
def test_parts_of_a_merged_call_are_read_on_another_device(tmp_path: Path) -> None:
    onnx.save(modules(), tmp_path / "modules.onnx")
    names, farm = ("rpc:a", "rpc:b"), Farm()
    try:
        for key in "ab":
            farm.add(key, threads=1)
        wanted = Wanted(terms={name: DeviceTerms(link=(1e-5, 1e9)) for name in names})
        given: dict[str, Any] = {"merge": True, "wanted": wanted, "planner": "heft"}
        with tilewright.open(db="memory:", tracker=farm.address) as session:
            session.plan(str(tmp_path / "modules.onnx"), names, out=tmp_path, **given)
        plan = read_plan(tmp_path)
        assert names_of(plan) == MERGED
        there = {" + ".join(group): "rpc:a" for group in MERGED}
        calls = {call.name: there.get(call.name, "rpc:b") for call in plan.problem.calls}
        write_plan(spread(plan, calls), tmp_path / PLAN_FILE)
        with (
            tilewright.open(db="memory:") as session,
            plan_server(tmp_path, session.records, mode="parallel") as server,
        ):
            for seed in range(3):
                check(server.submit("modules", images(seed)).result(240), seed)
            told = {each.device: each.answered for each in server.statistics().instances}
            assert min(told[name] for name in names) > 0
            farm.servers[1].kill()
            after = server.submit("modules", images(7), timeout_s=None)
            check(after.result(240), 7)
    finally:
        farm.stop()
