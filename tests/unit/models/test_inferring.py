"""What ONNX itself tells of the types in a file, and what it may not know."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import check, folded, model_of, normal
from tilewright.core.errors import ModelError
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


def old(operator_set: int) -> onnx.ModelProto:
    """Operators whose attributes were others once."""
    nodes = [
        helper.make_node("Upsample", ["x"], ["u"], scales=[1.0, 1.0, 2.0, 3.0]),
        helper.make_node("BatchNormalization", ["u", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Less", ["n", "x0"], ["y"]),
    ]
    constants = {name: np.abs(normal(3, seed=seed)) for seed, name in enumerate("sbmv")}
    constants["x0"] = normal(3, 1, 1)
    return model_of(nodes, {"x": normal(2, 3, 4, 2)}, opset=operator_set, constants=constants)


@pytest.mark.parametrize("operator_set", [7, 8])
def test_old_operator_sets_are_raised(operator_set: int) -> None:
    check(old(operator_set), {"x": normal(2, 3, 4, 2)})


def test_what_cannot_be_raised_is_named() -> None:
    scanned = helper.make_node("Scan", ["", "x"], ["y"], num_scan_inputs=1, body=old(8).graph)
    with pytest.raises(ModelError, match=r"cannot be raised to 9: 'Scan' before operator set 9"):
        folded(model_of([scanned], {"x": [1, 4, 2]}, opset=8))


def test_a_model_without_operators_of_onnx_names_no_operator_set() -> None:
    made = model_of([RELU], {"x": [2, 3]}, outputs=("t",))
    made.opset_import[0].domain = made.graph.node[0].domain = "somebody.else"
    (inner,) = folded(made).nodes
    assert inner.operator == "opaque"
    made.graph.node[0].domain = ""
    with pytest.raises(ModelError, match="operator set that the model does not name"):
        folded(made)


def test_inputs_without_elements_are_known() -> None:
    """No axes to sum over are all of them; nothing beside something is the latter."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["y"]),
        helper.make_node("Concat", ["x", "none"], ["z"], axis=0),
        helper.make_node("Relu", ["none"], ["still"]),
    ]
    feed = {"x": normal(2, 3), "axes": np.zeros(0, np.int64), "none": normal(0, 3)}
    check(model_of(nodes, feed, outputs=("y", "z", "still")), feed)
