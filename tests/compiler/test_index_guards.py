"""Indices out of range: a network says so where ONNX Runtime does, and never reads elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from helpers.networks.graph_builder import Builder
from helpers.networks.small_networks import compiled
from tilewright.compiler.network import index_guard
from tilewright.core.errors import InputError
from tilewright.graph.inputs import IndexRange
from tilewright.models.loading import load_model

pytestmark = pytest.mark.regression

X = np.arange(24, dtype=np.float32).reshape(4, 6)
TABLE = {"x": X}


def model(
    operator: str, data: Mapping[str, np.ndarray], indices: np.ndarray, **named: Any
) -> onnx.ModelProto:
    """One node; `data` are constants, the indices are the network's input."""
    values = [helper.make_tensor_value_info("ids", TensorProto.INT64, indices.shape)]
    names = ["x", "ids"]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **named)],
        operator,
        values,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in data.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


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


def test_indices_that_are_computed_are_checked_each_once() -> None:
    """Two tables share the inputs, one has the sums; the smaller table counts."""
    b = Builder()
    ids = b.input(2, 3, dtype="int64")
    sums = b.add("add", ids, b.constant(np.array(2, np.int64)))
    large, small = b.weight(10, 4), b.weight(8, 5)
    outputs = [
        b.add("gather", large, ids, axis=0),
        b.add("gather", large, sums, axis=0),
        b.add("gather", small, ids, axis=0),
        b.add("gather", b.weight(10, 3), sums, axis=0),
    ]
    _, network = compiled(b.graph(*outputs))
    given = np.array([[0, 1, 2], [3, 4, 7]])
    assert network([given])[1].shape == (2, 3, 4)
    calls = [symbol for symbol, _ in network.time_calls([given], 1)]
    assert sum(symbol.startswith("guard") for symbol in calls) == 3
    for wrong in (8, -9, -13):
        given[0, 1] = wrong
        with pytest.raises(InputError, match=r"index that is not in -\d"):
            network([given])


def test_known_indices_need_no_guard() -> None:
    b = Builder()
    x = b.input(4, 6)
    _, network = compiled(b.graph(b.add("gather", x, b.constant(np.array([3, 0, -1])), axis=0)))
    calls = network.time_calls([np.zeros((4, 6), np.float32)], 1)
    assert not [symbol for symbol, _ in calls if symbol.startswith("guard")]


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_types_and_ranges_per_column(dtype: str) -> None:
    ranges = (IndexRange(lowest=0, highest=2), IndexRange(lowest=-5, highest=300))
    guard = index_guard("guard", (2, 2, 2), dtype, ranges, "reader")
    function = tvm.compile(tvm.IRModule({"guard": guard}), "llvm").jit()["guard"]
    given = np.zeros((2, 2, 2), dtype)
    given[..., 0], given[..., 1] = 2, 100
    function(tvm.runtime.tensor(given))
    given[1, 0, 0] = 3
    with pytest.raises(IndexError, match="'reader' .* 0 … 2, -5 … 300"):
        function(tvm.runtime.tensor(given))


def test_images_of_regions_are_checked() -> None:
    """MaxRoiPool has the number of the image among the floats of a region."""
    images, regions = ("images", [2, 3, 8, 8]), ("regions", [2, 5])
    graph = helper.make_graph(
        [helper.make_node("MaxRoiPool", ["images", "regions"], ["y"], pooled_shape=[2, 2])],
        "regions",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (images, regions)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 2, 2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    _, network = compiled(load_model(made, "regions").graph)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)
    for first, last in ((0, 1), (1, 0.5), (-0.5, 1)):
        given = np.array([[first, 0, 0, 4, 4], [last, 1, 1, 6, 7]], np.float32)
        (wanted,) = session.run(None, {"images": x, "regions": given})
        np.testing.assert_array_equal(network([x, given])[0], wanted)
    for wrong in (2, -1, 5000):
        given = np.array([[0, 0, 0, 4, 4], [wrong, 1, 1, 6, 7]], np.float32)
        with pytest.raises(Exception, match="roi_batch_id"):
            session.run(None, {"images": x, "regions": given})
        with pytest.raises(InputError, match="index that is not in"):
            network([x, given])
