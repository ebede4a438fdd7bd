"""`optimize` from a model to an artifact that runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.utils import Extractor

import tilewright
from helpers.commands.command_line import LIGHT, reference, run, small_model, succeed
from helpers.networks.random_weights import randomize_weights

FIELDS = {
    "model", "target", "threads", "latency_s", "baseline_latency_s", "reference_latency_s",
    "speedup_vs_reference", "max_abs_error", "tasks", "measurements", "failures", "elapsed_s",
    "artifact",
}  # fmt: skip
TASK_FIELDS = {
    "name", "anchor", "implementation", "count", "latency_s", "share", "gflop_per_s",
    "gbyte_per_s", "bound",
}  # fmt: skip
FILES = {"model.so", "weights.params", "manifest.json", "report.html", "layouts.onnx"}


def check_result(data: dict[str, Any], folder: Path, files: set[str] = FILES) -> None:
    assert set(data) >= FIELDS
    assert data["latency_s"] > 0 and data["reference_latency_s"] > 0
    assert data["top1_agreement"] == 1.0
    gain = data["coarser"]
    assert gain is None or data["latency_s"] / gain["latency_s"] == pytest.approx(gain["speedup"])
    speedup = data["reference_latency_s"] / data["latency_s"]
    assert data["speedup_vs_reference"] == pytest.approx(speedup)
    for task in data["tasks"]:
        assert set(task) >= TASK_FIELDS
        assert task["error"] is None or 0 <= task["error"] <= task["error_bound"]
    shares = [task["share"] for task in data["tasks"]]
    assert shares == sorted(shares, reverse=True) and shares[-1] > 0
    assert sum(shares) + data["rest_share"] == pytest.approx(1.0)
    artifact = folder / data["artifact"]
    assert {path.name for path in artifact.iterdir()} == files
    manifest = json.loads((artifact / "manifest.json").read_text())
    for name in ("latency_s", "measurements", "max_abs_error", "elapsed_s", "rest_share"):
        assert manifest["result"][name] == data[name]


def check_artifact(artifact: Path, model: Path) -> None:
    """The loaded artifact gives ONNX Runtime's results on inputs of its own."""
    loaded = tilewright.load(artifact)
    rng = np.random.default_rng(11)
    inputs = {
        entry["name"]: rng.standard_normal(entry["shape"]).astype(entry["dtype"])
        for entry in loaded.manifest["inputs"]
    }
    wanted = reference(model, inputs)
    got = loaded.run(inputs)
    assert list(got) == list(wanted)
    for name, expected in wanted.items():
        scale = float(np.abs(expected).max()) or 1.0
        np.testing.assert_allclose(got[name], expected, rtol=0, atol=1e-4 * scale)


Optimized = tuple[Path, dict[str, Any]]
WORDS = ("optimize", "net.onnx", "--budget")


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Optimized:
    """A folder in which a network was optimized with eight measurements, and what was said."""
    folder = tmp_path_factory.mktemp("optimized")
    small_model(folder / "net.onnx", extent=8)
    return folder, succeed(folder, *WORDS, "8")


@pytest.fixture
def copied(optimized: Optimized, tmp_path: Path) -> Optimized:
    return Path(shutil.copytree(optimized[0], tmp_path / "copy")), optimized[1]


def test_once_measures_what_it_may(optimized: Optimized) -> None:
    folder, first = optimized
    check_result(first, folder)
    assert 0 < first["measurements"] + first["failures"] <= 8
    assert len(first["tasks"]) == 2


def test_twice_measures_once(copied: Optimized) -> None:
    folder, first = copied
    again = succeed(folder, *WORDS, "8")
    check_result(again, folder)
    assert again["measurements"] == again["failures"] == 0
    chosen = [[(t["key"], t["implementation"], t["settings"]) for t in r["tasks"]]
              for r in (first, again)]  # fmt: skip
    assert sorted(map(str, chosen[0])) == sorted(map(str, chosen[1]))
    check_artifact(folder / again["artifact"], folder / "net.onnx")


def test_more_measures_the_rest(copied: Optimized) -> None:
    folder, first = copied
    more = succeed(folder, *WORDS, "12")
    assert more["measurements"] + more["failures"] <= 4
    info = succeed(folder, "db", "info")
    total = first["measurements"] + first["failures"] + more["measurements"] + more["failures"]
    assert info["measurements"] + info["failures"] == total


@pytest.mark.parametrize("model", ["op:conv2d[n=1,c=16,h=14,w=14,k=3,out=16,pad=1]", "zoo:mlp"])
def test_budget_zero_measures_nothing(tmp_path: Path, model: str) -> None:
    data = succeed(tmp_path, "optimize", model, "--budget", "0", "--out", "out")
    check_result(data, tmp_path)
    assert data["measurements"] == data["failures"] == 0
    assert data["artifact"] == "out"
    assert data["max_rel_error"] <= 1e-4
    assert succeed(tmp_path, "db", "info")["measurements"] == 0
    loaded = tilewright.load(tmp_path / "out")
    x = np.ones(loaded.manifest["inputs"][0]["shape"], np.float32)
    assert loaded(x).shape == tuple(loaded.manifest["outputs"][0]["shape"])


def first_part(name: str, until: str, folder: Path) -> Path:
    """A light network up to a tensor, which is its output."""
    path = folder / f"{name}.onnx"
    whole = onnx.shape_inference.infer_shapes(onnx.load(LIGHT / f"{name}.onnx"))
    weights = {tensor.name for tensor in whole.graph.initializer}
    (given,) = [port.name for port in whole.graph.input if port.name not in weights]
    part = Extractor(whole).extract_model([given], [until])
    part.ir_version = 8  # since 4, weights need not be inputs
    onnx.save(part, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "until"),
    [("light_inception_v2", "r161"), ("light_shufflenet", "gpu_0/softmax_1")],
    ids=["three modules of Inception", "ShuffleNet"],
)
def test_light_networks(tmp_path: Path, name: str, until: str) -> None:
    """With random weights; those of the files are all alike and hide most mistakes."""
    model = first_part(name, until, tmp_path)
    onnx.save(randomize_weights(onnx.load(model)), model)
    check_defaults(tmp_path, model)
    model.unlink()


def check_defaults(folder: Path, model: Path) -> None:
    """With default settings a network gives ONNX Runtime's results."""
    words = ("compare", model, "--settings", "default", "--peers", "onnxruntime")
    (row,) = succeed(folder, *words)["rows"]
    assert row["max_rel_error"] <= 1e-4


@pytest.mark.slow
def test_fire_modules_with_the_weights_of_the_file(tmp_path: Path) -> None:
    model = first_part("light_squeezenet", "r31", tmp_path)
    data = succeed(tmp_path, "optimize", model, "--budget", "0", "--out", "out")
    check_result(data, tmp_path)
    assert data["max_rel_error"] <= 1e-4
    check_artifact(tmp_path / "out", model)


def test_default_folder_and_stdout_hold_only_what_they_should(tmp_path: Path) -> None:
    model = small_model(tmp_path / "net.onnx", filters=(4,))
    done = run(tmp_path, "optimize", model, "--budget", "0")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "tilewright-out" / "net").iterdir()} == FILES
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_python_in_four_lines(tmp_path: Path) -> None:
    model = small_model(tmp_path / "net.onnx", filters=(4,))
    with tilewright.open(db=tmp_path / "a.db") as session:
        result = session.optimize(model, budget=0, out=tmp_path / "made")
        result.save(tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == FILES
    check_artifact(tmp_path / "copy", model)
    assert "<table" in result._repr_html_()
