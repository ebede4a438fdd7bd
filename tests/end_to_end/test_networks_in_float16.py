"""A network in float32 that may be computed in float16: parts of it are beyond what that holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import reference
from tilewright.core.errors import TargetError
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.halves import converts_float16, has_half_arithmetic
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 32, 12, 12] x) => (float[1, 10] y)
<float[64, 32, 3, 3] a, float[64, 64, 1, 1] b, float[64, 64, 1, 1] c, float[64, 64, 1, 1] d,
 float[64, 10] e, float small = {0.00001}> {
  f = Conv <pads = [1, 1, 1, 1]> (x, a)
  fine = Relu(f)
  g = Conv (fine, b)
  large = Relu(g)
  h = Conv (large, c)
  again = Mul(h, small)
  k = Conv (again, d)
  s = Add(k, fine)
  m = ReduceMean <axes = [2, 3], keepdims = 0> (s)
  y = MatMul(m, e)
}"""
OPTIONS = ModelOptions(precision="float16")
HERE = local_placement(2)
pytestmark = pytest.mark.skipif(
    not converts_float16(HERE.target), reason="no conversion of float16 here"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    shapes = {"a": (64, 32, 3, 3), **dict.fromkeys("bcd", (64, 64, 1, 1)), "e": (64, 10)}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32) / 8
        values *= 5e4 if name == "b" else 1.0
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("float16") / "images.onnx"
    onnx.save(made, path)
    return path


def test_what_is_beyond_float16_stays_in_single_precision_and_is_named(model: Path) -> None:
    network = prepare(str(model), OPTIONS, allowing(HERE, OPTIONS))
    assert network.forms["large"].dtype is None, "numbers up to 3e5"
    assert "stay in float32: large (up to 3.3e+05)" in network.model.remark
    if has_half_arithmetic(HERE.target):
        assert network.forms["fine"].dtype is None, "so are runs of its products with such weights"
        assert "products with b (up to" in network.model.remark
        assert any(form.dtype == "float16" for form in network.forms.values())
        used = {call.candidate.implementation for call in network.plan.calls}
        assert "conv2d_float16" in used


def test_it_is_right_within_the_error_of_eleven_bits(model: Path) -> None:
    x = np.random.default_rng(5).standard_normal((1, 32, 12, 12)).astype(np.float32)
    found = tilewright.compile(model, options=OPTIONS)(x)
    expected = reference(model, {"x": x})["y"]
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-7 < error < 2e-3


def test_one_may_say_what_stays_and_on_which_inputs_ranges_are_seen(
    model: Path, tmp_path: Path
) -> None:
    small = np.random.default_rng(1).standard_normal((2, 32, 12, 12)).astype(np.float32) * 1e-3
    np.savez(tmp_path / "small.npz", x=small)
    options = replace(OPTIONS, keep=["float32:again"], calibration=tmp_path / "small.npz")
    network = prepare(str(model), options, allowing(HERE, options))
    assert "large (up to" not in network.model.remark, "inputs of a thousandth fit"
    assert "products with" in network.model.remark, "weights of 5e-6, multiplied together, do not"
    assert network.forms["again"].dtype is None


def test_a_processor_without_conversion_is_refused() -> None:
    plain = parse_target("llvm -mcpu=x86-64-v2", 1)
    with pytest.raises(TargetError, match="no instructions that convert float16"):
        allowing(plain, OPTIONS)
    avx2 = parse_target("llvm -mcpu=haswell", 1)
    assert allowing(avx2, OPTIONS).precision == "float16"
    with pytest.raises(TargetError, match="no products of bfloat16") as told:
        allowing(avx2, ModelOptions(precision="bfloat16"))
    assert "--precision float16" in told.value.hint
