"""Operators that ONNX defines by a function body, against ONNX Runtime or ONNX's own reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from helpers.networks.onnx_models import folded, int64, model_of, normal, unfolded
from tilewright.graph.evaluate import run_graph
from tilewright.models import clean
from tilewright.models.function_bodies import expanded
from tilewright.models.onnx_import.node import TRANSLATIONS

Q, K, V = (normal(1, 2, 5, 4, seed=seed) for seed in range(3))
PAST = normal(1, 2, 3, 4, seed=3)


def checked(node: onnx.NodeProto, feed: Mapping[str, np.ndarray[Any, Any]], opset: int) -> None:
    """A node without a translation gives what ONNX's own reference gives, and is not opaque."""
    assert node.op_type not in TRANSLATIONS
    given = {name: feed[name] for name in node.input if name}
    outputs = [name for name in node.output if name]
    model = model_of([node], given, opset=opset, outputs=outputs)
    wanted = ReferenceEvaluator(model).run(None, dict(given))
    for graph in (unfolded(model), folded(model)):
        assert "opaque" not in {each.operator for each in graph.nodes}
        found = run_graph(graph, given)
        for name, array in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "named"),
    [(["q", "k", "v"], ["y"], {}), (["q", "k", "v"], ["y"], {"is_causal": 1}),
     (["q", "k", "v", "mask"], ["y"], {"scale": 0.3}),
     (["q", "k", "v"], ["y"], {"softcap": 2.0}),
     (["q", "k", "v", "", "past", "past"], ["y", "now", "then"], {}),
     (["q", "k", "v"], ["y", "", "", "scores"], {"qk_matmul_output_mode": 3})],
)  # fmt: skip
def test_attention(inputs: list[str], outputs: list[str], named: dict[str, Any]) -> None:
    feed = {"q": Q, "k": K, "v": V, "past": PAST, "mask": normal(5, 5, seed=4)}
    checked(helper.make_node("Attention", inputs, outputs, **named), feed, 23)


@pytest.mark.regression
def test_halves_are_computed_in_single_precision() -> None:
    feed = {name: array.astype(np.float16) for name, array in {"q": Q, "k": K, "v": V}.items()}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)
    graph = unfolded(model_of([node], feed, opset=23))
    inner = [each for each in graph.nodes if each.operator != "cast"]
    assert {graph.types[name].dtype for each in inner for name in each.outputs} == {"float32"}
    wide = {name: array.astype(np.float32) for name, array in feed.items()}
    exact = run_graph(unfolded(model_of([node], wide, opset=23)), wide)["y"]
    assert graph.types["y"].dtype == "float16"
    np.testing.assert_array_equal(run_graph(graph, feed)["y"], exact.astype(np.float16))


@pytest.mark.parametrize("named", [{}, {"interleaved": 1}, {"rotary_embedding_dim": 2}])
def test_rotary_embedding(named: dict[str, int]) -> None:
    half = named.get("rotary_embedding_dim", 4) // 2
    tables = {name: normal(1, 5, half, seed=seed) for seed, name in enumerate(("cos", "sin"))}
    node = helper.make_node("RotaryEmbedding", ["q", "cos", "sin"], ["y"], **named)
    checked(node, {"q": Q, **tables}, 23)


def test_mean_variance_normalization() -> None:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    checked(node, {"x": normal(2, 3, 4, 5)}, 13)


@pytest.mark.parametrize(
    ("reduction", "last"), [("mean", "reduce_mean"), ("none", "reshape"), ("sum", "reduce_sum")]
)
def test_bodies_that_call_functions(reduction: str, last: str) -> None:
    """A loss is made of another one, which takes one element of each row."""
    feed = {"x": normal(3, 5), "labels": int64(4, 0, 2)}
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction=reduction)
    nodes = unfolded(model_of([node], feed, opset=13)).nodes
    assert {"log_softmax", "opaque", "negative"} <= {each.operator for each in nodes}
    assert nodes[-1].operator == last and nodes[-1].outputs == ("y",)


def test_windows_of_known_size() -> None:
    """Of which attributes are left out, the defaults count."""
    nodes = [
        helper.make_node("HannWindow", ["size"], ["w"]),
        helper.make_node("Mul", ["x", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": normal(2, 8)}, opset=17, constants={"size": np.asarray(8)})
    graph = unfolded(model)
    assert [node.operator for node in graph.nodes] == ["multiply"]
    (window,) = graph.constants.values()
    np.testing.assert_allclose(window, np.sin(np.pi * np.arange(8) / 8) ** 2, atol=1e-6)


def test_operators_with_a_translation_and_without_a_body_stay() -> None:
    nodes = [
        helper.make_node("HardSwish", ["x"], ["h"]),
        helper.make_node("Hardmax", ["h"], ["y"]),
    ]
    model = model_of(nodes, {"x": normal(2, 3)})
    assert expanded(model, TRANSLATIONS) is model
    (first, *_) = onnx.load_model_from_string(clean.infer(model.SerializeToString(), [])).graph.node
    assert first.op_type != "HardSwish", "known to nobody, its body is taken"


def test_names_and_operator_sets_are_the_models_own() -> None:
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="look")
    content = model_of([node], {"q": Q, "k": K, "v": V}, opset=23).SerializeToString()
    inner = onnx.load_model_from_string(clean.infer(content, ["Softmax"]))
    assert [entry.domain for entry in inner.opset_import] == [""] and not inner.functions
    assert [value.name for value in inner.graph.input] == ["q", "k", "v"]
    assert inner.graph.output[0].name == "y"
    assert inner.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
