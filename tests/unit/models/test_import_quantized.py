"""Integer convolutions and quantization against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import (
    check,
    few,
    folded,
    model_of,
    normal,
    reference,
    unfolded,
)
from tilewright.core.errors import UsageError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Graph
from tilewright.models.loading import load

Array = np.ndarray[Any, Any]


def codes(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    return values.astype(dtype)


def convolve(operator: str, x: Array, constants: dict[str, Array], **named: Any) -> Graph:
    node = helper.make_node(operator, ["x", *constants], ["y"], name="node", **named)
    return check(model_of([node], {"x": x}, constants=constants), {"x": x})


@few
@given(
    st.sampled_from([(0, 0), (3, 0), (128, 0), (200, 128)]),
    st.sampled_from([(0, 0, 0, 0), (1, 0, 2, 1)]),
    st.sampled_from([1, 2]),
)
def test_conv_integer(zeros: tuple[int, int], pads: tuple[int, ...], groups: int) -> None:
    x_zero, w_zero = zeros
    constants = {
        "w": codes("uint8" if w_zero else "int8", 6, 4 // groups, 3, 3, seed=1),
        "xz": np.asarray(x_zero, np.uint8),
        "wz": np.asarray(w_zero, np.uint8 if w_zero else np.int8),
    }
    graph = convolve("ConvInteger", codes("uint8", 1, 4, 9, 8), constants, pads=pads, group=groups)
    (conv,) = [node for node in graph.nodes if node.operator == "conv2d"]
    assert [graph.types[name].dtype for name in (*conv.inputs, conv.output)] == [
        "uint8", "int8", "int32",
    ]  # fmt: skip


def test_a_zero_point_that_comes_with_the_data() -> None:
    x, zero = codes("uint8", 1, 4, 6, 6), np.asarray(77, np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 1, 1])
    constants = {"w": codes("int8", 6, 4, 3, 3, seed=1)}
    check(model_of([node], {"x": x, "z": zero}, constants=constants), {"x": x, "z": zero})


def products(operator: str, arrays: dict[str, Array], known: tuple[str, ...]) -> Graph:
    """A node of all arrays, in their order, some of them constants, whose result is checked."""
    node = helper.make_node(operator, [*arrays], ["y"], name="node")
    constants = {name: arrays[name] for name in known}
    feed = {name: array for name, array in arrays.items() if name not in known}
    return check(model_of([node], feed, opset=21, constants=constants), feed)


@pytest.mark.parametrize("known", [("b", "bz"), ("bz",), ()], ids=str)
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)], ids=str)
def test_integer_product(shape: tuple[int, ...], known: tuple[str, ...]) -> None:
    a, b = codes("uint8", *shape), codes("int8", 8, 6, seed=1)
    arrays = {"a": a, "b": b, "az": np.asarray(100, np.uint8), "bz": np.asarray(0, np.int8)}
    graph = products("MatMulInteger", arrays, known)
    assert ("dense" in {node.operator for node in graph.nodes}) == ("b" in known)


@pytest.mark.parametrize("known", ["as b bs bz ys yz", "bs", ""])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)], ids=str)
def test_requantized_product(shape: tuple[int, ...], zero: int, known: str) -> None:
    b = codes("int8", *shape[:-2], 8, 6, seed=1)
    arrays = {
        "a": codes("uint8", *shape), "as": np.asarray(0.02, np.float32),
        "az": np.asarray(128, np.uint8), "b": b, "bs": np.asarray(0.01, np.float32),
        "bz": np.asarray(zero, np.int8), "ys": np.asarray(0.1, np.float32),
        "yz": np.asarray(120, np.uint8),
    }  # fmt: skip
    if zero and len(shape) == 2:
        arrays["bs"] = np.linspace(0.005, 0.02, 6, dtype=np.float32)
        arrays["bz"] = np.arange(6, dtype=np.int8)
    products("QLinearMatMul", arrays, tuple(known.split()))


@pytest.mark.parametrize("zero", [120, [3, 250, 128, 128, 0, 255]], ids=str)
def test_a_product_whose_weights_do_not_fit_signed_bytes(zero: int | list[int]) -> None:
    """128 less they do; the rest of their zero points comes with the sums of rows."""
    arrays = {
        "a": codes("uint8", 2, 3, 8), "b": codes("uint8", 8, 6, seed=1),
        "az": np.asarray(100, np.uint8), "bz": np.asarray(zero, np.uint8),
    }  # fmt: skip
    arrays["b"][:, 0] = 255
    graph = products("MatMulInteger", arrays, ("b", "bz"))
    (dense,) = [node for node in graph.nodes if node.operator == "dense"]
    assert [graph.types[name].dtype for name in dense.inputs] == ["uint8", "int8"]
    assert {"reduce_sum"} < {node.operator for node in graph.nodes}


@pytest.mark.parametrize("known", ["az bz", ""])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (1, 1), (3, 6), (3, 0), (0, 6)])
def test_zero_points_of_two_computed_tensors(
    left: str, right: str, rows: int, columns: int, known: str
) -> None:
    """None, one, or one for each row and column, among them the largest; ONNX Runtime takes none
    for rows."""
    feed = {"a": codes(left, 2, 3, 8), "b": codes(right, 1, 8, 6, seed=1)}
    zeros = {"az": codes(left, rows, seed=2), "bz": codes(right, columns, seed=3)}
    zeros["az"][:1], zeros["bz"][:1] = np.iinfo(left).max, np.iinfo(right).min
    zeros = {name: zero for name, zero in zeros.items() if zero.size}
    inputs = ["a", "b", *(name if name in zeros else "" for name in ("az", "bz"))]
    node = helper.make_node("MatMulInteger", inputs, ["y"])
    constants = {name: zeros.pop(name) for name in known.split() if name in zeros}
    model = model_of([node], {**feed, **zeros}, constants=constants)
    found = run_graph(folded(model), {**feed, **zeros})["y"]
    wide = {name: x.astype(np.int64) for name, x in {**feed, **zeros, **constants}.items()}
    a = wide["a"] - wide.get("az", np.zeros(1, np.int64)).reshape(-1, 1)
    np.testing.assert_array_equal(found, a @ (wide["b"] - wide.get("bz", 0)))


@pytest.mark.parametrize(
    ("right", "zeros", "sums"),
    [("int8", (0, 0), 0), ("uint8", (0, 128), 0), ("uint8", (5, 128), 1), ("uint8", (9, 7), 2)],
)
def test_zero_points_in_the_middle_of_bytes_need_no_sums(
    right: str, zeros: tuple[int, int], sums: int
) -> None:
    feed = {"a": codes("uint8", 2, 3, 8), "b": codes(right, 2, 8, 6, seed=1)}
    constants = {"az": np.uint8(zeros[0]), "bz": np.array(zeros[1], right)}
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    graph = folded(model_of([node], feed, constants=constants))
    assert [n.operator for n in graph.nodes].count("reduce_sum") == sums


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("values", ["normal", "above", "zero"])
def test_dynamic_quantization(kind: str, values: str) -> None:
    """As `quantize_dynamic` writes it: the zero point comes with the data."""
    x = {"normal": normal(5, 8), "above": 3 + np.abs(normal(5, 8)), "zero": 0 * normal(5, 8)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=1),
        helper.make_node("Mul", ["s", "ws"], ["scale"]),
        helper.make_node("Mul", ["floats", "scale"], ["y"]),
    ]
    constants = {
        "w": codes(kind, 8, 6, seed=1), "wz": np.asarray(kind == "uint8" and 128, kind),
        "ws": np.asarray(0.01, np.float32),
    }  # fmt: skip
    feed = {"x": x[values]}
    graph = check(model_of(nodes, feed, constants=constants, outputs=("y", "q", "s", "z")), feed)
    assert {graph.types[n].dtype for node in graph.nodes for n in node.inputs} >= {"uint8", "int8"}
    assert "dense" in {node.operator for node in graph.nodes}


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_layer_of_onnx_runtimes_own(scaled: bool, transposed: int) -> None:
    b = codes("int8", 8, 6, seed=1)
    arrays = {
        "a": codes("uint8", 5, 8), "as": np.asarray(0.02, np.float32),
        "az": np.asarray(128, np.uint8), "b": np.ascontiguousarray(b.T) if transposed else b,
        "bs": np.linspace(0.005, 0.02, 6, dtype=np.float32), "bz": np.zeros(6, np.int8),
        "c": np.arange(-3000, 3000, 1000, dtype=np.int32),
    }  # fmt: skip
    if scaled:
        arrays |= {"ys": np.asarray(0.1, np.float32), "yz": np.asarray(120, np.uint8)}
    feed = {"a": arrays.pop("a")}
    nodes = [
        helper.make_node("Identity", ["a"], ["i"]),
        helper.make_node(
            "QGemm", ["i", *arrays], ["sums"], domain="com.microsoft", transB=transposed
        ),
        helper.make_node("Cast", ["sums"], ["y"], to=1),
    ]
    model = model_of(nodes[:1], feed, constants=arrays, outputs=("i",))
    model.graph.node.extend(nodes[1:])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, (5, 6)))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert "dense" in {each.operator for each in check(model, feed).nodes}


OWN = {
    "QLinearAdd": (["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], {}, (1, 3, 4, 4)),
    "QLinearMul": (["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], {}, (1, 3, 4, 4)),
    "QLinearConcat": (
        ["ys", "yz", "x", "xs", "xz", "w", "ws", "wz", "v", "ys", "yz"], {"axis": 1},
        (1, 9, 4, 4),
    ),
    "QLinearAveragePool": (
        ["x", "xs", "xz", "ys", "yz"], {"kernel_shape": [3, 2], "strides": [1, 2]}, (1, 3, 2, 2),
    ),
    "QLinearGlobalAveragePool": (["x", "xs", "xz", "ys", "yz"], {}, (1, 3, 1, 1)),
}  # fmt: skip
"""Inputs, attributes and the shape of the result."""


@pytest.mark.parametrize("operator", OWN)
def test_operators_of_onnx_runtimes_own_on_codes(operator: str) -> None:
    inputs, named, shape = OWN[operator]
    arrays = {
        **{name: codes("uint8", 1, 3, 4, 4, seed=i) for i, name in enumerate("xwv")},
        "xs": np.asarray(0.0517, np.float32), "xz": np.asarray(3, np.uint8),
        "ws": np.asarray(0.0331, np.float32), "wz": np.asarray(128, np.uint8),
        "ys": np.asarray(0.0713, np.float32), "yz": np.asarray(100, np.uint8),
    }  # fmt: skip
    feed = {name: arrays[name] for name in "xwv" if name in inputs}
    constants = {name: array for name, array in arrays.items() if name not in "xwv"}
    model = model_of([], feed, constants=constants, outputs=())
    node = helper.make_node(operator, inputs, ["c"], domain="com.microsoft", **named)
    model.graph.node.extend([node, helper.make_node("Cast", ["c"], ["y"], to=1)])
    model.graph.output.append(helper.make_tensor_value_info("y", 1, shape))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    check(model, feed)


def test_scales_of_a_convolution_that_come_with_the_data() -> None:
    arrays = {
        "x": codes("uint8", 1, 4, 6, 6), "xs": np.asarray(0.02, np.float32),
        "xz": np.asarray(77, np.uint8), "w": codes("int8", 3, 4, 3, 3, seed=1),
        "ws": np.asarray([0.01, 0.02, 0.03], np.float32), "wz": np.zeros(3, np.int8),
        "ys": np.asarray(0.2, np.float32), "yz": np.asarray(120, np.uint8),
    }  # fmt: skip
    products("QLinearConv", arrays, ("w", "wz"))


def test_weights_that_do_not_fit_signed_bytes() -> None:
    constants = {
        "w": codes("uint8", 6, 4, 3, 3, seed=1),
        "xz": np.asarray(5, np.uint8),
        "wz": np.asarray(3, np.uint8),
    }
    graph = convolve("ConvInteger", codes("uint8", 1, 4, 6, 6), constants)
    (conv,) = [node for node in graph.nodes if node.operator == "conv2d"]
    assert {graph.types[name].dtype for name in (*conv.inputs, conv.output)} == {"int32"}


@few
@given(
    st.sampled_from([("int8", 0, 0), ("int8", 5, -9), ("uint8", 0, 128), ("uint8", 7, 0)]),
    st.booleans(),
    st.booleans(),
)
def test_qlinear_conv(kinds: tuple[str, int, int], per_channel: bool, bias: bool) -> None:
    dtype, x_zero, y_zero = kinds
    scale = np.linspace(0.001, 0.002, 6, dtype=np.float32)
    constants = {
        "xs": np.asarray(0.25, np.float32),
        "xz": np.asarray(x_zero, dtype),
        "w": codes("int8", 6, 4, 3, 3, seed=1),
        "ws": scale if per_channel else scale[0],
        "wz": np.zeros(6 if per_channel else (), np.int8),
        "ys": np.asarray(0.5, np.float32),
        "yz": np.asarray(y_zero, dtype),
    }
    if bias:
        constants["b"] = np.arange(-3000, 3000, 1000, dtype=np.int32)
    graph = convolve("QLinearConv", codes(dtype, 1, 4, 7, 7), constants, pads=[1, 1, 1, 1])
    assert graph.types["y"].dtype == dtype
    assert len({node.operator for node in graph.nodes} & {"add", "conv2d", "cast"}) >= 2


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_and_dequantize(dtype: str, axis: int | None) -> None:
    count = () if axis is None else (3,)
    zero = np.full(count, 7, dtype)
    # powers of two, so that a product with the inverse is the quotient
    scale = np.full(count, 1 / 32, np.float32)
    named = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **named),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **named),
    ]
    x = normal(2, 3, 4) * 4
    model = model_of(nodes, {"x": x}, constants={"s": scale, "z": zero}, outputs=("q", "y"))
    graph = check(model, {"x": x}, tolerance=1e-6)
    assert graph.types["q"].dtype == dtype


@pytest.mark.parametrize("zero", [None, 0, 7])
def test_a_zero_point_of_zero_or_none_costs_nothing(zero: int | None) -> None:
    """Symmetric codes, which most networks have for their weights; without one they are uint8."""
    constants = {"s": np.asarray(1 / 32, np.float32)}
    if zero is not None:
        constants["z"] = np.asarray(zero, np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *constants], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *constants], ["y"]),
    ]
    x = normal(2, 3, 4) * 4
    model = model_of(nodes, {"x": x}, constants=constants, outputs=("q", "y"))
    graph = check(model, {"x": x}, tolerance=1e-6)
    assert graph.types["q"].dtype == ("uint8" if zero is None else "int8")
    moved = {"add", "subtract"} & {node.operator for node in graph.nodes}
    assert moved == ({"add", "subtract"} if zero else set())


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_of_blocks_are_left_to_the_compilers_importer(operator: str) -> None:
    """A scale for every two rows of a column is no scale along an axis."""
    inputs = {"x": normal(4, 6) if operator == "QuantizeLinear" else codes("int8", 4, 6)}
    constants = {"s": np.full((2, 6), 0.5, np.float32), "z": np.zeros((2, 6), np.int8)}
    node = helper.make_node(operator, ["x", *constants], ["y"], axis=0, block_size=2, name="node")
    model = model_of([node], inputs, opset=21, constants=constants)
    assert [each.operator for each in unfolded(model).nodes] == ["opaque"]


CASES = {
    "conv2d_int8[c=8,h=9,w=7,k=3,out=16,pad=1,stride=2]": "uint8",
    "conv2d_int8[c=8,h=9,k=1,out=16,signed=1]": "int8",
    "conv2d_int8[c=8,h=9,k=3,out=16,groups=2,requantize=0]": "int32",
}


@pytest.mark.parametrize("text", CASES)
def test_the_single_operator_agrees_with_onnx_runtime(text: str) -> None:
    model = load("op:" + text)
    assert model.graph.types["y"].dtype == CASES[text]
    feed = random_inputs(model.graph, 0)
    wanted = reference(model.onnx_path, feed)["y"]
    np.testing.assert_array_equal(run_graph(model.graph, feed)["y"], wanted)
    assert len(np.unique(wanted)) > 20


def test_bare_sums_of_signed_data_are_refused() -> None:
    with pytest.raises(UsageError, match="signed=0"):
        load("op:conv2d_int8[c=8,h=9,k=1,out=16,signed=1,requantize=0]")
