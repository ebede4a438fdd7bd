"""Verbs that measure, on a simulated GPU; and what they say where there is none."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import onnx
import pytest
from onnx import helper

import tilewright
from helpers.commands.command_line import call
from helpers.networks.onnx_models import model_of, normal
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import POINTS, TARGET
from helpers.processes.simulated_card import simulated_card
from tilewright.collect import family_plan
from tilewright.collect.design import Design
from tilewright.testing.cuda_execution import compiler

CALL_S = 1e-5
"""Of a launch of the simulated driver."""
MODEL = model_of(
    [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=1),
    ],
    {"x": (1, 24)},
    constants={"w": normal(24, 6, seed=1), "b": normal(6, seed=2)},
)
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    onnx.save(MODEL, path)
    return path


@pytest.fixture
def card() -> Generator[None]:
    with simulated_card():
        yield


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "zoo:mlp"),
        ("tune", "zoo:mlp"),
        ("profile", "zoo:mlp"),
        ("compare", "zoo:mlp", "--peers", "torch"),
        ("collect", "--op", "relu"),
        ("collect", "zoo:mlp", "--share", "0.9"),
    ],
    ids=" ".join,
)
def test_without_a_card_what_is_missing_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = call(tmp_path, *words, "--target", "cuda -model=H100")
    assert done.code == 3, done.err
    assert "H100 cannot run on this machine: NVIDIA's driver" in done.err
    assert "Traceback" not in done.err and not (tmp_path / "tilewright-out").exists()


@executes
@pytest.mark.on_request
@pytest.mark.usefixtures("card")
def test_each_operator_is_tuned(model: Path, tmp_path: Path) -> None:
    with tilewright.Session(target="cuda", db="memory:") as session:
        tuned = session.tune(model, level="op", tuner="random", budget=6, out=tmp_path / "out")
    result = tuned.result
    assert (result.level, result.tuner, result.failures) == ("op", "random", 0)
    assert result.measurements > 0 and result.max_rel_error is not None
    assert result.max_rel_error < 1e-5


@executes
@pytest.mark.usefixtures("card")
def test_a_network_is_profiled(model: Path) -> None:
    with tilewright.Session(target="cuda", db="memory:") as session:
        found = session.profile(model, settings="default", memory=True)
    assert [task.latency_s for task in found.tasks] == pytest.approx([CALL_S] * 2)
    assert found.network_latency_s == pytest.approx(2 * CALL_S)
    assert found.memory is not None


def test_rounds_are_collected_near_what_was_badly_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family_plan, "ROUND", 44)
    with (
        offering(tmp_path / "offered", POINTS),
        tilewright.Session(target=TARGET, db="memory:") as session,
    ):
        found = session.collect("relu", samples=60, design=Design(adaptive=True))
    assert found.complete and len(found.rounds) == 2, found
    assert sum(each.kernels for each in found.rounds) == 60
