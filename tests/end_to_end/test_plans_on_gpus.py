"""Plans with calls on a CPU and on a GPU, which is simulated: the results are those of ONNX
Runtime, whatever computes them, and whatever becomes of the GPU meanwhile.

    stem  llvm    left  cuda    beside  llvm    right  cuda, reads the three of them    y  llvm
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from helpers.commands.command_line import answer, call
from helpers.networks.onnx_models import model_of, normal, reference
from helpers.networks.planned_networks import placed_plan, spread
from helpers.processes import simulated_gpu_parts
from helpers.processes.simulated_card import simulated_card
from tilewright.core.errors import TargetError
from tilewright.core.events import Note
from tilewright.core.schedules import PLAN_FILE
from tilewright.hardware.device import local_placement
from tilewright.measure.targeting import placement_of
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.serving import plan_serving
from tilewright.serving.instance import Supervision
from tilewright.serving.serve import plan_server
from tilewright.testing.cuda_execution import compiler

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
BESIDE = 5
WIDTHS = {"stem": (24, 6), "left": (6, 3), "beside": (6, BESIDE), "right": (6 + 3 + BESIDE, 4)}
ALL = ["stem", "left", "beside"]
CALLS = {
    **{"stem": ["x"], "left": ["stem"], "beside": ["stem"]},
    **{"all": ALL, "right": ["all"], "y": ["right"]},
}
MODEL = model_of(
    [
        *(helper.make_node("Gemm", [*CALLS[n], f"{n}.w"], [n], n) for n in ALL),
        helper.make_node("Concat", ALL, ["all"], "all", axis=1),
        helper.make_node("Gemm", ["all", "right.w"], ["right"], "right"),
        helper.make_node("Softmax", ["right"], ["y"], "y", axis=1),
    ],
    {"x": (1, 24)},
    constants={f"{n}.w": 0.2 * normal(*shape, seed=len(n)) for n, shape in WIDTHS.items()},
)
WHERE = {"all": "cuda", "left": "cuda", "right": "cuda"} | dict.fromkeys(
    ("stem", "beside", "y"), "llvm"
)


def given(seed: int = 0) -> np.ndarray:
    return normal(1, 24, seed=seed)


def check(found: Any, seed: int = 0) -> None:
    np.testing.assert_allclose(found, reference(MODEL, {"x": given(seed)})["y"], rtol=1e-4)


def until(found: Callable[[], bool]) -> None:
    """Wait for something that comes true, at most for two minutes."""
    end_s = time.monotonic() + 120
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.fixture(scope="module", autouse=True)
def card() -> Generator[None]:
    with simulated_card():
        yield


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network, an input, and a plan that nothing was predicted for."""
    folder = tmp_path_factory.mktemp("planned")
    onnx.save(MODEL, folder / "net.onnx")
    np.save(folder / "x.npy", given())
    placements = {"llvm": local_placement(1), "cuda": placement_of("cuda", None, None)}
    plan = placed_plan(folder / "net.onnx", placements, CALLS, WHERE)
    write_plan(plan, folder / PLAN_FILE)
    return folder


Copies = Counter[tuple[str, str, str]]


def copies_in(trace: str) -> Copies:
    """What goes from where to where by a trace: by whom and from which device, to which one, and
    the call that made it."""
    events = json.loads(trace)["traceEvents"]
    title = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    links = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ways = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in links]
    assert all(each["dur"] > 0 for each in ways)
    return Counter((title[e["pid"]], links[e["pid"], e["tid"]], e["name"]) for e in ways)


def check_copies(trace: str) -> None:
    """Each tensor goes once, as planned; what only the GPU reads stays there."""
    ways = [("llvm", "cuda", "stem"), ("llvm", "cuda", "beside"), ("cuda", "llvm", "right")]
    assert copies_in(trace) == Counter(
        (f"{who}: {origin}", f"to {goal}", call)
        for who in ("plan", "run")
        for origin, goal, call in ways
    )


