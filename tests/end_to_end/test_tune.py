"""`search`: levels, tuners, faults, and what its answer holds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from helpers.commands.command_line import rows, run, small_model, start, succeed
from helpers.commands.started_commands import Started
from tilewright.graph.workload import parse_workload
from tilewright.hardware.device import local_placement
from tilewright.measure.kernels import KernelMeasurer
from tilewright.search.tuners.registry import tuner_factory
from tilewright.search.winners import LAST
from tilewright.store import open_store

PHASES = {
    "import", "start", "recall", "build", "run", "model", "search", "finalists", "verify",
    "compile", "compare", "overhead",
}  # fmt: skip
FILES = {"model.so", "weights.params", "manifest.json", "report.html"}


def check_answer(data: dict[str, Any], *, level: str, tuner: str, budget: int) -> None:
    assert (data["level"], data["tuner"]) == (level, tuner)
    spent = data["measurements"] + data["failures"]
    assert 0 < spent <= budget
    check_curve(data["curve"], spent, data["elapsed_s"])
    last = {LAST} if level == "op" else set[str]()
    assert set(data["seconds_by_phase"]) == PHASES | last
    assert all(seconds >= 0 for seconds in data["seconds_by_phase"].values())
    assert sum(data["seconds_by_phase"].values()) == pytest.approx(data["elapsed_s"], rel=1e-3)
    for search in data["searches"]:
        trials = search["trials"]
        assert [trial["number"] for trial in trials] == list(range(1, len(trials) + 1))
        timed = [t["latency_s"] for t in trials if t["latency_s"] is not None]
        assert len(timed) == search["measurements"]
        assert len(trials) == search["measurements"] + search["failures"]
        if timed:
            assert search["best_s"] == pytest.approx(min(timed))
    for task in data["tasks"]:
        assert task["error"] is None or 0 <= task["error"] <= task["error_bound"]


def check_curve(curve: list[dict[str, Any]], spent: int, elapsed_s: float) -> None:
    assert curve
    assert all(set(p) == {"measurements", "elapsed_s", "network_latency_s"} for p in curve)
    for name in ("measurements", "elapsed_s"):
        assert [p[name] for p in curve] == sorted(p[name] for p in curve)
    assert curve[-1]["measurements"] <= spent and curve[-1]["elapsed_s"] <= elapsed_s
    known = [p["network_latency_s"] for p in curve if p["network_latency_s"] is not None]
    assert known == sorted(known, reverse=True) and all(seconds > 0 for seconds in known)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model(tmp_path / "net.onnx")
    return tmp_path


def tune(folder: Path, *words: object, model: str = "net.onnx") -> dict[str, Any]:
    return succeed(folder, "tune", model, "--out", "out", *words)


@pytest.mark.parametrize(
    ("level", "tuner"),
    [
        pytest.param("op", "genetic", marks=pytest.mark.on_request),
        pytest.param("subgraph", "droplet", marks=pytest.mark.slow),
    ],
)
def test_levels_and_tuners(folder: Path, level: str, tuner: str) -> None:
    data = tune(folder, "--level", level, "--tuner", tuner, "--budget", 12)
    check_answer(data, level=level, tuner=tuner, budget=12)
    assert rows(folder) == data["measurements"] + data["failures"]
    assert {path.name for path in (folder / "out").iterdir()} == FILES
    assert {s["task"] for s in data["searches"]} == {t["name"] for t in data["tasks"]}
    fused = {task["key"] for task in data["tasks"]}
    searched = {search["key"] for search in data["searches"]}
    assert searched == fused if level == "subgraph" else not searched & fused
    with open_store(folder / "tilewright.db") as store:
        timed = {measured.workload_key for measured in store.stored_measurements()}
    assert fused <= timed, "a fused kernel of every task was timed, whatever ships"


@pytest.mark.parametrize(
    "alias",
    ["xgb", "xgb-rank", "xgb_knob", "xgb_itervar", "xgb_curve", "xgb_rank_knob", "ga", "random",
     "gridsearch", "xgb-rank-knob", "xgb_rank_itervar", "xgb_rank_curve"],
)  # fmt: skip
def test_autotvms_names_are_known(alias: str) -> None:
    assert callable(tuner_factory(alias))


@pytest.mark.slow
def test_compiled_features_under_autotvms_name(folder: Path) -> None:
    data = tune(folder, "--tuner", "xgb_itervar", "--budget", 20)
    check_answer(data, level="subgraph", tuner="xgb_itervar", budget=20)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tuner", "dropplet"), "droplet"),
        (("--tuner", "xgb_know"), "xgb_knob"),
        (("--level", "subgraf"), "subgraph"),
        (("--budget", "lots"), "--budget 10m"),
        (("--budget", "-3"), "--budget 10m"),
        (("--budget", "1.5"), "--budget 10m"),
        (("--budget", "nan"), "--budget 10m"),
    ],
)
def test_nonsense_writes_nothing(folder: Path, words: tuple[str, str], said: str) -> None:
    done = run(folder, "tune", "net.onnx", *words, "--format", "json")
    assert done.code == 2, done.err
    assert done.out == "" and said in done.err and "Traceback" not in done.err
    assert [path.name for path in folder.iterdir()] == ["net.onnx"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> tuple[Path, dict[str, Any]]:
    """A folder in which a network was tuned with six measurements, and what was said."""
    folder = tmp_path_factory.mktemp("tuned")
    small_model(folder / "net.onnx")
    return folder, tune(folder, "--budget", 6)


@pytest.mark.on_request
@pytest.mark.slow
def test_a_second_tuning_measures_nothing(tuned: tuple[Path, dict[str, Any]]) -> None:
    folder, first = tuned
    again = tune(folder, "--budget", 6)
    assert again["measurements"] == again["failures"] == 0
    settings = [sorted(str(t["settings"]) for t in d["tasks"]) for d in (first, again)]
    assert settings[0] == settings[1]


@pytest.mark.slow
def test_a_larger_budget_goes_on_where_the_first_ended(
    tuned: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tuned[0], tmp_path / "copy"))
    more = tune(folder, "--tuner", "random", "--budget", 10)
    spent = [d["measurements"] + d["failures"] for d in (tuned[1], more)]
    assert sum(spent) == rows(folder) <= 10


def test_a_kernel_is_rebuilt_from_workload_and_candidate_alone(folder: Path) -> None:
    """The seed's case 2: another process, in another order and with no history, makes the very
    kernels that were measured, and the network is built again from what is stored."""
    first, placement = tune(folder, "--budget", 8, "--threads", 1), local_placement(1)
    with open_store(folder / "tilewright.db") as store:
        kernels = [
            (parse_workload(workload.text), outcome)
            for workload in store.workloads()
            for outcome in store.stored_measurements(
                workload_key=workload.key, placement=placement.key
            )
        ]
    random.Random(0).shuffle(kernels)
    with KernelMeasurer(placement, seed=1) as measurer:
        hashes = measurer.current_hashes([(w, o.candidate) for w, o in kernels])
    assert len(kernels) == first["measurements"]
    assert hashes == [outcome.kernel_hash for _, outcome in kernels]


@pytest.mark.slow
def test_killed_in_the_middle_nothing_measured_is_lost(tmp_path: Path) -> None:
    small_model(tmp_path / "net.onnx", filters=(16, 16), extent=16)
    words = ("tune", "net.onnx", "--level", "op", "--tuner", "random", "--out", "out")
    process = start(tmp_path, *words, "--budget", 400)
    acknowledged = wait_for_rows(tmp_path, process, 5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = rows(tmp_path)
    assert kept >= acknowledged
    assert not (tmp_path / "out" / "manifest.json").exists()
    again = succeed(tmp_path, *words, "--budget", kept + 6)
    assert rows(tmp_path) == kept + again["measurements"] + again["failures"]
    assert (tmp_path / "out" / "manifest.json").exists()


def wait_for_rows(folder: Path, process: Started, least: int) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = rows(folder)
        if found >= least:
            return found
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("nothing was measured")


def twins(path: Path) -> Path:
    """Four convolutions; the middle two have equal anchors and layouts, one ends in a relu, the
    other in a sum with what came before."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 50 for _ in range(4)]
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    nodes = []
    for number, source in enumerate(("x", "r0", "r1", "r2")):
        nodes.append(helper.make_node("Conv", [source, f"w{number}"], [f"c{number}"], pads=[1] * 4))
        made = "y" if number == 3 else f"r{number}"
        if number == 2:
            nodes.append(helper.make_node("Add", ["c2", "r0"], [made]))
        else:
            nodes.append(helper.make_node("Relu", [f"c{number}"], [made]))
    kind = [onnx.TensorProto.FLOAT, [1, 16, 12, 12]]
    graph = helper.make_graph(
        nodes, "twins", [helper.make_tensor_value_info("x", *kind)],
        [helper.make_tensor_value_info("y", *kind)], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.slow
def test_an_anchor_that_subgraphs_share(tmp_path: Path) -> None:
    """One search at the operator level, for two subgraphs."""
    twins(tmp_path / "twins.onnx")
    data = tune(tmp_path, "--level", "op", "--budget", 16, model="twins.onnx")
    assert {t["name"] for t in data["tasks"]} == {"Conv_0", "Conv_2", "Conv_4", "Conv_6"}
    searched = {s["task"] for s in data["searches"]}
    assert searched in ({"Conv_0", "Conv_2", "Conv_6"}, {"Conv_0", "Conv_4", "Conv_6"})
    loaded = tilewright.load(tmp_path / "out")
    assert loaded(np.ones((1, 16, 12, 12), np.float32)).shape == (1, 16, 12, 12)
