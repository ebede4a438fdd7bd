"""Plans with calls on a CPU and on two GPUs, which are simulated: each in a process that sees it
alone, tensors between them by way of the host, results those of ONNX Runtime.

    stem  llvm    left  the second card    right  the first one, reads stem and left    y  llvm
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

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
from tilewright.core.schedules import PLAN_FILE
from tilewright.hardware.cards import Card
from tilewright.hardware.device import local_placement
from tilewright.measure.targeting import placement_of
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import H100

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
TWIN = replace(H100, identity="11" * 16)
T4 = replace(H100, name="Tesla T4", identity="22" * 16, capability=(7, 5), multiprocessors=40)
CALLS = {"stem": ["x"], "left": ["stem"], "all": ["stem", "left"], "right": ["all"], "y": ["right"]}
MODEL = model_of(
    [
        helper.make_node("Gemm", ["x", "stem.w"], ["stem"], "stem"),
        helper.make_node("Gemm", ["stem", "left.w"], ["left"], "left"),
        helper.make_node("Concat", ["stem", "left"], ["all"], "all", axis=1),
        helper.make_node("Gemm", ["all", "right.w"], ["right"], "right"),
        helper.make_node("Softmax", ["right"], ["y"], "y", axis=1),
    ],
    {"x": (1, 24)},
    constants={
        "stem.w": 0.2 * normal(24, 6, seed=1),
        "left.w": 0.2 * normal(6, 3, seed=2),
        "right.w": 0.2 * normal(9, 4, seed=3),
    },
)
GIVEN = normal(1, 24, seed=0)


def where(second: str) -> Mapping[str, str]:
    return {"stem": "llvm", "left": second, "all": "cuda", "right": "cuda", "y": "llvm"}


def check(found: np.ndarray) -> None:
    np.testing.assert_allclose(found, reference(MODEL, {"x": GIVEN})["y"], rtol=1e-4)


def seen(folder: Path) -> set[str]:
    return {path.name.removeprefix("saw ") for path in folder.glob("saw *")}


def names_of(*cards: Card) -> set[str]:
    return {f"GPU-{UUID(card.identity)}" for card in cards}


@pytest.fixture(params=[("cuda -card=1", TWIN), ("cuda -model=T4", T4)])
def second(request: pytest.FixtureRequest) -> Generator[tuple[str, Card]]:
    """The name of the second card, of the first one's model or of another, and that card."""
    with simulated_card(request.param[1]):
        yield request.param


def test_it_runs_on_both(
    second: tuple[str, Card], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(simulated_gpu_parts.FOLDER, str(tmp_path))
    name, card = second
    onnx.save(MODEL, tmp_path / "net.onnx")
    placements = {"llvm": local_placement(1)}
    placements |= {each: placement_of(each, None, None) for each in ("cuda", name)}
    assert len({each.device.instance for each in placements.values()}) == 3
    plan = placed_plan(tmp_path / "net.onnx", placements, CALLS, where(name))
    write_plan(plan, tmp_path / PLAN_FILE)
    with (
        tilewright.open(db="memory:") as session,
        session.open_plan(tmp_path, mode="parallel") as network,
    ):
        check(network.run({"x": GIVEN})["y"])
        events = json.loads(network.traced())["traceEvents"]
    assert seen(tmp_path) == names_of(H100, card)
    titles = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"run: cuda", f"run: {name}"} <= titles


def test_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(simulated_gpu_parts.FOLDER, str(tmp_path))
    onnx.save(MODEL, tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", GIVEN)
    devices = ("--devices", "llvm", "--devices", "cuda", "--devices", "cuda -card=1")
    words = (*devices, "--planner", "heft", "--threads", "1", "--db", "memory:")
    with simulated_card(TWIN):
        found = answer(tmp_path, "plan", "net.onnx", *words, "--out", "p")
        assert [each["name"] for each in found["devices"]] == ["llvm", "cuda", "cuda -card=1"]
        plan = spread(read_plan(tmp_path / "p"), where("cuda -card=1"))
        write_plan(plan, tmp_path / "p" / PLAN_FILE)
        found = answer(tmp_path, "run", "p", "--input", "x.npy", "--mode", "parallel")
        check(np.load(tmp_path / found["outputs"][0]["file"]))
        done = call(tmp_path, "plan", "net.onnx", *devices, "--devices", "cuda -card=0")
        assert done.code == 2 and "'cuda' and 'cuda -card=0' are the same GPU" in done.err
        done = call(tmp_path, "plan", "net.onnx", "--devices", "cuda -card=2")
        assert done.code == 3 and "there is no GPU 2 in this machine, but 0: NVIDIA" in done.err
    assert seen(tmp_path) == names_of(H100, TWIN)
    with simulated_card():
        done = call(tmp_path, "run", "p", "--input", "x.npy")
        assert done.code == 3 and "there is no GPU 1 in this machine" in done.err
