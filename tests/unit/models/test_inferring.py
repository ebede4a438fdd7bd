"""What ONNX itself tells of the types in a file, and what it may not know."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from tilewright.models import clean


def model(*nodes: onnx.NodeProto, result: tuple[int, ...]) -> bytes:
    """A file with `x` of 2 × 3 and a declared result `y`."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("somebody.else", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def shapes(content: bytes) -> dict[str, list[int]]:
    """The shapes of what lies between inputs and outputs."""
    inferred = onnx.load_model_from_string(clean.infer(content))
    return {
        value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in inferred.graph.value_info
    }


RELU, TURNED = helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Transpose", ["t"], ["y"])


def test_types_between_nodes_are_told() -> None:
    assert shapes(model(RELU, TURNED, result=(3, 2))) == {"t": [2, 3]}


def test_shapes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(onnx.shape_inference.InferenceError, match="ShapeInferenceError"):
        clean.infer(model(RELU, TURNED, result=(5, 5)))


def test_beside_operators_of_others_what_can_be_told_is_told() -> None:
    """Their results are not known, and that is no contradiction."""
    foreign = helper.make_node("Squeeze", ["t"], ["y"], domain="somebody.else")
    assert shapes(model(RELU, foreign, result=(5, 5))) == {"t": [2, 3]}
    beside = helper.make_node("Squeeze", ["t"], ["z"], domain="somebody.else")
    assert shapes(model(RELU, TURNED, beside, result=(5, 5)))["t"] == [2, 3]
