"""Sizes and axes that are inputs of the network: what the shape of the result tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import check, folded, int64, model_of, normal, reference
from tilewright.core.errors import InputError, ModelError
from tilewright.deploy.network_calls import require_valid_indices
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import input_ranges, random_inputs

Array = np.ndarray[Any, Any]


def model(operator: str, feed: dict[str, Array], names: Sequence[str] = (), **named: Any) -> Any:
    """A node whose results have the shapes that ONNX Runtime gives them, and say so."""
    count = named.pop("results", 1)
    outputs = [f"y{index}" for index in range(count)]
    node = helper.make_node(operator, [*(names or feed)], outputs, name="node", **named)
    made = model_of([node], feed, opset=18, outputs=outputs)
    for value, (name, array) in zip(made.graph.output, reference(made, feed).items(), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(name, kind, array.shape))
    return made


X = normal(2, 3, 4)
EXACT: dict[str, Any] = {
    "Tile": ({"x": X, "i": int64(2, 1, 3)}, {}),
    "Split": ({"x": X, "i": int64(1, 3)}, {"axis": 2, "results": 2}),
    "ConstantOfShape": ({"i": int64(2, 3)}, {}),
    "OneHot": ({"x": int64(1, 0, 2), "i": int64(4), "v": np.array([2, 3], np.float32)}, {}),
    "Resize": ({"x": normal(1, 1, 3, 3), "i": int64(1, 1, 5, 4)},
               {"names": ["x", "", "", "i"], "mode": "linear"}),
}  # fmt: skip
OPEN: dict[str, Any] = {
    "Reshape": ({"x": X, "i": int64(4, -1)}, {}),
    "Expand": ({"x": normal(3, 1), "i": int64(2, 1, 4)}, {}),
    "Unsqueeze": ({"x": X, "i": int64(-1, 0)}, {}),
    "Squeeze": ({"x": normal(1, 3, 1), "i": int64(-1)}, {}),
}


@pytest.mark.parametrize("operator", [*EXACT, *OPEN])
def test_the_shape_of_the_result_tells_it(operator: str) -> None:
    """Random inputs hold what is valid, and the border refuses what cannot be."""
    feed, named = (EXACT | OPEN)[operator]
    made = model(operator, feed, **named)
    graph = check(made, feed)
    inputs = random_inputs(graph, 3)
    for name, array in reference(made, inputs).items():
        np.testing.assert_allclose(run_graph(graph, inputs)[name], array, atol=1e-5)
    ranges = input_ranges(graph)
    assert ("i" in ranges) == (operator in EXACT)
    if operator in EXACT:
        np.testing.assert_array_equal(inputs["i"], feed["i"])
        require_valid_indices("i", feed["i"], ranges["i"])
        with pytest.raises(InputError, match=r"input 'i' is .* sizes, which must be \d+ there"):
            require_valid_indices("i", feed["i"] + 1, ranges["i"])


@pytest.mark.parametrize("start", [-3, 5])
def test_a_range_whose_length_is_told(start: int) -> None:
    feed = {"a": np.asarray(start), "b": np.asarray(start + 7), "c": np.asarray(3)}
    check(model("Range", feed), feed)


def test_how_many_of_the_largest() -> None:
    feed = {"x": normal(2, 9), "k": int64(3)}
    (node,) = folded(model("TopK", feed, results=2)).nodes
    assert node.operator == "opaque" and node.inputs == ("x",)


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceL2", "ReduceLogSumExp", "ReduceMax"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(1,), (-1,), (0, 2), (-2, 0)], ids=str)
def test_axes_of_a_reduction(operator: str, keepdims: int, axes: tuple[int, ...]) -> None:
    """Of axes of one length the network chooses those that it is told."""
    feed = {"x": normal(3, 2, 2), "i": int64(*axes)}
    made = model(operator, feed, keepdims=keepdims)
    graph = check(made, feed)
    inputs = random_inputs(graph, 1)
    assert reference(made, inputs)["y0"].shape == graph.types["y0"].shape


def test_axes_that_give_another_shape() -> None:
    graph = folded(model("ReduceSum", {"x": normal(3, 2, 2), "i": int64(1)}, keepdims=0))
    with pytest.raises(IndexError):
        run_graph(graph, {"x": normal(3, 2, 2), "i": int64(0)})


@pytest.mark.parametrize("axis", [-3, 0, 1, 2])
def test_the_axis_of_a_running_sum(axis: int) -> None:
    feed = {"x": normal(2, 3, 4), "i": np.asarray(axis)}
    check(model("CumSum", feed), feed)


def test_a_shape_that_only_the_result_of_the_next_operators_tells() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "i"], ["s"], keepdims=0),
        helper.make_node("Exp", ["s"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=onnx.TensorProto.DOUBLE),
    ]
    feed = {"x": normal(3, 2, 4), "i": int64(2, 0)}
    made = model_of(nodes, feed)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 11, [2]))
    check(made, feed)


def test_what_no_shape_tells_is_left_to_others() -> None:
    """Padding before or behind, a part from anywhere: the importer of TVM refuses them later."""
    for operator, values in (("Pad", int64(1, 0, 1, 0)), ("Slice", int64(0, 1))):
        feed = {"x": normal(2, 3), "i": values}
        feed |= {"j": int64(2, 3)} if operator == "Slice" else {}
        assert [n.operator for n in folded(model(operator, feed)).nodes] == ["opaque"]
    unknown = helper.make_node("Reshape", ["x", "i"], ["y"], name="node")
    with pytest.raises(ModelError, match="depends on the data"):
        folded(model_of([unknown], {"x": normal(2, 3), "i": int64(3, 2)}))
