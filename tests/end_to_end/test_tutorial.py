"""The tutorials work as written: every block, in order, in an empty folder; smaller budgets,
networks and tables in the place of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.commands.command_line import small_model
from helpers.commands.fenced_blocks import Block, Walk, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
# SqueezeNet with one fire module: all kinds of layers, fewer of each
ONE_MODULE = """
from tilewright.models.zoo._description import zoo_sections
rows = zoo_sections()["squeezenet1_1"].rows
rows[:] = [row for row in rows if not row.startswith(("features.5", "features.[", "features.8"))]
rows.insert(4, "features.3: fire 16 64")
"""
SHORTER = {
    "model = zoo.build": ONE_MODULE + "model = zoo.build",
    "--budget 40": "--budget 6",
    "budget=40": "budget=6",
}
SMALLER = {
    "zoo:squeezenet1_1": "squeezenet1_1.onnx",
    "op:conv2d[c=64,h=28,w=28,out=64,k=3,pad=1]": "op:conv2d[c=16,h=14,w=14,out=16,k=3,pad=1]",
    "--budget 60": "--budget 8",
    "--budget 24": "--budget 2",
    "--budget 32": "--budget 4s",  # by seconds, as the 8-bit cases take 48 measurements each
    "--seeds 3": "--seeds 1",
}
FEW = {"--samples 40": "--samples 4"}
FEWER = {"16000, 400)": "16000, 100)", "4096, 400)": "4096, 100)", "normal(400)": "normal(100)"}


def shortened(steps: list[Block], replaced: dict[str, str]) -> list[Block]:
    for long, short in replaced.items():
        assert any(long in step.code for step in steps)
        steps = [replace(step, code=step.code.replace(long, short)) for step in steps]
    return steps


def walk(page: str, folder: Path, replaced: dict[str, str]) -> Walk:
    steps = blocks(DOCS / "tutorials" / page)
    steps = shortened([s for s in steps if s.language != "console"], replaced)
    return Walk(steps, folder, at_once=True)


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Walk:
    return walk("from-onnx-to-faster.md", tmp_path_factory.mktemp("faster"), SHORTER)


@pytest.mark.slow
class TestFromOnnxToFaster:
    def test_a_file_is_made_and_the_machine_examined(self, faster: Walk) -> None:
        faster.to("tilewright doctor")
        assert (faster.folder / "network.onnx").is_file()

    def test_a_network_is_made_faster(self, faster: Walk) -> None:
        faster.to("tilewright optimize")
        assert (faster.folder / "tilewright-out/network/report.html").is_file()

    def test_again_for_a_program_and_a_person(self, faster: Walk) -> None:
        printed = faster.to("tilewright show")
        made = {"model.so", "weights.params", "manifest.json", "report.html"}
        assert made <= set("\n".join(printed).split())
        again = json.loads((faster.folder / "result.json").read_text())["data"]
        assert again["measurements"] == 0
        assert again["max_rel_error"] <= 1e-4
        assert again["tasks"], "the first run measured, so the second knows times"
        assert "def main" in (faster.folder / "kernel.txt").read_text()

    def test_it_runs(self, faster: Walk) -> None:
        faster.to("tilewright.load")
        outputs = np.load(faster.folder / "outputs" / "logits.npy")
        assert outputs.shape == (1, 1000) and np.isfinite(outputs).all() and np.ptp(outputs) > 0

    def test_it_is_compared(self, faster: Walk) -> None:
        printed = faster.to("--baseline")
        (row,) = json.loads((faster.folder / "then.json").read_text())["data"]["rows"]
        assert row["peer"] == "onnxruntime" and row["precision"] == "fp32"
        assert row["max_rel_error"] <= 1e-4
        assert "slower than before: 2" not in printed[-1], "the comparison itself must not fail"

    def test_the_same_in_python(self, faster: Walk) -> None:
        faster.to_the_end()
        assert (faster.folder / "shipped" / "report.html").is_file()


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Walk:
    folder = tmp_path_factory.mktemp("tuning")
    small_model(folder / "squeezenet1_1.onnx", filters=(8, 16, 16))
    return walk("tuning.md", folder, SMALLER)


@pytest.mark.slow
class TestTuning:
    def test_a_network_is_tuned(self, tuning: Walk) -> None:
        tuning.to("tuned.json")
        data = json.loads((tuning.folder / "tuned.json").read_text())["data"]
        assert data["measurements"] == 8

    def test_with_a_genetic_tuner(self, tuning: Walk) -> None:
        tuning.to("--tuner ga")
        assert (tuning.folder / "genetic.db").is_file()

    def test_with_boosted_trees(self, tuning: Walk) -> None:
        tuning.to("--tuner xgb-rank-knob")
        assert (tuning.folder / "trees.db").is_file()

    def test_tuners_are_studied(self, tuning: Walk) -> None:
        tuning.to("study tuners")
        assert (tuning.folder / "study" / "study-tuners.html").is_file()

    def test_levels_are_studied(self, tuning: Walk) -> None:
        tuning.to("study subgraph")
        assert (tuning.folder / "levels.db").is_file()

    def test_a_graph_is_solved(self, tuning: Walk) -> None:
        printed = tuning.to("PBQPTuner")
        assert json.loads((tuning.folder / "problem.json").read_text())["variables"]
        assert any(text.startswith("gap ") for text in printed)

    def test_records_go_in_and_out(self, tuning: Walk) -> None:
        tuning.to_the_end()
        assert (tuning.folder / "ours.log").is_file()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Walk:
    return walk("before-it-runs.md", tmp_path_factory.mktemp("before"), FEW)


class TestBeforeItRuns:
    def test_a_forecast(self, before: Walk) -> None:
        printed = before.to('forecast.json"))')
        assert "90 % interval" in printed[0] and " ms, " in printed[1]

    def test_operators_and_why(self, before: Walk) -> None:
        printed = before.to("explain")
        assert printed[2].count("op:") == 3
        assert "Factors, one varied at a time" in printed[3] and "because of" in printed[3]

    def test_a_model_of_its_own(self, before: Walk) -> None:
        assert "softmax" in before.to("fit softmax")[4]

    def test_how_good_it_is(self, before: Walk) -> None:
        assert "within the intervals: " in before.to_the_end()[6]


@pytest.fixture(scope="module")
def predicting(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Walk:
    return walk("predicting.md", tmp_path_factory.mktemp("predicting"), FEWER)


class TestPredicting:
    def test_a_predictor_is_judged(self, predicting: Walk) -> None:
        assert "mean error" in predicting.to("--split configuration")[1]

    def test_on_a_device_that_it_has_not_seen(self, predicting: Walk) -> None:
        printed = predicting.to_the_end()
        rows = json.loads((predicting.folder / "few.json").read_text())["data"]["rows"]
        assert {row["group"] for row in rows} == {"small", "middle", "large", "all"}
        assert "large" in printed[-1]
