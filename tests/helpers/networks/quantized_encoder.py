"""A layer of an encoder as ONNX Runtime's `quantize_static` writes it, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
encoder (float[1, 17, 32] x) => (float[1, 17, 32] y)
<float[32, 32] a, float[32, 32] b, float[32, 32] c, float[32, 32] d, float half = {0.5},
 int64[4] apart = {1, 17, 4, 8}, int64[3] together = {1, 17, 32}> {
  qf = MatMul(x, a)  qr = Reshape(qf, apart)  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  kf = MatMul(x, b)  kr = Reshape(kf, apart)  k = Transpose <perm = [0, 2, 3, 1]> (kr)
  vf = MatMul(x, c)  vr = Reshape(vf, apart)  v = Transpose <perm = [0, 2, 1, 3]> (vr)
  s = MatMul(q, k)  t = Mul(s, half)  p = Softmax <axis = -1> (t)
  h = MatMul(p, v)  ht = Transpose <perm = [0, 2, 1, 3]> (h)  hr = Reshape(ht, together)
  o = MatMul(hr, d)  y = Add(o, x)
}"""


class Inputs(CalibrationDataReader):
    """Three draws."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self._left = [random.standard_normal((1, 17, 32)).astype(np.float32) for _ in range(3)]

    def get_next(self) -> Any:
        return {"x": self._left.pop()} if self._left else None


def quantized(folder: Path, text: str = TEXT, **options: Any) -> Path:
    """Neither zero point of its first product of two computed tensors is 0. The quantizer's
    `options` are those that are given, unsigned activations otherwise."""
    made, random = onnx.parser.parse_model(text), np.random.default_rng(3)
    for node in made.graph.node:
        node.name = node.output[0]
    for value in made.graph.value_info:
        values = (random.standard_normal((32, 32)) / 4).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    onnx.save(made, folder / "encoder.onnx")
    file = folder / "encoder_int8.onnx"
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(folder / "encoder.onnx", file, Inputs(), **{**kinds, **options})
    return file
