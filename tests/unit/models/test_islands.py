"""Cutting islands out of a network: what goes in, what stays outside, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import model_of, normal, reference, session_of
from tilewright.core.errors import ModelError, NotCompilable
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import UNKNOWN, Graph, Node, TensorType
from tilewright.models import ModelOptions
from tilewright.models.loaded import LoadedModel
from tilewright.models.loading import load_model, with_islands
from tilewright.models.onnx_import.islands import Island, Refusal, cut

REFUSAL = Refusal(error=NotCompilable("no kernel"))
FOLLOWS = Refusal(error=NotCompilable("reads it"), follows=True)


def node(reads: Sequence[str], *writes: str, operator: str = "Relu") -> onnx.NodeProto:
    return helper.make_node(operator, list(reads), list(writes), name=f"n_{writes[0]}")


def loaded(model: onnx.ModelProto, islands: Any = "run") -> Graph:
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    return load_model(copy, "test", ModelOptions(islands=islands)).graph


def islands_of(graph: Graph) -> list[Node]:
    return [each for each in graph.nodes if each.named.get("island")]


def engine(model: str, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime makes of an opaque operator's model."""
    from base64 import b64decode

    session = session_of(onnx.load_model_from_string(b64decode(model)))
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def right(model: onnx.ModelProto, **feed: np.ndarray[Any, Any]) -> Graph:
    """The graph, whose outputs are those of ONNX Runtime."""
    graph = loaded(model)
    found = run_graph(graph, feed, opaque=engine)
    for name, wanted in reference(model, feed).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
        assert graph.types[name].admits(wanted.shape)
    return graph


DYNAMIC = [
    helper.make_node("Relu", ["x"], ["r"], name="relu"),
    helper.make_node("NonZero", ["r"], ["where"], name="find"),
    helper.make_node("Transpose", ["where"], ["places"], name="turn", perm=[1, 0]),
    helper.make_node("GatherND", ["r", "places"], ["taken"], name="take"),
    helper.make_node("ReduceSum", ["taken"], ["sum"], name="add", keepdims=1),
    helper.make_node("Tanh", ["r"], ["t"], name="tanh"),
    helper.make_node("Mul", ["t", "sum"], ["y"], name="scale"),
]


def test_a_shape_that_depends_on_the_data_stays_inside() -> None:
    graph = right(model_of(DYNAMIC, {"x": [2, 9]}), x=normal(2, 9))
    (island,) = islands_of(graph)
    nodes, reason = json.loads(str(island.attribute("island")))
    assert nodes == ["find", "turn", "take", "add"]
    assert "'find'" in reason and "depends on the data" in reason and "reads" not in reason
    assert [each.operator for each in graph.nodes] == ["relu", "tanh", "opaque", "multiply"]
    assert all(kind.is_static for kind in graph.types.values())


def test_an_output_of_unknown_shape() -> None:
    model = model_of(DYNAMIC, {"x": [2, 9]}, outputs=("y", "taken", "where"))
    graph = right(model, x=normal(2, 9))
    assert graph.types["taken"] == TensorType((UNKNOWN,))
    assert str(graph.types["where"]) == "int64[2,?]"
    assert len(islands_of(graph)) == 1


def test_it_can_be_refused() -> None:
    with pytest.raises(ModelError, match=r"'find'.*depends on the data"):
        loaded(model_of(DYNAMIC, {"x": [2, 9]}), "refuse")


