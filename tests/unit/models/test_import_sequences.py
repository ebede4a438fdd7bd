"""Sequences of tensors, which are gone from the graph, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import check, few, model_of, normal, reference, unfolded
from tilewright.core.errors import ModelError, NotCompilable

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def parsed(text: str) -> onnx.ModelProto:
    """A model in ONNX's own notation."""
    return onnx.parser.parse_model(f"{HEAD}\n{text}")


@few
@given(st.data())
def test_every_change_of_a_sequence(data: st.DataObject) -> None:
    draw = data.draw
    axis, size = draw(st.integers(-2, 1)), 6
    constants: dict[str, Any] = {}
    form = draw(st.sampled_from(["one", "scalar", "list"]))
    if form == "scalar":
        constants["parts"] = np.array(draw(st.integers(1, 7)))
    elif form == "list":
        cuts = sorted(draw(st.sets(st.integers(1, size - 1), max_size=4)))
        constants["parts"] = np.diff([0, *cuts, size])
    nodes = [helper.make_node("SplitToSequence", ["x", *constants], ["s"], axis=axis)]
    count = {"one": size, "scalar": -(-size // int(constants.get("parts", np.array(1)).min()))}
    left = count.get(form, constants.get("parts", np.array([])).size)
    last = "s"
    for turn in range(draw(st.integers(0, 3))):
        grow = left < 2 or draw(st.booleans())
        inputs = [last, *["z"] * grow]
        if draw(st.booleans()):
            places = st.integers(-left, left - 1 + grow)
            constants[f"p{turn}"] = np.array(draw(places))
            inputs.append(f"p{turn}")
        operator = "SequenceInsert" if grow else "SequenceErase"
        last, left = f"s{turn}", left + (1 if grow else -1)
        nodes.append(helper.make_node(operator, inputs, [last]))
    constants["at"] = np.array(draw(st.integers(-left, left - 1)))
    nodes.append(helper.make_node("SequenceAt", [last, "at"], ["taken"]))
    nodes.append(helper.make_node("Relu", ["taken"], ["y"]))
    nodes.append(helper.make_node("SequenceLength", [last], ["count"]))
    nodes.append(helper.make_node("ConcatFromSequence", [last], ["whole"], axis=axis))
    inputs = {"x": normal(size, size), "z": normal(size, size, seed=1)}
    outputs = ["y", "count", "whole"]
    model = model_of(nodes, inputs, opset=18, outputs=outputs, constants=constants)
    wanted = reference(model, inputs)
    graph = check(model, inputs)
    assert wanted["count"] == left and graph.types["whole"].shape == wanted["whole"].shape


@pytest.mark.parametrize("keeps", [0, 1])
def test_stacks_and_elements_without_their_axis(keeps: int) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=keeps),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1),
    ]
    check(model_of(nodes, {"x": normal(2, 3, 4)}), {"x": normal(2, 3, 4)})


LOOP = """g (float[8, 4] x) => (float[t, 4] y, int64 n) {
    go = Constant<value = bool {1}>()  zero = Constant<value = int64 {0}>()
    turns = Constant<value = int64 {3}>()  two = Constant<value = int64 {2}>()
    ends = Constant<value = int64[4] {0, 3, 3, 8}>()  nothing = SequenceEmpty()
    last, rows = Loop(turns, go, zero, nothing) <body = body
        (int64 turn, bool going, int64 at, seq(float[1, 4]) s)
        => (bool on, int64 next, seq(float[1, 4]) t) {
            one = Constant<value = int64[1] {1}>()  axes = Constant<value = int64[1] {0}>()
            here = Reshape(at, one)  there = Add(here, one)
            start = Slice(ends, here, there)  second = Add(there, one)
            stop = Slice(ends, there, second)  empty = Equal(start, stop)
            row = If(empty) <then_branch = none () => (float[1, 4] a)
                    { a = Constant<value = float[1, 4] {0, 0, 0, 0}>() },
                else_branch = some () => (float[1, 4] b)
                    { part = Slice(x, start, stop)  b = ReduceSum(part, axes) }>
            t = SequenceInsert(s, row)  flat = Constant<value = int64 {1}>()
            next = Add(at, flat)  on = Identity(going)
        }>
    n = SequenceLength(rows)  y = ConcatFromSequence<axis = 0>(rows)
}"""


def test_a_loop_that_collects_rows_is_written_out() -> None:
    """As PyTorch exports a bag of embeddings."""
    graph = check(parsed(LOOP), {"x": normal(8, 4)})
    assert [node.operator for node in graph.nodes].count("reduce_sum") == 2


