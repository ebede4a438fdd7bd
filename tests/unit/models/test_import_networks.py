"""Whole networks, and operators that stay opaque."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import folded, int64, model_of, normal, reference
from helpers.networks.random_weights import randomize_weights
from tilewright.core.errors import ModelError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array
from tilewright.models.loading import load, load_model

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SMALL = ["densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"]
LARGE = ["bvlc_alexnet", "vgg19", "zfnet512"]


def without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Random networks saturate it, and then it tells nothing."""
    if model.graph.node[-1].op_type == "Softmax":
        model.graph.output[0].name = model.graph.node[-1].input[0]
        model.graph.output[0].type.tensor_type.ClearField("shape")
        del model.graph.node[-1]
    return model


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("random", [False, True])
def test_light_network(name: str, random: bool) -> None:
    path = LIGHT / f"light_{name}.onnx"
    if random:
        original = without_softmax(randomize_weights(onnx.load(str(path)), seed=3))
        model = load_model(original, name)
    else:
        model = load(str(path))
    assert len(model.inputs) == 1
    (entry,) = model.inputs
    feed = {entry: normal(*model.inputs[entry].shape)}
    wanted = reference(model.onnx_path, feed)
    results = run_graph(model.graph, feed)
    for output in model.outputs:
        scale = np.abs(wanted[output]).max()
        assert np.isfinite(scale)
        np.testing.assert_allclose(results[output] / scale, wanted[output] / scale, atol=1e-4)


def test_every_light_network_is_tested() -> None:
    assert {p.stem.removeprefix("light_") for p in LIGHT.glob("*.onnx")} == {*SMALL, *LARGE}


def test_random_weights_are_seeded_and_reach_every_constant() -> None:
    model = onnx.load(str(LIGHT / "light_squeezenet.onnx"))
    first, again, other = (randomize_weights(model, seed=seed) for seed in (1, 1, 2))
    assert first.SerializeToString() == again.SerializeToString()
    assert first.SerializeToString() != other.SerializeToString()
    assert "ConstantOfShape" not in {node.op_type for node in first.graph.node}
    graph = load_model(first, "random").graph
    assert all(np.unique(a).size > 1 for a in graph.constants.values() if a.size > 8)


def run_opaque(text: str, arrays: Sequence[Array]) -> Sequence[Array]:
    """Run an opaque node's model with ONNX Runtime."""
    model = onnx.load_model_from_string(base64.b64decode(text))
    names = [value.name for value in model.graph.input]
    assert len(names) == len(arrays)
    results = reference(model, dict(zip(names, arrays, strict=True)))
    return [results[value.name] for value in model.graph.output]


OPAQUE: list[tuple[str, dict[str, Any], dict[str, Any], list[str], dict[str, Any]]] = [
    ("TopK", {"x": normal(2, 9)}, {"k": int64(3)}, ["y", "i"], {"axis": -1}),
    ("ArgMax", {"x": normal(2, 9)}, {}, ["y"], {"axis": 1}),
    ("Einsum", {"a": normal(3, 3), "b": normal(3, 4)}, {}, ["y"], {"equation": "jj,jk->k"}),
    ("Hardmax", {"x": normal(2, 9)}, {}, ["y"], {"axis": 1}),
    ("Celu", {"x": normal(2, 9)}, {}, ["y"], {"alpha": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize("case", OPAQUE, ids=lambda case: f"{case[0]}{len(case[3])}")
def test_unknown_operator_becomes_opaque(case: Any) -> None:
    operator, feed, constants, outputs, named = case
    node = helper.make_node(operator, [*feed, *constants], outputs, name="node", **named)
    used = [name for name in outputs if name]
    model = model_of([node], feed, outputs=used, constants=constants)
    graph = folded(model)
    (opaque,) = graph.nodes
    assert (opaque.name, opaque.operator) == ("node", "opaque")
    text = str(opaque.attribute("results"))
    assert [tuple(shape) for _, shape in json.loads(text)] == [
        graph.types[name].shape for name in opaque.outputs
    ]
    results = run_graph(graph, feed, opaque=run_opaque)
    for name, array in reference(model, feed).items():
        np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=1e-5)


def test_equal_opaque_nodes_are_equal_tasks() -> None:
    nodes = [
        helper.make_node("Hardmax", ["x"], ["p"], name="first"),
        helper.make_node("Hardmax", ["p"], ["y"], name="second"),
    ]
    graph = folded(model_of(nodes, {"x": [2, 9]}))
    assert len({node.attributes for node in graph.nodes}) == 1


def test_result_that_depends_on_data_is_refused_with_its_node() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="find")
    with pytest.raises(ModelError, match=r"'find'.*'NonZero'"):
        folded(model_of([node], {"x": [2, 9]}))


def test_models_functions_are_inlined() -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    model = model_of([helper.make_node("Relu", ["x"], ["y"], name="call")], {"x": [2, 3]})
    model.graph.node[0].op_type, model.graph.node[0].domain = "Twice", "local"
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    assert [node.operator for node in folded(model).nodes] == ["add"]


def test_known_branch_of_a_condition_is_taken() -> None:
    branches = [
        helper.make_graph(
            [helper.make_node(operator, ["x"], ["o"])], operator, [],
            [helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, [2, 3])],
        )
        for operator in ("Relu", "Tanh")
    ]  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branches[0],
                            else_branch=branches[1])  # fmt: skip
    model = model_of([node], {"x": [2, 3]}, constants={"c": np.asarray(False)})
    assert [node.operator for node in folded(model).nodes] == ["tanh"]


@pytest.mark.parametrize("name", ["mobilenet_v2", "squeezenet1_1", "mlp"])
def test_zoo_network(name: str) -> None:
    model = load(f"zoo:{name}")
    assert "opaque" not in {node.operator for node in model.graph.nodes}
    (entry,) = model.inputs
    feed = {entry: normal(*model.inputs[entry].shape)}
    results = run_graph(model.graph, feed)
    for output, wanted in reference(model.onnx_path, feed).items():
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(results[output] / scale, wanted / scale, atol=1e-4)
