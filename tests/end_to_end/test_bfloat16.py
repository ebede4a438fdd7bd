"""A network with inputs, weights and results in bfloat16 on the way, shipped and run."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from helpers.commands.command_line import succeed

pytestmark = pytest.mark.regression


def test_weights_in_bfloat16(tmp_path: Path) -> None:
    """Of what ONNX Runtime has in bfloat16 on CPUs: movements and casts."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((2, 6)).astype(ml_dtypes.bfloat16)
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16),
        helper.make_node("Transpose", ["half"], ["turned"]),
        helper.make_node("Concat", ["turned", "w"], ["joined"], axis=0),
        helper.make_node("Cast", ["joined"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 6])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "halves.onnx")
    succeed(tmp_path, "optimize", "halves.onnx", "--budget", "0", "--out", "out")
    x = rng.standard_normal((6, 3), np.float32)
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "halves.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(tilewright.load(tmp_path / "out")(x=x), wanted)
