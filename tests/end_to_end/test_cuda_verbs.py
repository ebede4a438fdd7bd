"""Verbs that measure, on a simulated GPU; and what they say where there is none."""

from __future__ import annotations

import csv
from collections.abc import Generator
from pathlib import Path

import onnx
import pytest
from onnx import helper

from helpers.commands.command_line import answer, call
from helpers.networks.onnx_models import model_of, normal
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import POINTS, TARGET
from helpers.processes import simulated_gpu
from helpers.processes.simulated_card import simulated_card
from tilewright.collect import family_plan
from tilewright.hardware.meters import energy
from tilewright.hardware.meters.base import PollingMeter
from tilewright.insight import cuda_studies
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
@pytest.mark.usefixtures("card")
def test_an_operator_is_tuned(tmp_path: Path) -> None:
    flags = ("--level", "op", "--tuner", "random", "--budget", "2", "--target", "cuda")
    result = answer(tmp_path, "tune", "op:relu[shape=4x8]", *flags)
    assert (result["level"], result["tuner"], result["failures"]) == ("op", "random", 0)
    assert result["measurements"] > 0 and result["max_rel_error"] < 1e-5


@executes
@pytest.mark.usefixtures("card")
def test_a_network_is_profiled(model: Path, tmp_path: Path) -> None:
    flags = ("--settings", "default", "--memory", "--target", "cuda")
    found = answer(tmp_path, "profile", model, *flags)
    assert [task["latency_s"] for task in found["tasks"]] == pytest.approx([CALL_S] * 2)
    assert found["network_latency_s"] == pytest.approx(2 * CALL_S)
    assert found["memory"] is not None


@executes
@pytest.mark.usefixtures("card")
def test_an_operator_is_studied_in_times_and_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first kernel does not fit in the card's memory; the others are measured all the same."""
    meter = PollingMeter(method="made up", update_s=1e-4, power_w=lambda: 400.0)
    monkeypatch.setattr(cuda_studies, "meter_of", lambda *_: meter)
    monkeypatch.setattr(energy, "LEAST_WINDOW_S", 0.01)
    monkeypatch.setenv(simulated_gpu.FOLDER, str(tmp_path))
    (tmp_path / simulated_gpu.FAULT).write_text("memory")
    operator = "op:conv2d[c=3,h=9,k=3,out=4]"
    done = call(
        tmp_path, "study", "padding", operator, "--target", "cuda", "--values", "0,1,2",
        "--format", "json",
    )  # fmt: skip
    assert done.code == 0 and "out of memory" in done.err, done.err
    failed, *measured = done.data["rows"]
    assert (failed["latency_s"], failed["power_w"]) == (None, None)
    for row in measured:
        assert row["latency_s"] == pytest.approx(CALL_S)
        assert row["power_w"] == pytest.approx(400, rel=0.01)


def test_rounds_are_collected_near_what_was_badly_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family_plan, "ROUND", 44)
    flags = ("--samples", "60", "--adaptive", "--target", TARGET)
    with offering(tmp_path / "offered", POINTS):
        found = answer(tmp_path, "collect", "--op", "relu", *flags)
    assert found["complete"] and len(found["rounds"]) == 2, found
    assert sum(each["kernels"] for each in found["rounds"]) == 60


@executes
@pytest.mark.usefixtures("card")
def test_collect_gives_kernels_some_multiprocessors(tmp_path: Path) -> None:
    """Launches of the simulated driver take the longer the fewer there are."""
    words = ("--op", "relu", "--target", "cuda", "--multiprocessors")
    more = ("--samples", "2", "--budget", "60", "--db", "c.db")
    found = answer(tmp_path, "collect", *words, "usual,64", *more)
    assert (found["samples"], found["failures"], found["complete"]) == (4, 0, True)
    assert call(tmp_path, "db", "export", "rows.csv", "--db", "c.db").code == 0
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert {(row["held"], row["resources"]) for row in rows} == {
        ("", "132t"),
        ("multiprocessors=64", "64t"),
    }
    fastest = {
        held: min(float(row["latency_s"]) for row in rows if row["held"] == held)
        for held in ("", "multiprocessors=64")
    }
    assert fastest["multiprocessors=64"] == pytest.approx(fastest[""] * 132 / 64)
    done = call(tmp_path, "collect", *words, "60", *more)
    assert done.code == 2 and "8 to 128, in steps of 8, of its 132" in done.err