def test_a_branch_gives_a_sequence() -> None:
    model = parsed(
        """g (float[2, 3] x) => (float[a, 3] y, float[2, 3] z) {
        c = Constant<value = bool {1}>()
        s = If(c) <then_branch = yes () => (seq(float[2, 3]) a)
                { r = Relu(x)  a = SequenceConstruct(x, r) },
            else_branch = no () => (seq(float[2, 3]) b) { b = SequenceEmpty() }>
        place = Constant<value = int64 {-1}>()  z = SequenceAt(s, place)
        y = ConcatFromSequence<axis = 0>(s) }"""
    )
    check(model, {"x": normal(2, 3)})


def test_a_body_for_each_tensor() -> None:
    model = parsed(
        """g (float[4, 3] x, float[2, 3] w) => (float[4, 3] y, float[4, 3] z) {
        two = Constant<value = int64 {2}>()
        s = SplitToSequence<axis = 0>(x, two)  o = SequenceConstruct(w, w)
        t, u = SequenceMap(s, o, w) <body = body (float[2, 3] a, float[2, 3] b, float[2, 3] c)
            => (float[2, 3] d, float[2, 3] e) { d = Mul(a, b)  e = Sub(a, c) }>
        y = ConcatFromSequence<axis = 0>(t)  z = ConcatFromSequence<axis = 0>(u) }"""
    )
    check(model, {"x": normal(4, 3), "w": normal(2, 3, seed=1)})


def test_an_element_that_is_an_output_and_one_that_is_read_again() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["s"]),
        helper.make_node("SequenceAt", ["s", "zero"], ["y"]),
        helper.make_node("SequenceAt", ["s", "zero"], ["again"]),
        helper.make_node("Neg", ["again"], ["z"]),
        helper.make_node("SequenceConstruct", ["y", "x", "two"][:2], ["u"]),
        helper.make_node("SequenceAt", ["u", "one"], ["same"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "two": np.array(2)}
    outputs = ["y", "z", "same"]
    model = model_of(nodes, {"x": normal(4, 3)}, outputs=outputs, constants=constants)
    check(model, {"x": normal(4, 3)})


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([("SequenceAt", ["s", "three"], ["y"])], "the index 3 is outside"),
        ([("SequenceErase", ["s", "three"], ["t"]), ("SequenceAt", ["t", "zero"], ["y"])], "3 is"),
        ([("SequenceInsert", ["s", "x", "three"], ["t"]), ("SequenceAt", ["t", "zero"], ["y"])],
         "3 is outside"),
        ([("Cast", ["zero"], ["f"]), ("Sqrt", ["f"], ["r"]), ("CastLike", ["r", "zero"], ["n"]),
          ("SplitToSequence", ["x", "n"], ["t"]), ("SequenceAt", ["t", "zero"], ["y"])],
         "parts of 0 elements"),
        ([("Cast", ["squares"], ["f"]), ("Sqrt", ["f"], ["r"]), ("Floor", ["r"], ["i"]),
          ("CastLike", ["i", "zero"], ["shape"]), ("Reshape", ["x", "shape"], ["same"]),
          ("SplitToSequence", ["same", "lone"], ["t"]), ("SequenceAt", ["t", "zero"], ["y"])],
         "do not make 2"),
        ([("SequenceEmpty", [], ["t"]), ("ConcatFromSequence", ["t"], ["y"])], "is empty"),
        ([("SequenceInsert", ["s", "x"], ["y"])], "'y' is no tensor"),
    ],
)  # fmt: skip
def test_what_cannot_be(nodes: list[Any], said: str) -> None:
    named: dict[str, Any] = {"Cast": {"to": 1}, "ConcatFromSequence": {"axis": 0}}
    made = [
        helper.make_node(*each, **named.get(each[0], {}))
        for each in [("SequenceConstruct", ["x", "x"], ["s"]), *nodes]
    ]
    constants = {"zero": np.array(0), "three": np.array(3), "lone": np.array([3])}
    constants["squares"] = np.array([4, 9])
    with pytest.raises(ModelError, match=said):
        unfolded(model_of(made, {"x": normal(2, 3)}, constants=constants))


def test_a_place_that_is_an_input_is_not_compiled() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "place"], ["y"], name="pick"),
    ]
    model = model_of(nodes, {"x": normal(2, 3), "place": np.array(1)})
    with pytest.raises(NotCompilable, match="node 'pick'.* of a sequence depends on the data"):
        unfolded(model)
