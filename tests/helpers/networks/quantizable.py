"""A small network in single precision with all that can be put on codes, as a file, and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 4, 12, 12] x) => (float[1, 10] y)
<float[16, 4, 3, 3] a, float[16, 1, 3, 3] b, float[16, 16, 1, 1] c, float[16, 10] d,
 float[16] bias, float zero = {0.0}, float six = {6.0}> {
  h = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, a, bias)
  g = Relu(h)
  k = Conv <pads = [1, 1, 1, 1], group = 16> (g, b)
  l = Clip(k, zero, six)
  u = Conv (l, c)
  s = Add(u, g)
  p = Relu(s)
  m = GlobalAveragePool(p)
  f = Flatten(m)
  e = Gemm(f, d)
  y = Tanh(e)
}"""


def images(count: int) -> Any:
    """Images for it, one after the other along the first axis."""
    return np.random.default_rng(5).standard_normal((count, 4, 12, 12)).astype(np.float32)


def model() -> onnx.ModelProto:
    """The network with random weights; nodes are named by their results, one is `depthwise`."""
    made, random = onnx.parser.parse_model(TEXT), np.random.default_rng(3)
    for node in made.graph.node:
        node.name = "depthwise" if node.output[0] == "k" else node.output[0]
    for value in made.graph.value_info:
        shape = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        fan = np.prod(shape[:1] if value.name == "d" else shape[1:])
        values = (random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    return made


def saved(folder: Path) -> Path:
    """The same as a file."""
    path = folder / "images.onnx"
    onnx.save(model(), path)
    return path


def written(folder: Path, **arrays: Any) -> Path:
    """A file of inputs."""
    path = folder / "inputs.npz"
    np.savez(path, **arrays)
    return path
