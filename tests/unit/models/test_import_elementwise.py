"""Elementwise operators against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from helpers.networks.onnx_models import (
    check,
    check_node,
    few,
    folded,
    int64,
    model_of,
    normal,
    unfolded,
)

UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Erf", "Sin", "Cos", "Floor", "Ceil",
         "Sign", "Reciprocal", "Softplus", "Softsign", "Tan", "IsNaN"]  # fmt: skip


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("operator", UNARY)
def test_unary(operator: str, opset: int) -> None:
    check_node(operator, {"x": normal(2, 3, 4) * 2}, opset=opset)


@pytest.mark.parametrize("operator", ["Sqrt", "Log"])
def test_unary_of_positive_numbers(operator: str) -> None:
    check_node(operator, {"x": np.abs(normal(2, 3)) + 0.1})


@pytest.mark.parametrize(
    ("operator", "opset", "named"),
    [("Round", 11, {}), ("HardSwish", 14, {}), ("Mish", 18, {}), ("Gelu", 20, {}),
     ("Gelu", 20, {"approximate": "tanh"}), ("LeakyRelu", 9, {"alpha": 0.3}),
     ("LeakyRelu", 16, {}), ("Elu", 9, {"alpha": 0.7}), ("Selu", 9, {}),
     ("Selu", 9, {"alpha": 1.2, "gamma": 0.9}), ("ThresholdedRelu", 10, {"alpha": 0.5}),
     ("HardSigmoid", 9, {}), ("HardSigmoid", 9, {"alpha": 0.4, "beta": 0.3}), ("Celu", 12, {}),
     ("Celu", 12, {"alpha": 2.0}), ("Celu", 12, {"alpha": -0.5}),
     ("Shrink", 9, {}), ("Shrink", 9, {"bias": 0.7, "lambd": 1.2}),
     ("Shrink", 9, {"bias": 0.7, "lambd": -1.2}), ("Shrink", 9, {"lambd": np.inf}),
     ("IsInf", 10, {}), ("IsInf", 10, {"detect_negative": 0})],
)  # fmt: skip
def test_parametric(operator: str, opset: int, named: dict[str, Any]) -> None:
    x = normal(3, 5) * 3
    x[0, 0], x[1, 1] = np.inf if operator == "IsInf" else 0, -np.inf if operator == "IsInf" else 1
    check_node(operator, {"x": x}, opset=opset, **named)


@pytest.mark.regression
@pytest.mark.parametrize("operator", ["LeakyRelu", "HardSigmoid", "ThresholdedRelu"])
def test_infinite_parameters_are_carried_along(operator: str) -> None:
    model = model_of([helper.make_node(operator, ["x"], ["y"], alpha=np.inf)], {"x": normal(2)})
    assert [node.operator for node in unfolded(model).nodes] == ["opaque"]


@pytest.mark.regression
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_shrink_of_integers_computes_with_fractions(dtype: str) -> None:
    x = np.array([0, 1, 2, 3, 100, -1, -2, -3, -100][: 5 if dtype == "uint8" else 9]).astype(dtype)
    check_node("Shrink", {"x": x}, opset=9, bias=0.75, lambd=1.5)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("operator", "named"), [("QuickGelu", {}), ("QuickGelu", {"alpha": 1.3}), ("Gelu", {})]
)
def test_activations_of_onnx_runtime(operator: str, named: dict[str, float]) -> None:
    nodes = [
        helper.make_node(operator, ["x"], ["h"], name="gate", domain="com.microsoft", **named),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 5]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "gates", [x], [y])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    check(model, {"x": normal(3, 5) * 3})


shapes = st.sampled_from(
    [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (4,)),
        ((2, 1, 4), (3, 1)),
        ((1, 3, 2, 2), (1, 3, 1, 1)),
        ((3,), (2, 1, 3)),
        ((2, 3), ()),
    ]
)


@few
@given(st.sampled_from(["Add", "Sub", "Mul", "Div"]), shapes, st.booleans())
def test_binary(operator: str, pair: Any, known: bool) -> None:
    a, b = normal(*pair[0]), normal(*pair[1], seed=1) + 3
    if known:
        check_node(operator, {"a": a}, constants={"b": b}, opset=9)
    else:
        check_node(operator, {"a": a, "b": b})


def test_constant_operands_are_canonical() -> None:
    graph = check_node("Add", {"a": normal(1, 3, 2, 2)}, constants={"b": normal(1, 3, 1, 1)})
    assert graph.types[graph.nodes[0].inputs[1]].shape == (3, 1, 1)
    graph = check_node("Mul", {"a": normal(3, 1)}, constants={"b": normal(1, 1, 4)})
    assert graph.types["y"].shape == (1, 3, 4)


@pytest.mark.parametrize("operator", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
def test_comparison(operator: str) -> None:
    a, b = np.round(normal(4, 5)), np.round(normal(5, seed=1))
    check_node(operator, {"a": a, "b": b}, opset=16)


@pytest.mark.parametrize("operator", ["And", "Or", "Xor"])
def test_logic(operator: str) -> None:
    a, b = normal(4, 5) > 0, normal(4, 5, seed=1) > 0
    check_node(operator, {"a": a, "b": b}, opset=9)


def test_not() -> None:
    check_node("Not", {"a": normal(4, 5) > 0}, opset=9)


@pytest.mark.parametrize("operator", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_variadic(operator: str, count: int) -> None:
    check_node(operator, {f"x{i}": normal(2, 3, seed=i) for i in range(count)}, opset=13)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 1.7])
def test_power(exponent: float) -> None:
    x = np.abs(normal(3, 4)) + 0.1
    check_node("Pow", {"x": x}, constants={"e": np.asarray(exponent, np.float32)}, opset=9)
    check_node("Pow", {"x": x}, constants={"e": np.full(4, exponent, np.float32)}, opset=13)
    if exponent == 2:
        check_node("Pow", {"x": x}, constants={"e": np.asarray(2, np.int64)}, opset=13)


def test_power_of_data() -> None:
    check_node("Pow", {"x": np.abs(normal(3, 4)), "e": normal(4, seed=1)}, opset=13)
    whole = np.array([1, -2, 3, 0], np.int64)
    check_node("Pow", {"x": np.abs(normal(3, 4)), "e": whole}, opset=13)
    check_node("Pow", {"x": whole, "e": np.array([2, 3, 0.5, 1], np.float32)}, opset=13)


@pytest.mark.parametrize("limits", [(-0.5, 0.7), (0.0, 6.0), (None, 0.3), (-0.2, None)])
def test_clip(limits: tuple[float | None, float | None]) -> None:
    x = normal(4, 5)
    early = {k: v for k, v in zip(("min", "max"), limits, strict=True) if v is not None}
    check_node("Clip", {"x": x}, opset=9, **early)
    late = {k: np.asarray(v, np.float32) for k, v in early.items()}
    order = ["x", *(k if k in late else "" for k in ("min", "max"))]
    check_node("Clip", {"x": x}, opset=13, constants=late, order=order)
    check_node("Clip", {"x": x, **late}, opset=13, order=order)


def test_clip_of_integers() -> None:
    limits = {"low": np.asarray(-2, np.int64), "high": np.asarray(2, np.int64)}
    check_node("Clip", {"x": int64(-5, -1, 0, 7)}, constants=limits, opset=13)


@pytest.mark.parametrize("slope", [(3, 1, 1), (1,), (4,)])
def test_prelu(slope: tuple[int, ...]) -> None:
    check_node("PRelu", {"x": normal(2, 3, 4, 4)}, constants={"s": normal(*slope)}, opset=9)


@pytest.mark.parametrize("source", ["float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("target", ["float32", "int64", "int32", "bool", "float64"])
def test_cast(source: str, target: str) -> None:
    x = (normal(3, 4) * 4).astype(source)
    check_node("Cast", {"x": x}, opset=13, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def test_where() -> None:
    feed = {"c": normal(2, 1, 4) > 0, "a": normal(3, 4), "b": normal(1)}
    check_node("Where", feed, opset=9)


def test_modulo_and_integer_division() -> None:
    a, b = int64(7, -7, 7, -7, 0), int64(3, 3, -3, -3, 5)
    check_node("Mod", {"a": a, "b": b}, opset=10)
    check_node("Div", {"a": a, "b": b}, opset=13)


def test_dropout_and_identity_leave_no_node() -> None:
    x = normal(2, 3)
    nodes = [
        helper.make_node("Dropout", ["x"], ["d"], name="drop", ratio=0.5),
        helper.make_node("Identity", ["d"], ["i"], name="id"),
        helper.make_node("Relu", ["i"], ["r"], name="relu"),
        helper.make_node("Identity", ["r"], ["y"], name="end"),
    ]
    graph = check(model_of(nodes, {"x": x}, opset=9), {"x": x})
    assert [(node.name, node.operator) for node in graph.nodes] == [("relu", "relu")]


def test_output_that_is_an_input_or_a_constant() -> None:
    x = normal(2, 3)
    nodes = [
        helper.make_node("Identity", ["x"], ["y"], name="copy"),
        helper.make_node("Identity", ["k"], ["z"], name="known"),
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Identity", ["r"], ["r2"], name="twice"),
    ]
    model = model_of(nodes, {"x": x}, outputs=("y", "z", "r", "r2"), constants={"k": normal(2)})
    graph = check(model, {"x": x})
    writers = graph.producers()
    assert all(output in writers for output in graph.outputs)


def test_nodes_without_names_get_unique_ones() -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Gelu", ["b"], ["y"], approximate="tanh"),
    ]
    graph = folded(model_of(nodes, {"x": normal(2, 3)}, opset=20))
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names) and all(names)
