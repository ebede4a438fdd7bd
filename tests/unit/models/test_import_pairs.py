"""Operators between DequantizeLinear and QuantizeLinear, against ONNX Runtime on the codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.graph_builder import run_fused
from helpers.networks.onnx_models import few, folded, model_of, normal
from helpers.networks.tiny_networks import quantized_resnet
from tilewright.core.errors import ModelError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Graph
from tilewright.graph.tasks import fused_network
from tilewright.models.loading import load_model
from tilewright.models.onnx_import.pairs import on_codes

Array = np.ndarray[Any, Any]


def runtime(model: onnx.ModelProto, feed: dict[str, Array]) -> Array:
    """ONNX Runtime as users run it: it too puts operators on the codes."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = model.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def anchors(graph: Graph) -> list[str]:
    """Element types of the data and the result of every convolution and matrix product."""
    return [
        f"{graph.types[node.inputs[0]].dtype} {node.operator} {graph.types[node.output].dtype}"
        for node in graph.nodes
        if node.operator in ("conv2d", "conv2d_transpose", "dense")
    ]


class Pairs:
    """Writes one operator between its pairs."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def read(self, codes: str, scale: Array | float, zero: Array, axis: int = 0) -> str:
        self._pair(codes, scale, zero)
        inputs = [codes, f"{codes}_s", f"{codes}_z"]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{codes}_d"], axis=axis))
        return f"{codes}_d"

    def weights(self, name: str, codes: Array, scale: Array | float, axis: int = 0) -> str:
        self.constants[name] = codes
        zero = np.zeros(np.shape(scale), codes.dtype)
        return self.read(name, scale, zero, axis)

    def write(self, value: str, codes: str, scale: float, zero: Array) -> None:
        self._pair(codes, scale, zero)
        inputs = [value, f"{codes}_s", f"{codes}_z"]
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [codes]))

    def _pair(self, codes: str, scale: Array | float, zero: Array) -> None:
        self.constants[f"{codes}_s"] = np.asarray(scale, np.float32)
        self.constants[f"{codes}_z"] = zero


def bytes_of(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    return values.astype(dtype)


def convolution(
    dtype: str, x_zero: int, y_zero: int, *, activation: str = "", bias_scale: float = 1.0
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    p, x = Pairs(), bytes_of(dtype, 1, 4, 8, 7)
    w_scale = np.linspace(0.003, 0.005, 6, dtype=np.float32)
    weights = bytes_of("int8", 6, 4, 3, 3, seed=1) // 2  # pairs of products fit 16 bits
    data = p.read("x", 0.05, np.asarray(x_zero, dtype))
    operands = [data, p.weights("w", weights, w_scale)]
    bias = np.arange(-3000, 3000, 1000, dtype=np.int32)
    operands.append(p.weights("b", bias, w_scale * np.float32(0.05) * bias_scale))
    p.nodes.append(helper.make_node("Conv", operands, ["c"], name="conv", pads=[1, 1, 1, 1]))
    if activation:
        p.nodes.append(helper.make_node(activation, ["c"], ["a"]))
    p.write("a" if activation else "c", "y", 0.07, np.asarray(y_zero, dtype))
    return model_of(p.nodes, {"x": x}, constants=p.constants), {"x": x}


@few
@given(
    st.sampled_from(
        [("uint8", 0, 0), ("uint8", 128, 0), ("uint8", 7, 131), ("int8", 0, -128), ("int8", 3, 5)]
    ),
    st.booleans(),
)
def test_a_convolution_works_on_the_codes(kinds: tuple[str, int, int], relu: bool) -> None:
    dtype, x_zero, y_zero = kinds
    lowest = y_zero == np.iinfo(dtype).min
    model, feed = convolution(dtype, x_zero, y_zero, activation="Relu" if relu and lowest else "")
    graph = folded(model)
    assert anchors(graph) == [f"{dtype} conv2d int32"]
    result = run_graph(graph, feed)["y"]
    np.testing.assert_array_equal(result, runtime(model, feed))
    assert len(np.unique(result)) > 50


@few
@given(
    kind=st.sampled_from([("uint8", 0), ("uint8", 128), ("uint8", 7), ("int8", 0), ("int8", 3)]),
    groups=st.sampled_from([1, 3]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    more=st.sampled_from(
        [{}, {"pads": [1, 0, 0, 1]}, {"output_padding": [1, 0], "strides": [2, 3]},
         {"dilations": [2, 1]}, {"auto_pad": "SAME_LOWER"}]
    ),
)  # fmt: skip
def test_a_transposed_convolution_works_on_the_codes(
    kind: tuple[str, int], groups: int, kernel: Any, strides: Any, more: dict[str, Any]
) -> None:
    """Scales and zero points of weights are those of the channels of one group."""
    p, x, (dtype, zero) = Pairs(), bytes_of(kind[0], 1, 6, 5, 4), kind
    scale = np.linspace(0.003, 0.005, 9 // groups, dtype=np.float32)
    weights = bytes_of("int8", 6, 9 // groups, *kernel, seed=1) // 2
    data = p.read("x", 0.05, np.asarray(zero, dtype))
    operands = [data, p.weights("w", weights, scale, 1)]
    bias = np.arange(-4000, 5000, 1000, dtype=np.int32)
    operands.append(p.weights("b", bias, np.tile(scale, groups) * np.float32(0.05)))
    named = {"strides": strides, "group": groups, **more}
    p.nodes.append(helper.make_node("ConvTranspose", operands, ["c"], name="conv", **named))
    p.nodes.append(helper.make_node("Relu", ["c"], ["a"]))
    p.write("a", "y", 0.07, np.asarray(0, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    assert anchors(graph) == [f"{dtype} conv2d_transpose int32"]
    assert "relu" not in {node.operator for node in graph.nodes}
    result, wanted = run_graph(graph, {"x": x})["y"], runtime(model, {"x": x})
    assert np.abs(result.astype(int) - wanted).max() <= 1  # products of singles are rounded, too
    assert np.mean(result != wanted) < 0.01


@pytest.mark.parametrize(("zero", "kind"), [(0, "uint8 conv2d_transpose int32"),
                                            (7, "float32 conv2d_transpose float32")])  # fmt: skip
def test_no_image_of_a_zero_point_is_computed_at_each_run(zero: int, kind: str) -> None:
    """It is folded up to 16 MiB; here it would be 33."""
    p, x = Pairs(), bytes_of("uint8", 1, 1, 64, 64)
    operands = [p.read("x", 0.05, np.asarray(zero, np.uint8))]
    operands.append(p.weights("w", bytes_of("int8", 1, 2, 1, 1, seed=1), 0.003))
    p.nodes.append(helper.make_node("ConvTranspose", operands, ["c"], strides=[32, 32]))
    p.write("c", "y", 0.07, np.asarray(0, np.uint8))
    assert anchors(folded(model_of(p.nodes, {"x": x}, constants=p.constants))) == [kind]


def test_an_activation_that_saturation_does_not_replace_stays() -> None:
    model, feed = convolution("uint8", 7, 131, activation="Relu")
    graph = folded(model)
    assert anchors(graph) == ["float32 conv2d float32"]
    assert "relu" in {node.operator for node in graph.nodes}
    result = run_graph(graph, feed)["y"]
    assert result.min() == 131
    assert np.abs(result.astype(int) - runtime(model, feed)).max() <= 1


def test_a_bias_of_another_scale_keeps_the_convolution_in_floats() -> None:
    model, feed = convolution("uint8", 7, 131, bias_scale=3.0)
    graph = folded(model)
    assert anchors(graph) == ["float32 conv2d float32"]
    assert np.abs(run_graph(graph, feed)["y"].astype(int) - runtime(model, feed)).max() <= 1


def test_a_result_that_is_read_in_floats_too_is_kept() -> None:
    model, feed = convolution("uint8", 7, 131)
    model.graph.node.append(helper.make_node("Relu", ["c"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None))
    assert anchors(folded(model)) == ["float32 conv2d float32"]
    assert set(run_graph(folded(model), feed)) >= {"y", "r"}


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_codes_around_128_that_only_convolutions_read_become_signed(operator: str) -> None:
    p, x = Pairs(), normal(1, 4, 8, 8)
    p.write("x", "q", 0.03, np.asarray(128, np.uint8))
    data = p.read("q", 0.03, np.asarray(128, np.uint8))
    shape = (6, 4) if operator == "Conv" else (4, 6)
    weight = p.weights("w", bytes_of("int8", *shape, 3, 3) // 2, 0.002)
    p.nodes.append(helper.make_node(operator, [data, weight], ["c"], pads=[1, 1, 1, 1]))
    p.write("c", "y", 0.02, np.asarray(0, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    name = "conv2d" if operator == "Conv" else "conv2d_transpose"
    assert anchors(graph) == [f"int8 {name} int32"]
    assert "pad" not in {node.operator for node in graph.nodes}
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], runtime(model, {"x": x}))


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_layer_stays_in_codes(transposed: int, per_channel: bool) -> None:
    p, x = Pairs(), bytes_of("uint8", 3, 24)
    scale = np.linspace(0.001, 0.003, 10, dtype=np.float32) if per_channel else np.float32(0.002)
    shape, axis = ((10, 24), 0) if transposed else ((24, 10), 1)
    data = p.read("x", 0.05, np.asarray(9, np.uint8))
    weight = p.weights("w", bytes_of("int8", *shape, seed=1) // 2, scale, axis)
    bias = p.weights("b", np.arange(10, dtype=np.int32) * 300, scale * np.float32(0.05))
    p.nodes.append(helper.make_node("Gemm", [data, weight, bias], ["c"], transB=transposed))
    p.write("c", "y", 0.04, np.asarray(128, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    assert anchors(graph) == ["uint8 dense int32"]
    result = run_graph(graph, {"x": x})["y"]
    np.testing.assert_array_equal(result, runtime(model, {"x": x}))
    assert result.shape == (3, 10)
    assert len(np.unique(result)) > 10


@pytest.mark.parametrize("zero", [0, 128, 77])
def test_a_product_with_weights_stays_in_codes(zero: int) -> None:
    p, x = Pairs(), bytes_of("uint8", 2, 3, 24)
    data = p.read("x", 0.05, np.asarray(zero, np.uint8))
    scale = np.linspace(0.001, 0.003, 10, dtype=np.float32)
    weight = p.weights("w", bytes_of("int8", 24, 10, seed=1) // 2, scale, 1)
    p.nodes.append(helper.make_node("MatMul", [data, weight], ["c"]))
    p.write("c", "y", 0.04, np.asarray(128, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    assert anchors(graph) == ["uint8 dense int32"]
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], runtime(model, {"x": x}))


@pytest.mark.parametrize(("scale", "dtype"), [(0.05, "uint8"), (0.04, "float32")])
def test_pooling_works_on_the_codes_of_one_scale(scale: float, dtype: str) -> None:
    p, x = Pairs(), bytes_of("uint8", 1, 3, 8, 8)
    data = p.read("x", 0.05, np.asarray(3, np.uint8))
    p.nodes.append(helper.make_node("MaxPool", [data], ["c"], kernel_shape=[2, 2]))
    p.write("c", "y", scale, np.asarray(3, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    (pool,) = [node for node in graph.nodes if node.operator == "max_pool2d"]
    assert graph.types[pool.inputs[0]].dtype == dtype
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], runtime(model, {"x": x}))


@pytest.mark.parametrize(("scale", "casts"), [(0.05, 0), (0.1, 1)])
def test_codes_are_joined_as_they_are(scale: float, casts: int) -> None:
    """Those of another scale are quantized anew, by one kernel from bytes to bytes."""
    p, x, z = Pairs(), bytes_of("uint8", 1, 3, 4, 4), bytes_of("uint8", 1, 5, 4, 4, seed=1)
    one = p.read("x", 0.05, np.asarray(3, np.uint8))
    other = p.read("z", scale, np.asarray(3, np.uint8))
    p.nodes.append(helper.make_node("Concat", [one, other], ["c"], axis=1))
    p.write("c", "y", 0.05, np.asarray(3, np.uint8))
    model = model_of(p.nodes, {"x": x, "z": z}, constants=p.constants)
    network = fused_network(folded(model))
    assert [call.workload.result.dtype for call in network.calls] == ["uint8"] * (1 + casts)
    feed = {"x": x, "z": z}
    np.testing.assert_array_equal(run_graph(network.graph, feed)["y"], runtime(model, feed))


@pytest.mark.parametrize(("pads", "counted"), [((0, 0, 0, 0), 0), ((1, 1, 1, 1), 1)])
def test_an_average_is_a_sum_of_codes(pads: tuple[int, ...], counted: int) -> None:
    p, x = Pairs(), bytes_of("uint8", 1, 3, 8, 8)
    data = p.read("x", 0.0517, np.asarray(3, np.uint8))
    named = {"kernel_shape": [2, 4], "strides": [2, 2], "count_include_pad": counted}
    p.nodes.append(helper.make_node("AveragePool", [data], ["c"], pads=pads, **named))
    p.write("c", "y", 0.0331, np.asarray(7, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    assert anchors(graph) == ["uint8 conv2d int32"]
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], runtime(model, {"x": x}))


def test_a_border_that_is_not_counted_is_averaged_in_floats() -> None:
    p, x = Pairs(), bytes_of("uint8", 1, 3, 8, 8)
    data = p.read("x", 0.0517, np.asarray(3, np.uint8))
    named = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    p.nodes.append(helper.make_node("AveragePool", [data], ["c"], **named))
    p.write("c", "y", 0.0331, np.asarray(7, np.uint8))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    graph = folded(model)
    assert "avg_pool2d" in {node.operator for node in graph.nodes}
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], runtime(model, {"x": x}))


def test_an_addition_is_one_kernel_from_bytes_to_bytes() -> None:
    p, x, z = Pairs(), bytes_of("uint8", 2, 3, 8), bytes_of("uint8", 2, 3, 8, seed=1)
    one, other = (
        p.read(name, scale, np.asarray(zero, np.uint8))
        for name, scale, zero in (("x", 0.05, 3), ("z", 0.03, 77))
    )
    p.nodes.append(helper.make_node("Add", [one, other], ["c"]))
    p.write("c", "y", 0.07, np.asarray(128, np.uint8))
    model = model_of(p.nodes, {"x": x, "z": z}, constants=p.constants)
    network, feed = fused_network(folded(model)), {"x": x, "z": z}
    assert [call.workload.result.dtype for call in network.calls] == ["uint8"]
    np.testing.assert_array_equal(run_fused(network, feed)["y"], runtime(model, feed))


@pytest.mark.parametrize("missing", ["scale", "name"])
def test_a_missing_scale_is_refused_by_the_name_of_its_node(missing: str) -> None:
    p, x = Pairs(), bytes_of("uint8", 1, 3, 8, 8)
    data = p.read("x", 0.05, np.asarray(3, np.uint8))
    p.nodes.append(helper.make_node("Relu", [data], ["y"]))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    node = model.graph.node[0]
    node.name, node.input[1] = "dequantized", "" if missing == "name" else "nowhere"
    with pytest.raises(ModelError, match="dequantized"):
        load_model(model, "missing")


@pytest.mark.parametrize("scale", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["data", "weights"])
def test_a_scale_that_is_no_number_is_refused_by_the_name_of_its_node(
    part: str, scale: float
) -> None:
    p, x = Pairs(), bytes_of("uint8", 1, 3, 8, 8)
    data = p.read("x", scale if part == "data" else 0.05, np.asarray(3, np.uint8))
    p.constants["w"] = bytes_of("int8", 4, 3, 1, 1)
    scales = np.asarray([0.1, scale if part == "weights" else 0.2, 0.3, 0.4], np.float32)
    weights = p.read("w", scales, np.zeros(4, np.int8))
    p.nodes.append(helper.make_node("Conv", [data, weights], ["y"]))
    model = model_of(p.nodes, {"x": x}, constants=p.constants)
    node = model.graph.node[0 if part == "data" else 1]
    node.name = "dequantized"
    with pytest.raises(ModelError, match=r"'dequantized' .* not a finite number, .*damaged"):
        load_model(model, "damaged")


def steps(network: FusedNetwork) -> list[str]:
    return [" ".join(step.operator for step in call.workload.steps) for call in network.calls]


@pytest.mark.parametrize("name", ["basic_1_1", "bottleneck_1_1"])
def test_a_quantized_network_agrees_with_onnx_runtime_bit_for_bit(name: str) -> None:
    model, image = quantized_resnet(name), normal(1, 3, 48, 48)
    graph = folded(model)
    wanted = runtime(model, {"input": image})
    np.testing.assert_array_equal(run_graph(graph, {"input": image})["logits"], wanted)
    fused = run_fused(fused_network(graph), {"input": image})
    np.testing.assert_array_equal(fused["logits"], wanted)
    assert len(np.unique(wanted)) > 15


def test_every_convolution_is_one_kernel_from_bytes_to_bytes() -> None:
    network = fused_network(folded(quantized_resnet("basic_2_1")))
    wanted = [
        "multiply round clip cast",
        *["conv2d add cast multiply round clip cast", "max_pool2d"],
        *["conv2d add cast multiply round clip cast"],
        *["conv2d add cast multiply round clip multiply cast add round clip cast"],  # at one scale
    ]
    assert steps(network)[: len(wanted)] == wanted
    calls = {call.name: call for call in network.calls}
    # the stem, three blocks of two, one projection
    assert sum("conv2d" in text for text in steps(network)) == 1 + 3 * 2 + 1
    assert sum("dense" in text for text in steps(network)) == 1
    assert [str(c.workload.result.dtype) for n, c in calls.items() if ".conv" in n][:-1] == (
        ["uint8"] * 5
    )
    residual = calls["layer1.1.conv2"].workload
    assert [a.type.dtype for a in residual.arguments if a.role == "data"] == ["uint8", "uint8"]
    projection = calls["layer2.0.downsample.0"].workload
    assert projection.result.dtype == "uint8"
    assert not any(text == "cast" or text.startswith("cast ") for text in steps(network))
    assert len(network.calls) == 13


def test_a_result_that_a_branch_reads_is_kept() -> None:
    model, _ = convolution("uint8", 7, 131)
    branch = helper.make_graph(
        [helper.make_node("Relu", ["c"], ["r"])],
        "branch",
        [],
        [helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)],
    )
    choice = helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=branch)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert "QLinearConv" in {node.op_type for node in on_codes(model.graph, weights, {})[0]}
    model.graph.node.append(choice)
    kept, _ = on_codes(model.graph, weights, {})
    assert [node.op_type for node in kept] == [node.op_type for node in model.graph.node]
