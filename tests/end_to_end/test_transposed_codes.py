"""A float32 network with transposed convolutions on codes, as ONNX Runtime's quantizer has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import tilewright
from helpers.commands.command_line import reference
from tilewright.hardware.device import local_placement
from tilewright.models import ModelOptions, loading
from tilewright.plan.preparation import prepare

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 3, 16, 16] x) => (float[1, 3, 32, 32] y)
<float[16, 3, 3, 3] a, float[16, 24, 4, 4] b, float[24] bias, float[24, 3, 3, 3] c> {
  f = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, a)
  g = LeakyRelu <alpha = 0.1> (f)
  h = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]> (g, b, bias)
  k = Relu(h)
  y = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2], output_padding = [1, 1]> (k, c)
}"""


def test_transposed_convolutions_are_integer_kernels_from_bytes_to_bytes(tmp_path: Path) -> None:
    made, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    for value in made.graph.value_info:
        shape = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        weights = rng.standard_normal(shape).astype(np.float32) / 8
        made.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
    onnx.save(made, tmp_path / "float.onnx")
    codes = loading.load(str(tmp_path / "float.onnx"), ModelOptions(precision="int8")).quantized
    assert codes is not None
    calls = prepare(str(codes.path), ModelOptions(), local_placement()).plan.calls
    used = [call.candidate.implementation for call in calls]
    assert used.count("conv2d_transposed_int8") == 2
    x = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    found = np.asarray(tilewright.compile(codes.path)(x))
    expected = reference(codes.path, {"x": x})["y"]
    single = reference(tmp_path / "float.onnx", {"x": x})["y"]
    steps = (found - expected) / np.diff(np.unique(expected)).min()
    assert np.abs(steps).max() < 1.5 and np.mean(np.abs(steps) > 0.5) < 0.01, "one code at most"
    assert np.abs(found - single).max() < 0.05 * np.abs(single).max()