def test_a_loop_whose_length_is_an_input() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x, int64 turns) => (float[2, 3] y)
        { go = Constant<value = int64 {1}>()  yes = Cast<to = 9>(go)  k = Tanh(x)
          last = Loop(turns, yes, x) <body = b (int64 turn, bool on, float[2, 3] s)
            => (bool still, float[2, 3] t) { t = Add(s, k)  still = Identity(on) }>
          y = Relu(last) }"""
    graph = right(onnx.parser.parse_model(text), x=normal(2, 3), turns=np.array(3))
    assert [each.operator for each in graph.nodes] == ["tanh", "opaque"]
    assert graph.nodes[-1].inputs == ("turns", "x", "k")


SEQUENCE = [
    helper.make_node("SequenceEmpty", [], ["nothing"], name="begin"),
    helper.make_node("Relu", ["x"], ["r"], name="relu"),
    helper.make_node("SequenceInsert", ["nothing", "r"], ["one"], name="insert"),
    helper.make_node("SequenceInsert", ["one", "x"], ["two"], name="again"),
    helper.make_node("SequenceAt", ["two", "place"], ["taken"], name="pick"),
    helper.make_node("SequenceLength", ["one"], ["length"], name="count"),
    helper.make_node("Neg", ["taken"], ["y"], name="negate"),
]


def test_a_sequence_stays_whole() -> None:
    """Of what goes through it, and of what it comes from, only tensors cross the border."""
    model = model_of(SEQUENCE, {"x": [2, 3], "place": np.array(1)}, outputs=("y", "length"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2, 3]))
    graph = right(model, x=normal(2, 3), place=np.array(1))
    (island,) = islands_of(graph)
    nodes, reason = json.loads(str(island.attribute("island")))
    assert nodes == ["begin", "insert", "again", "pick", "count"]
    assert "'pick'" in reason and "'begin'" not in reason
    assert [each.operator for each in graph.nodes] == ["relu", "opaque", "negative"]


def test_a_sequence_that_grows_in_a_loop_of_unknown_length() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x, int64 turns) => (float[rows, 3] y, float[2, 3] z) {
            go = Constant<value = bool {1}>()  s = SequenceEmpty()  r = Relu(x)
            last = Loop(turns, go, s) <body = body
                (int64 turn, bool going, seq(float[2, 3]) t)
                => (bool on, seq(float[2, 3]) u) { u = SequenceInsert(t, r)  on = Identity(going) }>
            y = ConcatFromSequence<axis = 0>(last)  z = Neg(r)
        }"""
    )
    graph = right(model, x=normal(2, 3), turns=np.array(4))
    assert sorted(each.operator for each in graph.nodes) == ["negative", "opaque", "relu"]


def test_foreign_operators_tell_their_shapes() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[3, 3] x) => (float[3, 3] y) { i = com.microsoft.Inverse(x)  y = Relu(i) }"""
    graph = right(onnx.parser.parse_model(text), x=normal(3, 3) + 4 * np.eye(3, dtype=np.float32))
    assert [each.operator for each in graph.nodes] == ["opaque", "relu"]


def test_weights_stay_in_the_network() -> None:
    table, few = normal(40, 3), np.array([1, 2], np.int64)
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"], name="find"),
        helper.make_node("Gather", ["n", "few"], ["f"], name="few", axis=0),
        helper.make_node("Gather", ["table", "f"], ["y"], name="look"),
    ]
    constants = {"table": table, "few": few - 1}
    model = model_of(nodes, {"x": [2, 9]}, constants=constants)
    (island,) = islands_of(right(model, x=normal(2, 9)))
    assert island.inputs == ("x", "table")


def untaken(model: onnx.ModelProto) -> LoadedModel:
    """The model with its opaque nodes as islands, as if TVM had taken none of them."""
    given = load_model(model, "test")
    nodes = [each.name for each in given.graph.nodes if each.operator == "opaque"]
    return with_islands(given, {name: NotCompilable(f"{name} is too much") for name in nodes})


def test_what_the_compiler_does_not_take_becomes_one() -> None:
    x = normal(1, 2, 4, 4)
    indices = np.array([[[[0, 5], [9, 14]]] * 2], np.int64)
    pooled = helper.make_node(
        "MaxUnpool", ["x", "i"], ["y"], name="back", kernel_shape=[2, 2], strides=[2, 2]
    )
    model = model_of([pooled], {"x": x[:, :, :2, :2], "i": indices})
    graph = untaken(onnx.ModelProto.FromString(model.SerializeToString())).graph
    (island,) = islands_of(graph)
    assert json.loads(str(island.attribute("island"))) == [["back"], "back is too much"]
    feed = {"x": x[:, :, :2, :2], "i": indices}
    np.testing.assert_array_equal(
        run_graph(graph, feed, opaque=engine)["y"], reference(model, feed)["y"]
    )


@pytest.mark.parametrize("operator", ["RandomNormalLike", "Bernoulli"])
def test_random_numbers_are_refused(operator: str) -> None:
    with pytest.raises(ModelError, match="too much"):
        untaken(model_of([node(["x"], "y", operator=operator)], {"x": [2, 3]}))


@pytest.mark.parametrize("inner", ["RandomUniformLike", "Bernoulli"])
def test_random_numbers_deep_inside_are_refused(inner: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x, bool c, int64 n) => (float[2, 3] y)
        {{ y = Loop(n, c, x) <body = b (int64 i, bool on, float[2, 3] s)
             => (bool still, float[2, 3] t) {{ still = Identity(on)
               t = If(c) <then_branch = yes () => (float[2, 3] u) {{ u = {inner}(s) }},
                          else_branch = no () => (float[2, 3] v) {{ v = Neg(s) }}> }}> }}"""
    with pytest.raises(ModelError, match="Loop"):
        loaded(onnx.parser.parse_model(text))


