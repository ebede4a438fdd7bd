"""Operators outside the vocabulary through TVM's importer."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from helpers.kernels.one_kernel import random_arrays, run_kernel, step, workload
from helpers.networks.opaque_models import CASES, F, encoded, single_node
from helpers.networks.small_networks import compiled_outputs
from tilewright.compiler.opaque import import_opaque, unsupported
from tilewright.core.errors import ModelError
from tilewright.graph.network import Graph, Node, TensorType, attributes
from tilewright.graph.operators import results_text
from tilewright.models.loading import load_model


@pytest.mark.parametrize("name", CASES)
def test_every_output_matches_onnx_runtime(name: str) -> None:
    model = CASES[name]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = [TensorType(tuple(i.shape), F) for i in session.get_inputs()]
    kinds = [TensorType(tuple(o.shape), {"tensor(float)": F}.get(o.type, "int64"))
             for o in session.get_outputs()]  # fmt: skip
    for index in range(len(kinds)):
        task = workload(inputs, step("opaque", *range(len(inputs)), model=encoded(model),
                                     results=results_text(kinds), output_index=index))  # fmt: skip
        arrays = random_arrays(task)
        feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
        expected = session.run(None, feeds)[index]
        found = run_kernel(task, "opaque", arrays)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def graph_of(model, name: str) -> Graph:
    kind = TensorType((3, 4))
    named = attributes(model=encoded(model), results=results_text([kind]))
    node = Node(name=name, operator="opaque", inputs=("x",), outputs=("y",), attributes=named)
    return Graph(
        name="g", nodes=(node,), inputs=("x",), outputs=("y",), types={"x": kind, "y": kind}
    )


def test_check_passes_what_the_importer_knows() -> None:
    import_opaque.cache_clear()
    assert unsupported(graph_of(CASES["cumsum"], "sum")) == {}
    assert import_opaque.cache_info().currsize == 1, "the importer was asked"


def test_unknown_operator_is_named_with_its_node(capfd: pytest.CaptureFixture[str]) -> None:
    unknown = single_node("Celu", [(F, (3, 4))], [(F, (3, 4))])
    ((node, (message, hint)),) = unsupported(graph_of(unknown, "block3/odd")).items()
    assert node == "block3/odd" and re.search("(?s)block3/odd.*Celu", message) and hint
    assert capfd.readouterr().out == ""


def test_shape_that_depends_on_data_is_refused() -> None:
    model = single_node("NonZero", [(F, (3, 4))], [("int64", (2, 12))])
    with pytest.raises(ModelError, match="NonZero"):
        import_opaque(encoded(model), 0, '{"kind": "llvm"}')


@pytest.mark.parametrize(
    ("operator", "shapes", "named"),
    [
        ("RoiAlign", [(1, 2, 8, 9), (3, 4), (3,)], {"spatial_scale": 0.5, "output_height": 3}),
        ("LpPool", [(1, 4, 5, 6, 4)], {"kernel_shape": [2, 3, 2], "strides": [2, 2, 2],
                                       "auto_pad": "SAME_LOWER"}),
    ],
)  # fmt: skip
def test_what_the_importer_gets_wrong_is_carried_along_in_another_form(
    operator: str, shapes: list[tuple[int, ...]], named: dict
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape, np.float32) * 6 for shape in shapes]
    if operator == "RoiAlign":
        arrays[1:] = [np.sort(arrays[1]), np.zeros(3, np.int64)]
    session = onnxruntime.InferenceSession(
        single_node(
            operator, [(str(a.dtype), a.shape) for a in arrays], [(F, None)], **named
        ).SerializeToString()
    )
    names = [value.name for value in session.get_inputs()]
    (expected,) = session.run(None, dict(zip(names, arrays, strict=True)))
    model = single_node(
        operator, [(str(a.dtype), a.shape) for a in arrays], [(F, expected.shape)], **named
    )
    graph = load_model(model, "single").graph
    assert "opaque" in {node.operator for node in graph.nodes}
    _, (found, *_) = compiled_outputs(graph, dict(zip(names, arrays, strict=True)))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.regression
@pytest.mark.parametrize("known", ["indices", "updates", "data", ""])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
def test_elements_are_scattered_by_constants_too(reduction: str, known: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "data": rng.standard_normal((4, 8), np.float32),
        "indices": np.array([[0, 0], [7, -1], [-8, 3], [5, 4]]),
        "updates": rng.standard_normal((4, 2), np.float32),
    }
    if reduction == "none":
        arrays["indices"][:, 1] = 6
    feed = {name: array for name, array in arrays.items() if name != known}
    graph = helper.make_graph(
        [helper.make_node("ScatterElements", [*arrays], ["y"], axis=1, reduction=reduction)],
        "scattered",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feed.items()
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 8])],
        [onnx.numpy_helper.from_array(arrays[known], known)] if known else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    loaded = load_model(model, "scattered").graph
    (node,) = (node for node in loaded.nodes if node.operator == "opaque")
    assert "[[-8,7]]" in str(node.attribute("indices"))
    assert unsupported(replace(loaded, nodes=(node,))) == {}
    _, (found, *_) = compiled_outputs(loaded, feed)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.regression
def test_opaque_nodes_between_convolutions() -> None:
    """Imported kernels read plain tensors; those of convolutions are blocked where nothing else
    reads them."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (8, 48, 1, 1)}
    weights = {name: rng.standard_normal(shape, np.float32) / 9 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Atan", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Concat", ["a", "b", "d"], ["e"], axis=1),
        helper.make_node("Atan", ["e"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["g", "w3"], ["h"]),
        helper.make_node("Atan", ["h"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        "between",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 4, 4])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.standard_normal((1, 3, 8, 8), np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    plan, ((found,), _) = compiled_outputs(load_model(model, "between").graph, {"x": x})
    kinds = {tensor.form.text.rstrip("0123456789") for tensor in plan.tensors.values()}
    assert kinds == {"plain", "blocked"}
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
