"""Good models to begin with: small, quick to compile, of many operators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

_OPSETS = (13, 17, 18)
_LARGEST_BYTES = 40_000
_DATA = Path(onnx.__file__).parent / "backend/test/data"


def seed_model(rng: Random) -> tuple[onnx.ModelProto, str]:
    """A good model and its name: half of them networks, the others single operators."""
    drawn = rng.random()
    if drawn < 0.35:
        build = rng.choice(NETWORKS)
        return build(rng), build.__name__
    if drawn < 0.6:
        return single_operator(rng)
    if drawn < 0.85:
        return node_test(rng)
    if drawn < 0.93:
        return beginning(rng)
    path = rng.choice(converted())
    return _of_today(onnx.load(path)), path.parent.name


def _weights(rng: Random, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    values = np.random.default_rng(rng.randrange(1 << 32)).standard_normal(shape)
    return (values / max(1.0, float(np.prod(shape[1:])) ** 0.5)).astype(dtype)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    constants: Mapping[str, np.ndarray[Any, Any]],
    *,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """A model whose outputs have inferred types, where they fit together."""
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    try:
        return onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model


def perceptron(rng: Random) -> onnx.ModelProto:
    """Two dense layers and a softmax."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1", transB=1),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["z"], name="fc2"),
        helper.make_node("Softmax", ["z"], ["y"], name="softmax", axis=-1),
    ]
    constants = {
        "w1": _weights(rng, 16, 12),
        "b1": _weights(rng, 16),
        "w2": _weights(rng, 16, 10),
    }
    return model_of(nodes, {"x": (TensorProto.FLOAT, (2, 12))}, constants)


def convolutional(rng: Random) -> onnx.ModelProto:
    """Convolution, batch norm, a residual, a depthwise one, pooling, a classifier."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c1", "s", "o", "m", "v"], ["n1"], name="bn"),
        helper.make_node("Relu", ["n1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "wd"], ["c2"], name="depthwise", group=8, pads=[1] * 4),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], name="relu6"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], name="conv3"),
        helper.make_node("Add", ["c3", "r1"], ["a"], name="add"),
        helper.make_node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="fc", transB=1),
    ]
    constants = {
        "w1": _weights(rng, 8, 3, 3, 3),
        "s": np.ones(8, np.float32),
        "o": _weights(rng, 8),
        "m": _weights(rng, 8),
        "v": np.ones(8, np.float32),
        "wd": _weights(rng, 8, 1, 3, 3),
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
        "w3": _weights(rng, 8, 8, 1, 1),
        "b3": _weights(rng, 8),
        "w4": _weights(rng, 5, 8),
        "b4": _weights(rng, 5),
    }
    return model_of(nodes, {"x": (TensorProto.FLOAT, (1, 3, 8, 8))}, constants)


def transformer(rng: Random) -> onnx.ModelProto:
    """Embedding, one head of attention, layer norm, a feed-forward part."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embedding"),
        helper.make_node("MatMul", ["e", "wq"], ["q"], name="q"),
        helper.make_node("MatMul", ["e", "wk"], ["k"], name="k"),
        helper.make_node("MatMul", ["e", "wv"], ["v"], name="v"),
        helper.make_node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"], name="scores"),
        helper.make_node("Div", ["s", "root"], ["d"], name="scale"),
        helper.make_node("Softmax", ["d"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["a"], name="mix"),
        helper.make_node("Add", ["a", "e"], ["r"], name="residual"),
        helper.make_node("LayerNormalization", ["r", "g", "b"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "w1"], ["h"], name="up"),
        helper.make_node("Erf", ["h"], ["t"], name="erf"),
        helper.make_node("Mul", ["t", "h"], ["u"], name="gate"),
        helper.make_node("MatMul", ["u", "w2"], ["y"], name="down"),
    ]
    constants = {name: _weights(rng, 8, 8) for name in ("wq", "wk", "wv")}
    constants |= {"table": _weights(rng, 20, 8), "root": np.array(2.83, np.float32)}
    constants |= {"g": np.ones(8, np.float32), "b": _weights(rng, 8)}
    constants |= {"w1": _weights(rng, 8, 16), "w2": _weights(rng, 16, 8)}
    return model_of(nodes, {"ids": (TensorProto.INT64, (1, 6))}, constants)