def test_training_behind_an_unknown_shape_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[2, n] y)
        { found = NonZero(x)  f = Cast<to = 1>(found)  half = Constant<value = float {0.5}>()
          one = Constant<value = int64 {1}>()  yes = Cast<to = 9>(one)
          y = Dropout(f, half, yes) }"""
    with pytest.raises(ModelError, match="Dropout|no known shape"):
        loaded(onnx.parser.parse_model(text))


SQUEEZED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 3] x, int64[2] i) => (float[n, 3] y)
    { found = NonZero(i)  flat = Squeeze(found)  y = Gather(x, flat) }"""


def test_a_result_of_unknown_rank_is_refused() -> None:
    model = onnx.parser.parse_model(SQUEEZED)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="NonZero") as caught:
        loaded(model)
    assert "number of axes" in (caught.value.hint or "")


def test_a_model_tells_the_rank_of_a_result() -> None:
    graph = right(onnx.parser.parse_model(SQUEEZED), x=normal(4, 3), i=np.array([1, 2]))
    assert graph.types["y"].shape == (UNKNOWN, 3)


def test_indices_that_nobody_knows_are_drawn_as_zeros() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[8] ids, bool[8] m, float[5, 4] table) => (float[k, 4] y)
        { s = Compress<axis = 0>(ids, m)  y = Gather(table, s) }"""
    graph = loaded(onnx.parser.parse_model(text))
    assert not random_inputs(graph, 0)["ids"].any()


def test_what_no_engine_takes_is_refused_with_both_reasons() -> None:
    model = model_of([node(["x"], "y")], {"x": [2, 3]})
    model.graph.node[0].op_type, model.graph.node[0].domain = "Nobody", "of.nowhere"
    model.opset_import.append(helper.make_opsetid("of.nowhere", 1))
    with pytest.raises(ModelError, match="too much") as caught:
        untaken(model)
    assert "ONNX Runtime does not compute it either" in (caught.value.hint or "")


def test_a_detour_between_two_parts_is_taken_in() -> None:
    """lost → kept → lost, and lost → lost beside it."""
    nodes = [
        node(["x"], "a", "known"), node(["known"], "between"), node(["a", "between"], "z"),
    ]  # fmt: skip
    (island,) = cut(nodes, {0: REFUSAL, 2: FOLLOWS}, {"a"}, ["z"])
    assert isinstance(island, Island) and len(island.nodes) == 3
    assert (island.reads, island.results) == (("x",), ("z",))
    assert [error.message for error in island.refusals] == ["no kernel"]


def test_two_islands_that_need_each_other_become_one() -> None:
    nodes = [
        node(["x"], "a", "p"), node(["x"], "c", "q"), node(["a", "q"], "b"), node(["c", "p"], "d"),
    ]  # fmt: skip
    refusals = {0: REFUSAL, 1: REFUSAL, 2: FOLLOWS, 3: FOLLOWS}
    (island,) = cut(nodes, refusals, {"a", "c"}, ["b", "d"])
    assert isinstance(island, Island) and island.results == ("b", "d")


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[onnx.NodeProto], dict[int, Refusal], set[str]]:
    """Nodes of one or two results, some of them refused, some of their results of unknown shape."""
    nodes: list[onnx.NodeProto] = []
    known = ["x"]
    for index in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        writes = [f"t{index}", *([f"u{index}"] if draw(st.booleans()) else [])]
        nodes.append(node(reads, *writes))
        known += writes
    refusals: dict[int, Refusal] = {}
    unknown: set[str] = set()
    for index, each in enumerate(nodes):
        follows = not unknown.isdisjoint(each.input)
        if follows or draw(st.integers(0, 3)) == 0:
            refusals[index] = FOLLOWS if follows else REFUSAL
            unknown.update(name for name in each.output if draw(st.booleans()))
    return nodes, refusals, unknown


@settings(max_examples=200, deadline=None)
@given(networks())
def test_every_cut_can_be_carried_out(
    network: tuple[list[onnx.NodeProto], dict[int, Refusal], set[str]],
) -> None:
    nodes, refusals, unknown = network
    outputs = [nodes[-1].output[0]]
    written, seen = {"x"}, list[str]()
    for item in cut(nodes, refusals, unknown, outputs):
        if isinstance(item, Island):
            assert any(nodes.index(each) in refusals for each in item.nodes) and item.refusals
            assert unknown.isdisjoint(item.reads)
            assert unknown.isdisjoint({*item.results} - {*outputs})
            inner = written & {*item.reads}
            for each in item.nodes:
                assert {*each.input} <= inner
                inner |= {*each.output}
            written |= {*item.results}
            seen += [each.name for each in item.nodes]
        else:
            assert {*item.input} <= written and nodes.index(item) not in refusals
            written |= {*item.output}
            seen.append(item.name)
    assert sorted(seen) == sorted(each.name for each in nodes) and {*outputs} <= written
