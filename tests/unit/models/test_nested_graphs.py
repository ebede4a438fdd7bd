"""What branches and bodies read of the tensors around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.models.onnx_model import label_of, nested_graphs, read_inside


def graph(
    nodes: list[onnx.NodeProto], outputs: list[str], inputs: tuple[str, ...] = ()
) -> onnx.GraphProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,))

    weight = numpy_helper.from_array(np.ones(2, np.float32), "weight")
    return helper.make_graph(
        nodes, "body", [value(name) for name in inputs], [value(n) for n in outputs], [weight]
    )


def node(operator: str, *inputs: str, to: str, **bodies: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node(operator, list(inputs), [to], **bodies)


def test_a_body_has_tensors_of_its_own() -> None:
    """Inputs, weights, and what its nodes write; inputs left out are none."""
    steps = [node("Mul", "x", "weight", to="a"), node("Clip", "a", "", "limit", to="b")]
    body = graph(steps, ["b"], inputs=("x",))
    assert read_inside(node("Scan", "given", to="y", body=body)) == ["limit"]
    closed = graph(steps[:1], ["a"], inputs=("x",))
    assert read_inside(node("Scan", "given", to="y", body=closed)) == []


def test_what_is_handed_on_counts_as_read() -> None:
    """A branch may have no nodes at all, and give a tensor from outside as its result."""
    then, other = graph([], ["outside"]), graph([node("Relu", "u", to="v")], ["v"])
    choice = node("If", "condition", to="y", then_branch=then, else_branch=other)
    assert read_inside(choice) == ["u", "outside"], "by the name of the branch"
    assert [len(each.node) for each in nested_graphs(choice)] == [1, 0]


def test_branches_within_branches_are_looked_into() -> None:
    """What the outer one has of its own is not from outside for the inner one."""
    inner = graph([node("Add", "own", "far", to="s")], ["s"])
    choice = node("If", "near", to="chosen", then_branch=inner, else_branch=inner)
    outer = graph([node("Relu", "x", to="own"), choice], ["chosen"], inputs=("x",))
    assert read_inside(node("Loop", "n", "c", to="y", body=outer)) == ["near", "far", "far"]
    assert read_inside(node("Relu", "x", to="y")) == []


def test_a_node_is_called_by_its_name_or_its_place() -> None:
    assert label_of(helper.make_node("Relu", ["x"], ["y"], name="act"), 3) == "'act'"
    assert label_of(helper.make_node("Relu", ["x"], ["y"]), 3) == "'Relu_3'"
