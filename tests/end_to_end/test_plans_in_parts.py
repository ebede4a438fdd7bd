"""Plans over several devices and networks at work: the results are those of ONNX Runtime, whatever
computes them, and whatever fails meanwhile."""

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
from helpers.networks.branches import branches
from helpers.networks.onnx_models import reference
from helpers.networks.planned_networks import spread
from helpers.processes.rpc_processes import Farm
from tilewright.cli.main import main
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.schedules import PLAN_FILE
from tilewright.plan.network_scheduling import DeviceTerms, Wanted
from tilewright.plan.scheduling.plan_file import Plan, read_plan, write_plan
from tilewright.serving.serve import plan_server

MEMORY = ("--db", "memory:", "--format", "json")


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype(np.float32)


def check(found: np.ndarray, of: onnx.ModelProto, seed: int = 0) -> None:
    wanted = reference(of, {"input": image(seed)})["head"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.on_request
@pytest.mark.usefixtures("all_cores")
def test_two_networks_beside_each_other_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    models = {name: branches(8 + n, name, seed=n) for n, name in enumerate(("one", "two"))}
    for name, each in models.items():
        onnx.save(each, f"{name}.onnx")
        np.save(f"{name}.npy", image(len(name)))

    def data(*words: str) -> dict[str, Any]:
        assert main(words) == 0
        return json.loads(capsys.readouterr().out)["data"]

    data("plan", "one.onnx", "two.onnx", "--out", "p", "--threads", "2", *MEMORY)
    inputs = ("--input", "one/input=one.npy", "--input", "two/input=two.npy")
    found = data("run", "p", *inputs, "--mode", "parallel", "--trace", "t.json", *MEMORY[2:])
    assert found["mode"] == "parallel"
    for each in found["outputs"]:
        name, _, tensor = each["name"].partition("/")
        assert tensor == "head"
        check(np.load(each["file"]), models[name], len(name))
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {name.partition(":")[0] for name in named} == {"plan", "run"}
    served = data("serve", "p", "--load", "200ms", "--mode", "sequential", *MEMORY)
    assert all(each["throughput_per_s"] > 0 for each in served["load"]["networks"])
    assert served["choice"] == "Computed one after the other on 'llvm'."
    assert main(("serve", "p", "--instances", "2x1", "--load", "1s", *MEMORY)) == 2
    assert "a plan says itself" in capsys.readouterr().err


@pytest.fixture(scope="module")
def two() -> Iterator[Farm]:
    """Two devices of one core each, behind a tracker."""
    farm = Farm()
    try:
        for key in "ab":
            farm.add(key, threads=1)
        yield farm
    finally:
        farm.stop()


def planned(folder: Path, farm: Farm) -> Plan:
    onnx.save(branches(name="net"), folder / "net.onnx")
    names = ("rpc:a", "rpc:b")
    wanted = Wanted(terms={name: DeviceTerms(link=(1e-5, 1e9)) for name in names})
    with tilewright.open(db="memory:", tracker=farm.address) as session:
        session.plan(str(folder / "net.onnx"), names, wanted=wanted, planner="heft", out=folder)
    plan = spread(
        read_plan(folder), {"stem": "rpc:a", "left": "rpc:a", "right": "rpc:b", "head": "rpc:b"}
    )
    write_plan(plan, folder / PLAN_FILE)
    return plan


@pytest.mark.on_request
def test_a_network_over_two_devices_one_of_which_is_lost(tmp_path: Path, two: Farm) -> None:
    """The same bits on both and on one alone, since all kernels are for one core of one class."""
    planned(tmp_path, two)
    with tilewright.open(db="memory:") as session:
        with plan_server(tmp_path, session.records, mode="parallel") as server:
            before = [server.submit("net", input=image(n)) for n in range(4)]
            for seed, answer in enumerate(before):
                check(answer.result(240), branches(name="net"), seed)
            told = {each.device: each.answered for each in server.statistics().instances}
            assert min(told.values()) > 4
            two.servers[1].kill()
            after = [server.submit("net", input=image(n), timeout_s=None) for n in range(4)]
            for seed, answer in enumerate(after):
                np.testing.assert_array_equal(answer.result(240), before[seed].result())
            states = {each.device: each.state for each in server.statistics().instances}
            assert states == {"rpc:a": "ready", "rpc:b": "lost"}
        with pytest.raises(TargetError, match="knows no device 'b'"):
            session.open_plan(tmp_path)


def test_what_no_plan_in_parts_is(tmp_path: Path) -> None:
    onnx.save(branches(name="net"), tmp_path / "net.onnx")
    names = [str(tmp_path / "net.onnx")] * 2
    with tilewright.open(db="memory:", threads=1) as session:
        session.plan(names, ["llvm"], planner="sequential", out=tmp_path)
        plan = read_plan(tmp_path)

        def refused(error: type[Exception], match: str, **changes: Any) -> None:
            write_plan(replace(plan, **changes), tmp_path / PLAN_FILE)
            with pytest.raises(error, match=match):
                session.open_plan(tmp_path)

        first, second = plan.networks
        refused(
            ModelError, "zoo:mlp has no call", networks=(first, replace(second, model="zoo:mlp"))
        )
        halves = replace(second, options={"precision": "bfloat16"})
        told = "is for float32, and the network is now in bfloat16"
        refused(ModelError, told, networks=(first, halves))
        larger = replace(second, options={"batch": 2})
        refused(ModelError, "'stem' is another one", networks=(first, larger))
        (device,) = plan.devices
        refused(TargetError, "is for a machine pi4", devices=(replace(device, machine="pi4"),))
        wide = tuple(replace(each, cores=64) for each in plan.problem.devices)
        problem = replace(plan.problem, devices=wide)
        refused(TargetError, "is for 64 cores of 'llvm'", problem=problem)
        write_plan(plan, tmp_path / PLAN_FILE)
        with pytest.raises(UsageError, match="is for artifacts"):
            tilewright.serve(tmp_path, instances="2x1")


def test_a_device_that_does_not_answer(tmp_path: Path) -> None:
    relu = "op:relu[shape=1x64x8x8]"
    with tilewright.open(db="memory:", threads=1) as session:
        session.plan([relu, relu], ["llvm"], planner="sequential", out=tmp_path)
        file = tmp_path / PLAN_FILE
        file.write_text(file.read_text().replace('"llvm"', '"rpc:gone"'))
        with pytest.raises(UsageError, match="needs the address of its tracker"):
            session.open_plan(tmp_path)
        file.write_text(file.read_text().replace('"tracker": ""', '"tracker": "127.0.0.1:9"'))
        with pytest.raises(TargetError, match="nothing listens there"):
            session.open_plan(tmp_path)
