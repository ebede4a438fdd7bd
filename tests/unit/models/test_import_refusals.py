"""What is refused by name before any work, and forms that nobody else would take."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.networks.onnx_models import check, check_node, folded, int64, model_of, normal
from tilewright.core.errors import ModelError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import IndexRange, IndexUse, index_uses
from tilewright.graph.network import Applied, Graph, attributes

TRUE = np.array(True)


def one(operator: str, inputs: dict[str, Any], constants: dict[str, Any], **named: Any) -> Graph:
    opset = named.pop("opset", 17)
    outputs = named.pop("outputs", ("y",))
    node = helper.make_node(operator, [*inputs, *constants], outputs, name="node", **named)
    return folded(model_of([node], inputs, opset=opset, outputs=outputs, constants=constants))


STATISTICS = {name: np.ones(3, np.float32) for name in ("scale", "bias", "mean", "variance")}


def test_batch_normalization_that_trains() -> None:
    with pytest.raises(ModelError, match="training mode") as caught:
        one(
            "BatchNormalization", {"x": normal(2, 3, 4, 4)}, STATISTICS,
            training_mode=1, outputs=("y", "running_mean", "running_variance"),
        )  # fmt: skip
    assert "node" in caught.value.message and "eval()" in (caught.value.hint or "")


@pytest.mark.regression
def test_the_second_output_of_a_pooling() -> None:
    image = {"x": normal(1, 2, 4, 4)}
    with pytest.raises(ModelError, match=r"'MaxPool'.*second output") as caught:
        one("MaxPool", image, {}, kernel_shape=[2, 2], outputs=("y", "i"))
    assert "Cut the network" in (caught.value.hint or "")
    check_node("MaxPool", image, kernel_shape=[2, 2], outputs=("y", ""))


def test_dropout_that_trains() -> None:
    ratio = np.array(0.5, np.float32)
    with pytest.raises(ModelError, match="training mode"):
        one("Dropout", {"x": normal(2, 3)}, {"ratio": ratio, "training": TRUE})
    with pytest.raises(ModelError, match="depends on the data"):
        one("Dropout", {"x": normal(2, 3), "ratio": ratio, "training": TRUE}, {})
    check_node("Dropout", {"x": normal(2, 3)}, constants={"ratio": ratio, "training": ~TRUE})


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "int16", "uint16"])
def test_types_that_cannot_be_sorted(dtype: str) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    with pytest.raises(ModelError, match=f"'TopK' of {dtype}"):
        one("TopK", {"x": x}, {"k": int64(2)}, outputs=("y", "i"), opset=24)


@pytest.mark.parametrize("operator", ["Cosh", "Sinh"])
def test_hyperbolic_functions(operator: str) -> None:
    x = np.array([0.0, -1e-5, 1e-3, -0.5, 0.99, 1.01, -3.0, 20.0, 88.9, -89.2], np.float32)
    graph = check_node(operator, {"x": x})
    exact = getattr(np, operator.lower())(x.astype(np.float64))
    np.testing.assert_allclose(run_graph(graph, {"x": x})["y"], exact, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@pytest.mark.parametrize("upper", [0, 1])
def test_a_triangle_whose_offset_is_an_input(dtype: str, upper: int) -> None:
    x = np.ones((2, 3, 4)).astype(dtype)
    for offset in (-2, 0, 1):
        check_node("Trilu", {"x": x, "k": np.array(offset)}, upper=upper)


def test_results_without_elements() -> None:
    """Cut away, joined, multiplied: nothing is left of it, or zeros."""
    nodes = [
        helper.make_node("Slice", ["x", "start", "stop"], ["none"]),
        helper.make_node("Relu", ["none"], ["still"]),
        helper.make_node("MatMul", ["turned", "still"], ["zeros"]),
        helper.make_node("Transpose", ["still"], ["turned"]),
        helper.make_node("Concat", ["x", "none"], ["same"], axis=0),
    ]
    nodes.sort(key=lambda node: node.op_type == "MatMul")
    constants = {"start": int64(4), "stop": int64(9)}
    outputs = ("still", "zeros", "same")
    model = model_of(nodes, {"x": normal(4, 3)}, outputs=outputs, constants=constants)
    graph = check(model, {"x": normal(4, 3)})
    assert graph.types["still"].shape == (0, 3) and graph.types["zeros"].shape == (3, 3)


@pytest.mark.parametrize("given", ["x", ""])
def test_a_tensor_is_an_optional(given: str) -> None:
    node = helper.make_node("OptionalHasElement", [given] if given else [], ["y"], name="node")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", TensorProto.BOOL, [])
    model = helper.make_model(
        helper.make_graph([node], "test", [value], [result]),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=8,
    )  # fmt: skip
    graph = folded(model)
    (identity,) = graph.nodes
    assert graph.constants[identity.inputs[0]] == bool(given)


def test_bfloat16_outside_the_vocabulary_is_computed_in_single() -> None:
    shape = [2, 3, 3]
    values = [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, shape) for n in "ab"]
    result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, shape)
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation="bjj,bik->bik", name="node")
    model = helper.make_model(
        helper.make_graph([node], "test", values, [result]),
        opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())],
    )  # fmt: skip
    graph = folded(model)
    assert sorted(n.operator for n in graph.nodes) == ["cast", "cast", "cast", "opaque"]
    (inner,) = (node for node in graph.nodes if node.operator == "opaque")
    assert {graph.types[t].dtype for t in (*inner.inputs, *inner.outputs)} == {"float32"}
    assert graph.types["y"].dtype == "bfloat16"


def test_indices_beside_bfloat16_stay_integers() -> None:
    table = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [4, 6])
    indices = helper.make_tensor_value_info("i", TensorProto.INT64, [2, 3])
    result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 3])
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], name="node")
    graph = folded(
        helper.make_model(
            helper.make_graph([node], "test", [table, indices], [result]),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    )
    (inner,) = (node for node in graph.nodes if node.operator == "opaque")
    assert [graph.types[name].dtype for name in inner.inputs] == ["float32", "int64"]
    assert "i" in inner.inputs and graph.types["y"].dtype == "bfloat16"


def uses(graph: Graph) -> list[tuple[str, tuple[IndexRange, ...]]]:
    """The tensors that hold indices of opaque nodes, with their ranges."""
    return [
        (node.inputs[use.port], use.ranges)
        for node in graph.nodes
        for use in index_uses(node, [graph.types[t] for t in node.inputs])
    ]


AXES = (IndexRange.of_axis(4), IndexRange.of_axis(6))


@pytest.mark.parametrize(
    ("operator", "ids", "rest", "named", "ranges"),
    [
        ("Gather", (3,), (), {"axis": 1}, AXES[1:]),
        ("GatherElements", (4, 2), (), {"axis": -1}, AXES[1:]),
        ("GatherND", (3, 2), (), {}, AXES),
        ("GatherND", (4, 1), (), {"batch_dims": 1}, AXES[1:]),
        ("ScatterElements", (2, 6), (2, 6), {"axis": 0}, AXES[:1]),
        ("ScatterND", (2, 1), (2, 6), {}, AXES[:1]),
    ],
)
def test_operators_that_index(operator, ids, rest, named, ranges) -> None:
    """Also with constants in between, which move into the node."""
    inputs = {"x": normal(4, 6), "ids": np.zeros(ids, np.int64)}
    inputs |= {"updates": normal(*rest)} if rest else {}
    assert uses(one(operator, inputs, {}, **named)) == [("ids", ranges)]
    if not rest:
        node = helper.make_node(operator, ["x", "ids"], ["y"], **named)
        table = {"x": inputs.pop("x")}
        graph = folded(model_of([node], inputs, constants=table))
        assert uses(graph) == [("ids", ranges)]


@pytest.mark.parametrize(
    ("operator", "ids"),
    [("Gather", [4]), ("Gather", [0, -5]), ("GatherElements", [[9] * 6]), ("GatherND", [[0, 6]])],
)
def test_known_indices_out_of_range(operator: str, ids: list[Any]) -> None:
    node = helper.make_node(operator, ["x", "ids"], ["y"], name="node")
    model: onnx.ModelProto = model_of(
        [node], {"x": normal(4, 6)}, constants={"ids": np.array(ids, np.int64)}
    )
    with pytest.raises(ModelError, match=r"node.*is outside -\d … \d"):
        folded(model)


@pytest.mark.parametrize(
    ("operator", "shape", "ids"),
    [
        ("Gather", (), [0]),
        ("GatherElements", (), [0, 1]),
        ("GatherND", (4, 6), [[0, 0, 0]]),
        ("GatherND", (), [[0]]),
        ("GatherND", (4, 6), 0),
    ],
)
def test_indices_that_no_element_has(operator: str, shape: tuple[int, ...], ids: Any) -> None:
    """Shape inference lets some of these through, since the results' shapes are given."""
    node = helper.make_node(operator, ["x", "ids"], ["y"], name="node")
    model: onnx.ModelProto = model_of(
        [node], {"x": normal(*shape)}, constants={"ids": np.array(ids, np.int64)}
    )
    with pytest.raises(ModelError, match="node"):
        folded(model)


def test_several_uses_in_one_text() -> None:
    text = "[[0,[[0,9]]],[1,[[0,1]]]]"
    node = Applied(operator="opaque", attributes=attributes(indices=text))
    assert index_uses(node, []) == (
        IndexUse(port=0, ranges=(IndexRange(lowest=0, highest=9),)),
        IndexUse(port=1, ranges=(IndexRange(lowest=0, highest=1),)),
    )
