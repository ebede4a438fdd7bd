"""A network in float32 that may be computed in bfloat16, through the verbs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import call, reference, succeed
from tilewright.core.errors import NegativeVerdict, TargetError, UsageError
from tilewright.deploy.opening import open_artifact
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import Coarse
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.registry import implementation
from tilewright.models import ModelOptions
from tilewright.session import opened

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 20, 20] x) => (float[1, 10] y)
<float[32, 16, 3, 3] a, float[32, 32, 1, 1] b, float[32, 10] c> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (g)
  k = Conv (p, b)
  s = Add(k, p)
  m = ReduceMean <axes = [2, 3], keepdims = 0> (s)
  y = MatMul(m, c)
}"""
X = np.random.default_rng(2).standard_normal((1, 16, 20, 20)).astype(np.float32)
HALVES = ModelOptions(precision="bfloat16")
pytestmark = pytest.mark.skipif(
    not half_lanes(local_placement().target), reason="no products of bfloat16 here"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("a", (32, 16, 3, 3)), ("b", (32, 32, 1, 1)), ("c", (32, 10))):
        values = rng.standard_normal(shape).astype(np.float32) / 8
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("halves") / "images.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one command made, with a database that a float32 network shares."""
    made = tmp_path_factory.mktemp("made")
    asked = ("--precision", "bfloat16", "--budget", "6", "--out", made / "halves")
    (made / "answer.json").write_text(json.dumps(succeed(made, "optimize", model, *asked)))
    return made


def stored(folder: Path) -> set[str]:
    """The forms of a plan's tensors."""
    plan = open_artifact(folder).manifest.shipped_plan
    return {str(tensor.form) for tensor in plan.tensors.values()}  # type: ignore[union-attr]


def test_it_multiplies_and_stores_halves_within_the_error(model: Path, folder: Path) -> None:
    data = json.loads((folder / "answer.json").read_text())
    assert 1e-5 < data["max_rel_error"] < 2e-2, "the error of eight bits, and no more"
    assert any(form.endswith(":bfloat16") for form in stored(folder / "halves"))
    assert {call["dtype"] for call in data["calls"]} >= {"bfloat16"}
    network = tilewright.load(folder / "halves")
    expected = reference(model, {"x": X})["y"]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(network(X), expected, atol=2e-2 * scale)


def test_single_precision_beside_it_knows_nothing_of_it(model: Path, folder: Path) -> None:
    data = succeed(folder, "optimize", model, "--budget", "0", "--out", folder / "own")
    assert data["max_rel_error"] < 1e-5
    assert all(":" not in form for form in stored(folder / "own"))
    used = {task["implementation"] for task in data["tasks"]}
    assert not any("bfloat16" in name for name in used)
    done = call(folder, "profile", folder / "own", "--precision", "bfloat16")
    assert done.code == 2 and "was compiled in float32" in done.err


def test_a_comparison_names_both_precisions(folder: Path) -> None:
    data = succeed(folder, "compare", folder / "halves", "--peers", "onnxruntime")
    assert [(row["own_precision"], row["precision"]) for row in data["rows"]] == [("bf16", "fp32")]
    assert data["geomean_speedup"] is None, "nobody else is in bf16"


def test_it_is_compiled_in_python(model: Path) -> None:
    halves = tilewright.compile(model, options=HALVES)(X)
    own = tilewright.compile(model)(X)
    assert 0 < np.abs(halves - own).max() < 2e-2 * np.abs(own).max()


def test_an_error_that_is_too_large_ships_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "fine_enough", lambda options, *_: options)
    with (
        tilewright.open(db="memory:") as session,
        pytest.raises(NegativeVerdict, match="rounding in bfloat16 can cause this") as told,
    ):
        session.optimize(model, budget=0, out=tmp_path / "out", options=HALVES, max_error=1e-6)
    assert "leave --precision out" in told.value.hint
    assert not (tmp_path / "out" / "manifest.json").exists()


def in_halves(name: str) -> bool:
    """Whether an implementation multiplies bfloat16; which one does is the processor's to say."""
    spec = implementation(name)
    return isinstance(spec, Coarse) and spec.multiplies_in == "bfloat16"


def test_what_was_made_is_profiled_and_taken_again(model: Path, folder: Path) -> None:
    for words in (
        ("profile", folder / "halves"),
        ("profile", model, "--precision", "bfloat16", "--settings", "shipped"),
    ):
        tasks = succeed(folder, *words)["tasks"]
        assert any(in_halves(task["implementation"]) for task in tasks)
        assert all(task["latency_s"] > 0 for task in tasks)


MASKED = """<ir_version: 8, opset_import: ["" : 17]>
masked (float[16, 64] x, float[16, 64] mask) => (float[16, 8] y, int64[16] best)
<float[64, 64] a, float[64, 8] b, float lowest = {-3.4028234663852886e38}, float one = {1.0}> {
  s = MatMul(x, a)
  off = Sub(one, mask)
  bias = Mul(off, lowest)
  t = Add(s, bias)
  p = Softmax(t)
  best = ArgMax <axis = 1, keepdims = 0> (t)
  y = MatMul(p, b)
}"""


def test_masks_of_the_lowest_number_and_islands(tmp_path: Path) -> None:
    made, rng = onnx.parser.parse_model(MASKED), np.random.default_rng(0)
    for name, shape in (("a", (64, 64)), ("b", (64, 8))):
        values = rng.standard_normal(shape).astype(np.float32) / 8
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(made, tmp_path / "masked.onnx")
    mask = np.ones((16, 64), np.float32)
    mask[0], mask[1, 32:] = 0.0, 0.0
    given = {"x": rng.standard_normal((16, 64)).astype(np.float32), "mask": mask}
    found = tilewright.compile(tmp_path / "masked.onnx", options=HALVES).run(given)
    expected = reference(tmp_path / "masked.onnx", given)
    np.testing.assert_allclose(found["y"], expected["y"], atol=2e-2 * np.abs(expected["y"]).max())


def test_what_cannot_be_asked_for(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="precision is 'fp8'"):
        ModelOptions(precision="fp8")  # type: ignore[arg-type]
    done = call(tmp_path, "optimize", model, "--precision", "half", "--out", tmp_path)
    assert done.code == 2 and "bfloat16" in done.err
    with (
        tilewright.open(target="simulated", db="memory:") as session,
        pytest.raises(TargetError, match="no products of bfloat16"),
    ):
        session.optimize(model, budget=0, out=tmp_path, options=HALVES)


def test_its_time_is_predicted(model: Path, tmp_path: Path) -> None:
    singles = succeed(tmp_path, "predict", model)
    halves = succeed(tmp_path, "predict", model, "--precision", "bfloat16")
    assert [singles["precision"], halves["precision"]] == ["float32", "bfloat16"]
    kinds = {each["implementation"] for each in halves["operators"]}
    assert any(map(in_halves, kinds))
    assert not any(in_halves(each["implementation"]) for each in singles["operators"])
    half, single = (each["network"]["latency_s"] for each in (halves, singles))
    assert 0.2 * single < half < single
    asked = ("--precision", "bfloat16", "--devices", "llvm")
    compared = succeed(tmp_path, "predict", model, *asked)
    assert compared["precision"] == "bfloat16"
    (conv,) = [each for each in compared["calls"] if each["name"] == "Conv_0"]
    assert all(in_halves(mode["implementation"]) for mode in conv["modes"])
    with (
        tilewright.open(target="llvm -mcpu=haswell", db="memory:") as session,
        pytest.raises(TargetError, match="no products of bfloat16"),
    ):
        session.predict("zoo:mlp", options=HALVES)
