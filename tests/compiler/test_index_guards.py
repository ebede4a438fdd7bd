"""Indices out of range: a network says so where ONNX Runtime does, and never reads elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_networks import compiled

from tilewright.core.errors import InputError
from tilewright.models.loading import load_model

X = np.arange(24, dtype=np.float32).reshape(4, 6)
TABLE = {"x": X}


def model(
    operator: str, data: Mapping[str, np.ndarray], indices: np.ndarray, rest: str = "", **named: Any
) -> onnx.ModelProto:
    """One node; `data` are constants, the indices are the network's input, `rest` more inputs."""
    values = [helper.make_tensor_value_info("ids", TensorProto.INT64, indices.shape)]
    names = ["x", "ids", *rest.split()]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **named)],
        operator,
        values,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in data.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


UPDATES = {"x": X, "u": np.ones((2, 6), np.float32)}
CASES: dict[str, tuple[onnx.ModelProto, list[Any], list[Any]]] = {
    "Gather": (
        model("Gather", TABLE, np.zeros((2, 2)), axis=0),
        [[[0, 3], [-4, -1]]],
        [[[0, 4], [0, 0]], [[0, 0], [0, -5]], [[2**32, 0], [0, 0]]],
    ),
    "GatherElements": (
        model("GatherElements", TABLE, np.zeros((4, 2)), axis=1),
        [[[0, 5], [-6, -1], [1, 2], [3, 4]]],
        [[[0, 6], [0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0], [-7, 0]]],
    ),
    "GatherND": (
        model("GatherND", TABLE, np.zeros((3, 2))),
        [[[0, 5], [3, 0], [-4, -6]]],
        [[[0, 5], [4, 0], [0, 0]], [[0, 6], [0, 0], [0, 0]], [[0, 0], [0, 0], [-5, 0]]],
    ),
    "ScatterElements": (
        model("ScatterElements", UPDATES, np.zeros((2, 6)), "u", axis=0),
        [[[0, 1, 2, 3, -4, -1], [1, 2, 3, 0, 1, 2]]],
        [[[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 4]], [[-5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]],
    ),
    "ScatterND": (
        model("ScatterND", UPDATES, np.zeros((2, 1)), "u"),
        [[[0], [-1]]],
        [[[0], [4]], [[-5], [0]]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str) -> None:
    proto, valid, invalid = CASES[name]
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    _, network = compiled(
        load_model(onnx.ModelProto.FromString(proto.SerializeToString()), name).graph
    )
    for ids in valid:
        given = np.array(ids, np.int64)
        (wanted,) = session.run(None, {"ids": given})
        np.testing.assert_array_equal(network([given])[0], wanted)
    for ids in invalid:
        given = np.array(ids, np.int64)
        with pytest.raises(Exception, match="indices|index"):
            session.run(None, {"ids": given})
        with pytest.raises(InputError, match=r"index that is not in -\d"):
            network([given])
