"""A type for each tensor, within an error that people set, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import call, reference, succeed
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.deploy.opening import open_artifact
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.models import ModelOptions

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 24, 24] x) => (float[1, 10] y)
<float[64, 16, 3, 3] a, float[64, 64, 1, 1] b, float[64, 10] c> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  k = Conv (g, b)
  s = Add(k, g)
  m = ReduceMean <axes = [2, 3], keepdims = 0> (s)
  y = MatMul(m, c)
}"""
RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 16, 24, 24)).astype(np.float32) + 0.2
MIXED = ModelOptions(precision="auto")
pytestmark = pytest.mark.skipif(
    not half_lanes(local_placement().target), reason="no products of bfloat16 here"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, inputs for it, and what one command made of both."""
    folder = tmp_path_factory.mktemp("mixed")
    model = onnx.parser.parse_model(TEXT)
    for name, shape in (("a", (64, 16, 3, 3)), ("b", (64, 64, 1, 1)), ("c", (64, 10))):
        values = RNG.standard_normal(shape).astype(np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "images.onnx")
    np.savez(folder / "inputs.npz", x=X)
    answer = succeed(folder, "optimize", folder / "images.onnx", *asked(folder, "45dB"))
    (folder / "answer.json").write_text(json.dumps(answer))
    return folder


def asked(folder: Path, error: str) -> tuple[object, ...]:
    calibration = ("--calibration", folder / "inputs.npz", "--out", folder / "out")
    return ("--precision", "auto", "--max-error", error, "--budget", "0", *calibration)


def test_it_keeps_the_ratio_and_tells_what_it_is_made_of(made: Path) -> None:
    data = json.loads((made / "answer.json").read_text())
    mixture = data["mixture"]
    assert data["sqnr_db"] >= 45.0 and data["shipped"].startswith("chosen")
    assert mixture["measured_sqnr_db"] == data["sqnr_db"] and mixture["calibrated"]
    assert abs(mixture["predicted_sqnr_db"] - data["sqnr_db"]) < 3.0
    assert sum(layer["noise_share"] for layer in mixture["layers"]) == pytest.approx(1.0)
    assert "bfloat16" in {layer["multiplied"] for layer in mixture["layers"]}
    assert sum(point["chosen"] for point in mixture["front"]) == 1
    network = tilewright.load(made / "out")
    expected = reference(made / "images.onnx", {"x": X[1:2]})["y"]
    ratio = np.sum(expected**2) / np.sum((np.asarray(network(X[1:2])) - expected) ** 2)
    assert 10 * np.log10(ratio) > 43.0


def test_it_is_shown_as_it_was_made(made: Path) -> None:
    shown = succeed(made, "show", made / "out")
    assert shown["mixture"]["layers"] and shown["source"]["precision"] == "auto"
    text = call(made, "show", made / "out").out
    assert "Precision by layer" in text and "share of noise" in text
    assert "Layer by layer" in (made / "out" / "report.html").read_text()


@pytest.mark.on_request
def test_what_is_kept_stays_in_single_precision(made: Path, tmp_path: Path) -> None:
    with tilewright.open(db="memory:") as session:
        kept = session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "kept", options=MIXED,
            max_error="45dB", keep=["float32:x", "float32:g", "float32:k"],
        )  # fmt: skip
    plan = open_artifact(tmp_path / "kept").manifest.shipped_plan
    assert kept.result.mixture is not None and kept.result.mixture.kept
    assert plan.tensors["g"].form.dtype is None  # type: ignore[union-attr]


def test_an_error_that_nothing_meets_names_the_least(made: Path, tmp_path: Path) -> None:
    with (
        tilewright.open(db="memory:") as session,
        pytest.raises(NegativeVerdict, match="least error that can be had .* dB, in about") as told,
    ):
        session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "none", options=MIXED, max_error="250dB"
        )
    assert "less than the 250 dB" in told.value.message
    assert not (tmp_path / "none").exists()


def test_what_makes_no_sense_is_told_before_any_work(made: Path, tmp_path: Path) -> None:
    model = made / "images.onnx"
    with tilewright.open(db="memory:") as session:
        with pytest.raises(UsageError, match="belong to a choice of types"):
            session.optimize(model, budget=0, out=tmp_path / "no", keep="float32:g")
        with pytest.raises(UsageError, match="over the whole graph"):
            session.tune(model, budget=0, out=tmp_path / "no", options=MIXED)
    unchosen = call(made, "compare", model, "--precision", "auto", "--db", "memory:")
    assert unchosen.code == 2 and "optimize MODEL --precision auto` first" in unchosen.err
    wrong = call(made, "optimize", model, "--precision", "auto", "--keep", "int8:g")
    assert wrong.code == 2 and "float32 is the only type" in wrong.err
