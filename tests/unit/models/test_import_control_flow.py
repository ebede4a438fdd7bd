"""Branches and loops, written out when a network is imported, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from helpers.networks.onnx_models import check, folded, normal, unfolded
from tilewright.core.errors import ModelError
from tilewright.models.onnx_import import control_flow

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
TURNS = np.arange(8, dtype=np.float32)
BRANCHES = """
    <then_branch = yes () => (float[2, 3] a) { a = Relu(x) },
     else_branch = no () => (float[2, 3] b) { m = Neg(x)  b = Exp(m) }>
"""
SUMMING = """
    one = Constant<value = int64 {1}>()
    last, every = Loop(turns, go, x) <body = body
        (int64 turn, bool going, float[2, 3] s) => (bool on, float[2, 3] t, float[2, 3] u)
        { f = Cast<to = 1>(turn)  t = Add(s, f)  u = Mul(t, x)  on = Identity(going) }>
"""


def parsed(text: str) -> onnx.ModelProto:
    """A model in ONNX's own notation."""
    return onnx.parser.parse_model(f"{HEAD}\n{text}")


def operators(model: onnx.ModelProto) -> list[str]:
    """Those of our graph without ONNX Runtime's folding."""
    return [node.operator for node in unfolded(model).nodes]


@pytest.mark.parametrize("taken", [0, 1])
def test_a_condition_that_is_known_leaves_one_branch(taken: int) -> None:
    model = parsed(
        f"""g (float[2, 3] x) => (float[2, 3] y)
        {{ number = Constant<value = int64 {{{taken}}}>()  c = Cast<to = 9>(number)
           y = If(c) {BRANCHES} }}"""
    )
    check(model, {"x": normal(2, 3)})
    assert operators(model) == (["relu"] if taken else ["negative", "exp"])


@pytest.mark.parametrize("taken", [False, True])
def test_of_a_condition_on_the_data_both_branches_are_computed(taken: bool) -> None:
    model = parsed(f"g (float[2, 3] x, bool c) => (float[2, 3] y) {{ y = If(c) {BRANCHES} }}")
    graph = check(model, {"x": normal(2, 3), "c": np.asarray(taken)})
    assert "where" in [node.operator for node in graph.nodes]


def test_branches_may_read_each_others_surroundings() -> None:
    """What was computed before, a constant of the branch, and the input itself."""
    model = parsed(
        """g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z)
        { before = Exp(x)
          y, z = If(c)
            <then_branch = yes () => (float[2, 3] a, float[2, 3] d)
               { a = Add(before, x)  d = Identity(before) },
             else_branch = no () => (float[2, 3] b, float[2, 3] e)
               <float two = {2.0}> { b = Mul(before, two)  e = Identity(b) }> }"""
    )
    check(model, {"x": normal(2, 3), "c": np.asarray(True)})
    check(model, {"x": normal(2, 3), "c": np.asarray(False)})


def test_a_branch_with_indices_of_its_own_is_not_computed_in_vain() -> None:
    """They may be valid only where it is taken."""
    model = parsed(
        """g (float[4, 3] x, int64[2] i, bool c) => (float[2, 3] y)
        { y = If(c)
            <then_branch = yes () => (float[2, 3] a) { a = Gather<axis = 0>(x, i) },
             else_branch = no () => (float[2, 3] b)
               { s = Constant<value = int64[1] {0}>()  e = Constant<value = int64[1] {2}>()
                 b = Slice(x, s, e) }> }"""
    )
    with pytest.raises(ModelError, match="'If' reads 'x' from outside"):
        folded(model)


@pytest.mark.parametrize("turns", [1, 4])
def test_a_loop_of_known_length(turns: int) -> None:
    model = parsed(
        f"""g (float[2, 3] x) => (float[2, 3] last, float[{turns}, 2, 3] every)
        {{ turns = Constant<value = int64 {{{turns}}}>()  yes = Constant<value = int64 {{1}}>()
           go = Cast<to = 9>(yes) {SUMMING} }}"""
    )
    check(model, {"x": normal(2, 3)})


def test_a_loop_that_ends_by_what_it_counts() -> None:
    model = parsed(
        """g (float[2, 3] x) => (float[2, 3] last)
        { most = Constant<value = int64 {9}>()  end = Constant<value = int64 {3}>()
          last = Loop(most, , x) <body = body
            (int64 turn, bool going, float[2, 3] s) => (bool on, float[2, 3] t)
            { t = Mul(s, s)  on = Less(turn, end) }> }"""
    )
    check(model, {"x": normal(2, 3)})
    assert operators(model) == ["multiply"] * 4