def quantized(rng: Random) -> onnx.ModelProto:
    """A quantized convolution between floats."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"], name="quantize"),
        helper.make_node(
            "QLinearConv",
            ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"],
            ["c"],
            name="conv",
            pads=[1] * 4,
        ),
        helper.make_node("DequantizeLinear", ["c", "sy", "zy"], ["y"], name="dequantize"),
    ]
    integers = np.random.default_rng(rng.randrange(1 << 32)).integers
    constants = {
        "sx": np.array(0.02, np.float32),
        "zx": np.array(128, np.uint8),
        "w": integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
        "sw": np.full(8, 0.01, np.float32),
        "zw": np.zeros(8, np.int8),
        "sy": np.array(0.05, np.float32),
        "zy": np.array(120, np.uint8),
        "b": integers(-100, 100, 8).astype(np.int32),
    }
    return model_of(nodes, {"x": (TensorProto.FLOAT, (1, 4, 6, 6))}, constants)


def branching(rng: Random) -> onnx.ModelProto:
    """Shapes computed from shapes, slices, concatenation, two outputs."""
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"], name="shape"),
        helper.make_node("Gather", ["dims", "first"], ["n"], name="batch"),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"], name="lift"),
        helper.make_node("Concat", ["n1", "rest"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"], name="reshape"),
        helper.make_node("Split", ["flat"], ["l", "r"], name="split", axis=1),
        helper.make_node("Sigmoid", ["l"], ["ls"], name="sigmoid"),
        helper.make_node("Mul", ["ls", "r"], ["m"], name="glu"),
        helper.make_node("Pad", ["m", "pads"], ["p"], name="pad"),
        helper.make_node("Slice", ["p", "begin", "end"], ["y"], name="slice"),
        helper.make_node("ReduceMean", ["m"], ["z"], name="mean", axes=[1], keepdims=0),
    ]
    constants = {
        "first": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
        "pads": np.array([0, 1, 0, 2], np.int64),
        "begin": np.array([0, 1], np.int64),
        "end": np.array([2, 9], np.int64),
    }
    return model_of(nodes, {"x": (TensorProto.FLOAT, (2, 4, 6))}, constants, outputs=("y", "z"))


NETWORKS = (perceptron, convolutional, convolutional, transformer, quantized, branching)

_ONE = ("Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish")
_ONE += ("Identity", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round")
_ONE += ("Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")
_ONE += ("Flatten", "Softmax", "LogSoftmax", "Transpose", "Size", "Shape", "ArgMax", "Squeeze")
_TWO = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "Equal", "Less", "MatMul", "And")
_TWO += ("Greater", "PRelu", "BitShift", "Or", "Xor", "Mean", "Sum")
_INDEXED = ("Gather", "GatherElements", "Expand", "Tile", "Reshape", "TopK", "OneHot", "GatherND")


def single_operator(rng: Random) -> tuple[onnx.ModelProto, str]:
    """One operator on small tensors of a random type, its further operands constants."""
    dtype = rng.choice(("float32",) * 5 + ("float64", "float16", "int32", "int64", "uint8", "bool"))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = [rng.choice((1, 2, 3, 4, 7)) for _ in range(rng.choice((0, 1, 2, 2, 3, 4)))]
    constants: dict[str, np.ndarray[Any, Any]] = {}
    operator = rng.choice(rng.choice((_ONE, _TWO, _INDEXED)))
    operands = ["x"]
    if operator in _TWO:
        other = shape[rng.randrange(len(shape) + 1) :] if operator != "MatMul" else shape[::-1]
        constants["c"] = (_weights(rng, *other) * 4).astype(dtype)
        operands.append("c")
    if operator in _INDEXED:
        count = rng.choice((0, 1, 2, len(shape)))
        values = [rng.choice((-1, 0, 1, 2, 3, 9)) for _ in range(count)]
        constants["i"] = np.array(values, np.int64)
        operands.append("i")
    opset = 20 if operator in ("Gelu", "Mish") else rng.choice(_OPSETS)
    node = helper.make_node(operator, operands, ["y"], name=operator.lower())
    model = model_of([node], {"x": (element, shape)}, constants, opset=opset)
    return model, f"{operator} of {dtype}{shape}"


@cache
def _node_tests() -> tuple[tuple[str, bytes], ...]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)  # pyright: ignore[reportArgumentType]
    models = ((c.name, c.model.SerializeToString()) for c in cases if c.model is not None)
    return tuple(sorted((n, m) for n, m in models if len(m) < _LARGEST_BYTES))


def node_test(rng: Random) -> tuple[onnx.ModelProto, str]:
    """A model of the tests that come with the onnx package."""
    name, content = rng.choice(_node_tests())
    return onnx.load_model_from_string(content), name


@cache
def converted() -> tuple[Path, ...]:
    """Small models that the onnx package has on file."""
    found = [
        path
        for folder in ("pytorch-converted", "pytorch-operator", "simple")
        for path in sorted((_DATA / folder).glob("*/model.onnx"))
        if path.stat().st_size < _LARGEST_BYTES
    ]
    return tuple(found)


def _of_today(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an operator set that can be read, where it converts."""
    try:
        return onnx.version_converter.convert_version(model, _OPSETS[0])
    except (RuntimeError, onnx.version_converter.ConvertError):
        return model


@cache
def _light(name: str) -> bytes:
    model = onnx.load(_DATA / "light" / name)
    return onnx.shape_inference.infer_shapes(model, data_prop=True).SerializeToString()


def beginning(rng: Random) -> tuple[onnx.ModelProto, str]:
    """The first few nodes of a real network."""
    name = rng.choice(("resnet50", "squeezenet", "shufflenet", "inception_v1", "densenet121"))
    model = onnx.load_model_from_string(_light(f"light_{name}.onnx"))
    graph = model.graph
    known = {value.name: value for value in graph.value_info}
    weights = [node for node in graph.node if not node.input or node.op_type == "ConstantOfShape"]
    others = [node for node in graph.node if node not in weights]
    kept = others[: rng.choice((2, 3, 5))]
    read = {each for node in kept for each in node.input}
    nodes = [node for node in weights if set(node.output) & read] + kept
    del graph.node[:]
    graph.node.extend(nodes)
    used = {each for node in nodes for each in node.input}
    for values in (graph.initializer, graph.input):
        remaining = [value for value in values if value.name in used]
        del values[:]
        values.extend(remaining)
    last = kept[-1].output[0]
    del graph.output[:], graph.value_info[:]
    graph.output.append(known.get(last) or onnx.ValueInfoProto(name=last))
    return model, f"the beginning of {name}"
