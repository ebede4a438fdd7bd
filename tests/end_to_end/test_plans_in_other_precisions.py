"""Plans of networks in other precisions than float32: what they promise, what they compute, and
what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from helpers.networks.branches import alone_on_one_core, branches, image
from helpers.networks.onnx_models import reference
from tilewright.cli.main import main
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.schedules import PLAN_FILE
from tilewright.deploy.planned_network import PlannedNetwork, planned_ways
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.spaces import MAX_ERRORS
from tilewright.models import ModelOptions, contained
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.serving.serve import plan_server

HALVES = ModelOptions(precision="bfloat16")
MEMORY = ("--db", "memory:", "--format", "json")
pytestmark = pytest.mark.skipif(
    not half_lanes(local_placement().target), reason="no products of bfloat16 here"
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(branches(), tmp_path / "branches.onnx")
    return str(tmp_path / "branches.onnx")


def beside_each_other(folder: Path) -> None:
    """A plan in which calls are on one core, beside others where that can be."""
    write_plan(alone_on_one_core(read_plan(folder)), folder / PLAN_FILE)


@pytest.mark.usefixtures("all_cores")
@pytest.mark.parametrize(
    ("precision", "type_of_operands"),
    [
        ("bfloat16", "bfloat16"),
        pytest.param("float16", "float16", marks=pytest.mark.on_request),
        pytest.param("int8", "int8", marks=pytest.mark.on_request),
    ],
)
def test_lanes_give_what_one_call_after_the_other_gives(
    tmp_path: Path,
    model: str,
    precision: str,
    type_of_operands: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    def data(*words: str) -> dict[str, Any]:
        assert main(words) == 0
        return json.loads(capsys.readouterr().out)["data"]

    asked = ("--precision", precision, "--planner", "sequential", "--threads", "2")
    planned = data("plan", model, *asked, "--out", "p", *MEMORY)
    assert planned["precisions"] == {"branches": precision}
    assert precision in Path("p/plan.html").read_text()
    assert json.loads(Path("p/trace.json").read_text())["otherData"]["precisions"]
    (named,) = json.loads(Path("p", PLAN_FILE).read_text())["networks"]
    assert named["precision"] == named["options"]["precision"] == precision
    beside_each_other(Path("p"))
    np.save("x.npy", image()["input"])
    found = data("run", "p", "--input", "x.npy", "--trace", "t.json", "--format", "json")
    assert found["times_s"].keys() == {"sequential", "parallel"} and found["same"] is True
    assert json.loads(Path("t.json").read_text())["otherData"]["precisions"]
    (check,) = found["checks"]
    assert check["right"] and 1e-5 < check["max_rel_error"] <= check["allowed"]
    (written,) = found["outputs"]
    wanted = reference(branches(), image())["head"]
    off = np.abs(np.load(written["file"]) - wanted).max() / np.abs(wanted).max()
    assert off == pytest.approx(check["max_rel_error"], rel=1e-3)
    with tilewright.open(db="memory:") as session:
        ways = planned_ways(read_plan(Path("p")), session.records, "auto")
        types = {
            argument.type.dtype
            for c in ways.network.fused.calls
            for argument in c.workload.arguments
        }
        types |= {f.dtype for c in ways.plans["parallel"].calls for f in c.candidate.forms}
        assert type_of_operands in types
        results = {
            mode: session.open_plan("p", mode=mode).run(image())["head"]
            for mode in ("sequential", "parallel")
        }
        with plan_server(Path("p"), session.records, mode="parallel") as server:
            results["served"] = server.submit("branches", image()).result()
    for each in results.values():
        np.testing.assert_array_equal(each, np.load(written["file"]))

    def fail(*_arguments: Any, **_named: Any) -> None:
        raise ModelError("ONNX Runtime does not run the model")

    monkeypatch.setattr(contained, "outputs_of", fail)
    assert main(("run", "p", "--input", "x.npy", "--mode", "sequential", "--out", "o")) == 0
    assert "nobody knows the error against float32" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(next(Path("o").glob("*.npy"))), results["sequential"])


@pytest.mark.on_request
@pytest.mark.usefixtures("all_cores")
def test_towers_in_parts(tmp_path: Path, model: str) -> None:
    onnx.save(branches(outputs=4), tmp_path / "other.onnx")
    models = [model, str(tmp_path / "other.onnx")]
    with tilewright.open(db="memory:", threads=2) as session:
        told = session.plan(models, options=HALVES, planner="heft", seconds=1, out=tmp_path)
        assert {*told.precisions.values()} == {"bfloat16"}
        assert {len(slot.cores) for slot in told.slots} >= {1}
        inputs = {f"{name}/input": image()["input"] for name in ("branches", "other")}
        for mode in ("sequential", "parallel"):
            with session.open_plan(tmp_path, mode=mode) as run:
                assert run.same is None, "one way alone was compiled"
                outputs = run.run(inputs)
                checks = run.checked(inputs, outputs)
            assert [check.network for check in checks] == ["branches", "other"]
            assert all(check.right and check.max_rel_error > 1e-5 for check in checks)
        with session.open_plan(tmp_path) as run:
            assert run.same is not None and "call after the other" in run.choice


def test_times_and_memory_are_those_of_the_precision(tmp_path: Path, model: str) -> None:
    found = {}
    with tilewright.open(db="memory:", threads=1) as session:
        for options in (ModelOptions(), HALVES):
            session.plan(model, options=options, planner="sequential", out=tmp_path)
            plan, alone = read_plan(tmp_path), session.predict(model, options=options)
            assert alone.network is not None
            assert plan.schedule.latency_s == pytest.approx(alone.network.latency_s, rel=0.2)
            found[options.precision] = {call.name: call for call in plan.problem.calls}
    single, half = found["float32"], found["bfloat16"]
    assert half["left"].output_bytes == single["left"].output_bytes // 2
    assert half["left"].modes[0].weight_bytes < single["left"].modes[0].weight_bytes
    assert half["left"].modes[0].kernel != single["left"].modes[0].kernel


@pytest.mark.usefixtures("all_cores")
def test_an_artifact_is_planned_as_it_was_compiled(tmp_path: Path, model: str) -> None:
    folder = tmp_path / "artifact"
    with tilewright.open(db="memory:", threads=2) as session:
        session.optimize(model, budget=0, options=HALVES, out=folder)
        with pytest.raises(UsageError, match="was compiled in bfloat16"):
            session.plan(folder, options=ModelOptions(precision="float16"))
        told = session.plan(folder, planner="sequential", out=tmp_path / "p")
        assert told.precisions == {"branches": "bfloat16"}
        asked = MAX_ERRORS["float32"]
        session.plan(folder, max_error=asked, planner="sequential", out=tmp_path / "q")
        allowed = [read_plan(tmp_path / each).networks[0].max_error for each in "pq"]
        assert allowed == [MAX_ERRORS["bfloat16"], asked]
    beside_each_other(tmp_path / "p")
    wanted = tilewright.load(folder, threads=2)(image()["input"])
    with tilewright.open(db="memory:") as session:
        network = session.open_plan(tmp_path / "p", mode="parallel")
        assert isinstance(network, PlannedNetwork) and network.mode == "parallel"
        found = network.run(image())
        np.testing.assert_array_equal(found["head"], wanted)
        (check,) = network.checked(image(), found)
        assert check.right and check.precision == "bfloat16"
        session.optimize(model, budget=0, out=folder)
        with pytest.raises(ModelError, match="is for bfloat16, and the network is now in float32"):
            session.open_plan(tmp_path / "p")


def test_what_is_refused(tmp_path: Path, model: str) -> None:
    with tilewright.open(db="memory:", threads=1) as session:
        session.plan(model, options=HALVES, planner="sequential", out=tmp_path)
        plan = read_plan(tmp_path)
        (named,) = plan.networks

        def refused(error: type[Exception], match: str, **changes: Any) -> None:
            with pytest.raises(error, match=match):
                session.open_plan(replace(plan, networks=(replace(named, **changes),)))

        other = {"precision": "float16"}
        refused(ModelError, "is for bfloat16, and the network is now in float16", options=other)
        refused(ModelError, "is for bfloat16, and the network is now in float32", options={})
        refused(ModelError, "is for other types of its tensors", forms={"llvm": "0"})
        with pytest.raises(UsageError, match="nothing has shipped"):
            session.plan(model, options=ModelOptions(precision="auto"))
        with pytest.raises(TargetError, match="has no products of bfloat16"):
            session.plan(model, ["llvm -mcpu=haswell"], options=HALVES)
        (tmp_path / "problem.json").write_text(json.dumps({"format": "none"}))
        with pytest.raises(UsageError, match="precision"):
            session.plan(tmp_path / "problem.json", options=HALVES)