def test_loops_inside_each_other() -> None:
    model = parsed(
        """g (float[2, 3] x) => (float[2, 3] last)
        { n = Constant<value = int64 {2}>()
          last = Loop(n, , x) <body = outer
            (int64 i, bool a, float[2, 3] s) => (bool b, float[2, 3] t)
            { b = Identity(a)
              t = Loop(n, , s) <body = inner
                (int64 j, bool c, float[2, 3] u) => (bool d, float[2, 3] v)
                { d = Identity(c)  w = Add(u, x)  k = Add(i, j)  f = Cast<to = 1>(k)
                  v = Mul(w, f) }> }> }"""
    )
    check(model, {"x": normal(2, 3)})


@pytest.mark.parametrize(
    ("words", "names"),
    [("turns", "int64 turns"), ("condition", "bool go")],
)
def test_a_loop_whose_end_depends_on_the_data_is_refused(words: str, names: str) -> None:
    known = {
        "turns": "yes = Constant<value = int64 {1}>()  go = Cast<to = 9>(yes)",
        "condition": "turns = Constant<value = int64 {4}>()",
    }
    model = parsed(
        f"""g (float[2, 3] x, {names}) => (float[2, 3] last, float[n, 2, 3] every)
        {{ {known[words]} {SUMMING} }}"""
    )
    with pytest.raises(ModelError, match="'Loop' reads 'x' from outside"):
        folded(model)


def test_a_loop_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "MOST_TENSORS", 60)
    model = parsed(
        """g (float[2, 3] x) => (float[2, 3] last)
        { last = Loop(, , x) <body = body
            (int64 turn, bool going, float[2, 3] s) => (bool on, float[2, 3] t)
            { t = Mul(s, s)  on = Identity(going) }> }"""
    )
    with pytest.raises(ModelError, match="after 21 turns it is more than 60 tensors"):
        unfolded(model)


@pytest.mark.parametrize("work", ["t = Identity(s)", "t = Mul(s, s)"])
def test_hostile_loops_end(work: str) -> None:
    """Also those whose turns compute nothing, and loops of such inside each other."""
    endless = f"""Loop(, , s) <body = inner
        (int64 j, bool c, float[2, 3] s) => (bool d, float[2, 3] t)
        {{ {work}  d = Identity(c) }}>"""
    model = parsed(
        f"""g (float[2, 3] x) => (float[2, 3] last)
        {{ n = Constant<value = int64 {{4611686018427387904}}>()
          last = Loop(n, , x) <body = outer
            (int64 i, bool a, float[2, 3] s) => (bool b, float[2, 3] u)
            {{ b = Identity(a)  u = {endless} }}> }}"""
    )
    with pytest.raises(ModelError, match="it is more than 4,000 tensors"):
        unfolded(model)


@pytest.mark.parametrize(("condition", "shape"), [("int64[0] {}", (0,)), ("int64[2] {1, 1}", (2,))])
def test_a_condition_is_one_element(condition: str, shape: tuple[int, ...]) -> None:
    model = parsed(
        f"""g (float[2, 3] x) => (float[2, 3] y)
        {{ n = Constant<value = {condition}>()  c = Cast<to = 9>(n)  y = If(c) {BRANCHES} }}"""
    )
    with pytest.raises(ModelError, match="If"):
        folded(model)


def scan_model(named: Mapping[str, Any], shapes: tuple[tuple[int, ...], ...]) -> onnx.ModelProto:
    """A running sum of products of parts of two inputs, and the parts' differences."""
    part = helper.make_tensor_value_info

    body = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["p"]), helper.make_node("Add", ["s", "p"], ["t"]),
         helper.make_node("Sub", ["a", "t"], ["d"]), helper.make_node("Identity", ["t"], ["k"])],
        "body",
        [part(name, TensorProto.FLOAT, (3,)) for name in "sab"],
        [part(name, TensorProto.FLOAT, (3,)) for name in "tdk"],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["s0", "x", "y"], ["t", "d", "k"], body=body, num_scan_inputs=2, **named
    )
    values = zip(("s0", "x", "y"), ((3,), *shapes), strict=True)
    graph = helper.make_graph(
        [node],
        "g",
        [part(name, TensorProto.FLOAT, shape) for name, shape in values],
        [part(name, TensorProto.FLOAT, None) for name in "tdk"],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


directions = st.lists(st.integers(0, 1), min_size=2, max_size=2)
axes = st.lists(st.integers(-2, 1), min_size=2, max_size=2)


@settings(max_examples=20, deadline=None)
@given(directions, directions, axes, axes, st.integers(1, 4))
def test_scans_in_all_directions_along_all_axes(
    inward: list[int], outward: list[int], scanned: list[int], stacked: list[int], length: int
) -> None:
    shapes = tuple((length, 3) if axis in (0, -2) else (3, length) for axis in scanned)
    named = {"scan_input_axes": scanned, "scan_input_directions": inward}
    named |= {"scan_output_axes": stacked, "scan_output_directions": outward}
    feed = {"s0": normal(3), "x": normal(*shapes[0], seed=1), "y": normal(*shapes[1], seed=2)}
    check(scan_model(named, shapes), feed)