def test_it_runs_on_both_until_the_gpu_dies_and_then_on_one(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU dies when `left` lies on it alone; all is planned without it, and nothing is lost."""
    monkeypatch.setenv(simulated_gpu_parts.FOLDER, str(tmp_path))
    patient = Supervision(starts=3, least_patience_s=60.0)
    monkeypatch.setattr(plan_serving, "SUPERVISION", patient)
    told = list[str]()

    def note(event: object) -> None:
        told.extend([event.message] if isinstance(event, Note) else [])

    with (
        tilewright.open(db="memory:", events=note) as session,
        session.open_plan(planned, mode="parallel") as network,
    ):
        check(network.run({"x": given()})["y"])
        check_copies(network.traced())
        assert not any("crashed" in each for each in told)
        (tmp_path / simulated_gpu_parts.FAULT).write_text(f"{simulated_gpu_parts.DIES} {BESIDE}")
        check(network.run({"x": given(1)})["y"], 1)
        assert any(each.startswith("cuda crashed at 'all … right'") for each in told)
        until(lambda: "Planned again without 'cuda'." in told)
        check(network.run({"x": given(2)})["y"], 2)


@pytest.mark.on_request
def test_it_is_planned_and_run_by_command(planned: Path, tmp_path: Path) -> None:
    words = ("--devices", "llvm", "--devices", "cuda", "--planner", "heft", "--threads", "1")
    found = answer(tmp_path, "plan", planned / "net.onnx", *words, "--out", "p", "--db", "memory:")
    kinds = {each["name"]: each["kind"] for each in found["devices"]}
    assert kinds == {"llvm": "cpu", "cuda": "cuda"}
    write_plan(spread(read_plan(tmp_path / "p"), WHERE), tmp_path / "p" / PLAN_FILE)
    inputs = ("--input", planned / "x.npy")
    found = answer(tmp_path, "run", "p", *inputs, "--mode", "parallel", "--trace", "t.json")
    assert found["mode"] == "parallel"
    check(np.load(tmp_path / found["outputs"][0]["file"]))
    check_copies((tmp_path / "t.json").read_text())
    found = answer(tmp_path, "run", "p", *inputs)
    assert set(found["times_s"]) == {"parallel", "sequential"}
    check(np.load(tmp_path / found["outputs"][0]["file"]))


@pytest.mark.on_request
@pytest.mark.parametrize("fault", [simulated_gpu_parts.FAILS, simulated_gpu_parts.HANGS])
def test_it_is_served_while_the_gpu_fails(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """What lay on it alone is computed again by its next process."""
    monkeypatch.setenv(simulated_gpu_parts.FOLDER, str(tmp_path))
    with (
        tilewright.open(db="memory:") as session,
        plan_server(planned, session.records, mode="parallel") as server,
    ):
        (tmp_path / simulated_gpu_parts.FAULT).write_text(f"{fault} {BESIDE}")
        answers = [server.submit("net", x=given(n), timeout_s=None) for n in range(5)]
        for seed, each in enumerate(answers):
            check(each.result(120), seed)
        told = server.statistics()
    assert {each.device: each.restarts > 0 for each in told.instances}["cuda"]
    (counts,) = told.networks
    assert (counts.answered, counts.failed) == (5, 0), "none is lost or answered twice"


def test_a_plan_for_another_gpu_is_refused(planned: Path, tmp_path: Path) -> None:
    plan = read_plan(planned)
    devices = [
        replace(each, machine="a100-sm80-0") if each.name == "cuda" else each
        for each in plan.devices
    ]
    write_plan(replace(plan, devices=tuple(devices)), tmp_path / PLAN_FILE)
    done = call(planned, "run", tmp_path, "--input", "x.npy")
    assert done.code == 3, done.err
    assert "is for a machine a100-sm80-0, and 'cuda' is a h100-sm90" in done.err
    text = (planned / PLAN_FILE).read_text()
    (tmp_path / PLAN_FILE).write_text(text.replace('"cuda"', '"cuda -model=A100"'))
    done = call(planned, "run", tmp_path, "--input", "x.npy")
    assert done.code == 3, done.err
    assert "no A100 is in this machine, but NVIDIA H100" in done.err


def test_without_a_card_it_is_said_what_is_missing(
    planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.compiler.cuda import nvidia

    def none(*_: object) -> None:
        raise TargetError("NVIDIA's driver is not installed on this machine")

    monkeypatch.setattr(nvidia, "find_cards", none)
    for verb in ("run", "serve"):
        more = ("--input", "x.npy") if verb == "run" else ("--load", "1s")
        done = call(planned, verb, ".", *more)
        assert done.code == 3, done.err
        assert "NVIDIA's driver is not installed" in done.err and "Traceback" not in done.err
