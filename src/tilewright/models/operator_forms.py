"""The single operators that can be asked for, with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.input_files import machine_memory_bytes
from tilewright.core.units import format_bytes
from tilewright.graph.network import Array
from tilewright.models.bracketed import Value

_OPSET = 20
_LIMITED = {"pad": 0, "padh": 0, "padw": 0, "output_pad": 0, "ceil": 0, "include_pad": 0,
            "bias": 0, "relu": 0, "transpose_b": 0, "keep": 0, "signed": 0,
            "requantize": 0}  # fmt: skip
_FREE = {"axis", "axes", "perm"}
SKETCHED = "sketched weight"
"""The documentation of an input that stands for a weight, in the model of a sketch."""
_SKETCHED_ELEMENTS = 1024
"""Smaller weights are drawn even so: shape inference and cleaning may ask what is in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Values of one request, defaults filled in. Where only a sketch is asked for, large weights
    are not drawn: they become inputs of the model, documented as `SKETCHED`."""

    operator: str
    values: Mapping[str, Value]
    seed: int
    sketched: bool = False

    def number(self, name: str, refinement: str = "") -> int:
        """One integer; `refinement` wins where given."""
        value = self.values.get(refinement, self.values.get(name, 0))
        if not isinstance(value, int):
            raise UsageError(f"op:{self.operator}: {name} is one number")
        lowest = _LIMITED.get(refinement or name, _LIMITED.get(name, 1))
        if name not in _FREE and value < lowest:
            raise UsageError(f"op:{self.operator}: {name}={value} is not possible")
        return value

    def pair(self, name: str, down: str, across: str) -> list[int]:
        """A value per spatial axis."""
        return [self.number(name, down), self.number(name, across)]

    def shape(self, name: str) -> list[int]:
        """A list of integers."""
        value = self.values[name]
        sizes = list(value) if isinstance(value, tuple) else [value]
        if name not in _FREE and min(sizes) < 1:
            raise UsageError(f"op:{self.operator}: {name}={sizes} is not possible")
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Parameters of an operator: `defaults` (None: must be given), refinements per axis."""

    build: Callable[[Parameters], onnx.ModelProto]
    defaults: Mapping[str, Value | None]
    example: str
    refinements: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """An ONNX model being written: data inputs, random weights, those a sketch goes without, nodes.

    `taken` and `given` are ONNX's element types of the inputs and of the result.
    """

    request: Parameters
    taken: int = onnx.TensorProto.FLOAT
    given: int = onnx.TensorProto.FLOAT
    inputs: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])
    undrawn: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])

    def weight(self, name: str, shape: list[int]) -> str:
        size_bytes, memory_bytes = 4 * prod(shape), machine_memory_bytes()
        if size_bytes > memory_bytes:
            raise ModelError(
                f"its weight of shape {shape} is {format_bytes(size_bytes)}, more than the memory "
                f"of this machine, {format_bytes(memory_bytes)}"
            )
        if self.request.sketched and prod(shape) > _SKETCHED_ELEMENTS:
            self.undrawn[name] = shape
            return name
        generator = np.random.default_rng([self.request.seed, len(self.weights)])
        spread = 1 / sqrt(max(1, prod(shape[1:])))
        values = generator.standard_normal(shape, np.float32) * np.float32(spread)
        self.weights[name] = values.astype(np.float32)
        return name

    def constant(self, name: str, values: list[int]) -> str:
        self.weights[name] = np.asarray(values, np.int64)
        return name

    def node(self, operator: str, inputs: list[str], output: str, **named: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **named))
        return output

    def ends(self, result: str) -> onnx.ModelProto:
        """Add a following bias and relu where asked for; the finished model."""
        if self.request.values.get("relu"):
            result = self.node("Relu", [result], "relu")
        self.node("Identity", [result], "y")
        given = [
            helper.make_tensor_value_info(name, self.taken, shape)
            for name, shape in self.inputs.items()
        ]
        given += [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape, SKETCHED)
            for name, shape in self.undrawn.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            self.request.operator,
            given,
            [helper.make_tensor_value_info("y", self.given, None)],
            [numpy_helper.from_array(values, name) for name, values in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        try:
            return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            text = " ".join(str(error).split())
            raise UsageError(f"op:{self.request.operator}: {text}") from error


def _image(request: Parameters) -> list[int]:
    h = request.number("h")
    w = request.number("w") if "w" in request.values else h
    return [request.number("n"), request.number("c"), h, w]


def _windows(request: Parameters) -> dict[str, list[int]]:
    down, across = request.pair("pad", "padh", "padw")
    return {
        "kernel_shape": request.pair("k", "kh", "kw"),
        "strides": request.pair("stride", "sh", "sw"),
        "dilations": request.pair("dilation", "dh", "dw"),
        "pads": [down, across, down, across],
    }


def _convolution(request: Parameters) -> onnx.ModelProto:
    draft = _Draft(request, inputs={"x": _image(request)})
    channels = request.number("c")
    depthwise = request.operator == "depthwise"
    groups = channels if depthwise else request.number("groups")
    filters = channels * request.number("multiplier") if depthwise else request.number("out")
    if channels % groups or filters % groups:
        raise UsageError(f"op:{request.operator}: {groups} groups do not divide the channels")
    named: dict[str, Any] = {**_windows(request), "group": groups}
    kernel = request.pair("k", "kh", "kw")
    operator, shape = "Conv", [filters, channels // groups, *kernel]
    if request.operator == "conv2d_transpose":
        operator, shape = "ConvTranspose", [channels, filters // groups, *kernel]
        named["output_padding"] = [request.number("output_pad")] * 2
    inputs = ["x", draft.weight("weight", shape)]
    if request.values["bias"]:
        inputs.append(draft.weight("bias", [filters]))
    return draft.ends(draft.node(operator, inputs, request.operator, **named))


def _integer_convolution(request: Parameters) -> onnx.ModelProto:
    """Bytes times signed bytes: bare sums of 32 bits, or with bias and requantized to bytes."""
    signed, requantize = request.number("signed"), request.number("requantize")
    if signed and not requantize:
        raise UsageError(f"op:{request.operator}: bare sums are of unsigned data (signed=0)")
    channels, filters = request.number("c"), request.number("out")
    groups = request.number("groups")
    if channels % groups or filters % groups:
        raise UsageError(f"op:{request.operator}: {groups} groups do not divide the channels")
    byte = onnx.TensorProto.INT8 if signed else onnx.TensorProto.UINT8
    draft = _Draft(request, inputs={"x": _image(request)}, taken=byte)
    draft.given = byte if requantize else onnx.TensorProto.INT32
    named: dict[str, Any] = {**_windows(request), "group": groups}
    shape = [filters, channels // groups, *request.pair("k", "kh", "kw")]
    generator = np.random.default_rng(request.seed)
    draft.weights["weight"] = generator.integers(-127, 128, shape).astype(np.int8)
    if not requantize:
        return draft.ends(draft.node("ConvInteger", ["x", "weight"], request.operator, **named))
    # sums of random bytes come out some 40 quanta wide
    unit = 40 / (sqrt(prod(shape[1:])) * 57 * 73)
    scales = generator.uniform(0.5, 1.5, filters) * unit
    middle = np.zeros((), np.int8) if signed else np.full((), 128, np.uint8)
    draft.weights.update(
        {
            "one": np.ones((), np.float32),
            "x_zero": np.zeros_like(middle),
            "weight_scale": scales.astype(np.float32),
            "weight_zero": np.zeros(filters, np.int8),
            "y_zero": middle,
            "bias": generator.integers(-1000, 1001, filters).astype(np.int32),
        }
    )
    weights = ["weight", "weight_scale", "weight_zero"]
    inputs = ["x", "one", "x_zero", *weights, "one", "y_zero", "bias"]
    return draft.ends(draft.node("QLinearConv", inputs, request.operator, **named))


def _dense(request: Parameters) -> onnx.ModelProto:
    m, k, n = (request.number(name) for name in "mkn")
    draft = _Draft(request, inputs={"x": [m, k]})
    result = draft.node("MatMul", ["x", draft.weight("weight", [k, n])], "dense")
    if request.values["bias"]:
        result = draft.node("Add", [result, draft.weight("bias", [n])], "add")
    return draft.ends(result)


def _batch_matmul(request: Parameters) -> onnx.ModelProto:
    b, m, k, n = (request.number(name) for name in "bmkn")
    right = [b, n, k] if request.values["transpose_b"] else [b, k, n]
    draft = _Draft(request, inputs={"a": [b, m, k], "b": right})
    other = "b"
    if request.values["transpose_b"]:
        other = draft.node("Transpose", ["b"], "transposed", perm=[0, 2, 1])
    return draft.ends(draft.node("MatMul", ["a", other], "batch_matmul"))


def _pool(request: Parameters) -> onnx.ModelProto:
    draft = _Draft(request, inputs={"x": _image(request)})
    named: dict[str, Any] = {**_windows(request), "ceil_mode": request.number("ceil")}
    operator = "MaxPool"
    if request.operator == "avg_pool2d":
        operator = "AveragePool"
        named["count_include_pad"] = request.number("include_pad")
    return draft.ends(draft.node(operator, ["x"], request.operator, **named))


def _over_axis(request: Parameters) -> onnx.ModelProto:
    shape = request.shape("shape")
    draft = _Draft(request, inputs={"x": shape})
    axis = _axis(request, request.number("axis"), len(shape))
    if request.operator == "layer_norm":
        inputs = ["x", draft.weight("scale", shape[axis:]), draft.weight("bias", shape[axis:])]
        return draft.ends(draft.node("LayerNormalization", inputs, "layer_norm", axis=axis))
    if request.operator == "concat":
        names = [f"x{i}" for i in range(request.number("count"))]
        draft.inputs = {name: shape for name in names}
        return draft.ends(draft.node("Concat", names, "concat", axis=axis))
    return draft.ends(draft.node("Softmax", ["x"], "softmax", axis=axis))


def _axis(request: Parameters, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UsageError(f"op:{request.operator}: axis {axis} is outside {rank} axes")
    return axis % rank


def _reduce(request: Parameters) -> onnx.ModelProto:
    shape = request.shape("shape")
    draft = _Draft(request, inputs={"x": shape})
    axes = sorted(_axis(request, axis, len(shape)) for axis in request.shape("axes"))
    operator = "Reduce" + request.operator.removeprefix("reduce_").capitalize()
    inputs = ["x", draft.constant("axes", axes)]
    return draft.ends(draft.node(operator, inputs, "reduce", keepdims=request.number("keep")))


def _transpose(request: Parameters) -> onnx.ModelProto:
    shape, order = request.shape("shape"), request.shape("perm")
    if sorted(order) != list(range(len(shape))):
        raise UsageError(f"op:transpose: perm {order} does not fit {len(shape)} axes")
    draft = _Draft(request, inputs={"x": shape})
    return draft.ends(draft.node("Transpose", ["x"], "transpose", perm=order))


_ELEMENTWISE = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "sqrt": "Sqrt",
    "erf": "Erf", "gelu": "Gelu", "hard_swish": "HardSwish", "negative": "Neg", "abs": "Abs",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max",
    "minimum": "Min",
}  # fmt: skip
_TWO_INPUTS = {"add", "subtract", "multiply", "divide", "maximum", "minimum"}


def _elementwise(request: Parameters) -> onnx.ModelProto:
    shape = request.shape("shape")
    names = ["a", "b"] if request.operator in _TWO_INPUTS else ["x"]
    draft = _Draft(request, inputs={name: shape for name in names})
    return draft.ends(draft.node(_ELEMENTWISE[request.operator], names, request.operator))


_IMAGE: dict[str, Value | None] = {"n": 1, "c": None, "h": None, "k": None}
_WINDOW: dict[str, Value | None] = {"pad": 0, "stride": 1, "dilation": 1}
_AFTER: dict[str, Value | None] = {"bias": 0, "relu": 0}
_PER_AXIS = ("w", "kh", "kw", "sh", "sw", "dh", "dw", "padh", "padw")
_SHAPED: dict[str, Value | None] = {"shape": None}
_CONVOLVED = "c=64,h=56,k=3,pad=1"

FORMS: Mapping[str, Form] = {
    "conv2d": Form(
        build=_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "groups": 1, **_AFTER},
        refinements=_PER_AXIS,
        example=_CONVOLVED + ",out=64",
    ),
    "conv2d_int8": Form(
        build=_integer_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "groups": 1, "signed": 0, "requantize": 1},
        refinements=_PER_AXIS,
        example=_CONVOLVED + ",out=64",
    ),
    "depthwise": Form(
        build=_convolution,
        defaults={**_IMAGE, **_WINDOW, "multiplier": 1, **_AFTER},
        refinements=_PER_AXIS,
        example=_CONVOLVED,
    ),
    "conv2d_transpose": Form(
        build=_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "output_pad": 0, "groups": 1, **_AFTER},
        refinements=_PER_AXIS,
        example="c=64,h=28,k=4,pad=1,stride=2,out=32",
    ),
    "dense": Form(
        build=_dense,
        defaults={"m": 1, "k": None, "n": None, **_AFTER},
        example="m=128,k=768,n=3072",
    ),
    "batch_matmul": Form(
        build=_batch_matmul,
        defaults={"b": 1, "m": None, "k": None, "n": None, "transpose_b": 0, "relu": 0},
        example="b=12,m=128,k=64,n=128",
    ),
    "max_pool2d": Form(
        build=_pool,
        defaults={**_IMAGE, **_WINDOW, "ceil": 0},
        refinements=_PER_AXIS,
        example=_CONVOLVED + ",stride=2",
    ),
    "avg_pool2d": Form(
        build=_pool,
        defaults={**_IMAGE, **_WINDOW, "ceil": 0, "include_pad": 0},
        refinements=_PER_AXIS,
        example=_CONVOLVED + ",stride=2",
    ),
    **{
        name: Form(
            build=_over_axis,
            defaults={**_SHAPED, "axis": -1},
            lists=("shape",),
            example="shape=1x128x768",
        )
        for name in ("softmax", "layer_norm")
    },
    "concat": Form(
        build=_over_axis,
        defaults={**_SHAPED, "axis": 1, "count": 2},
        lists=("shape",),
        example="shape=1x64x56x56,count=2,axis=1",
    ),
    **{
        name: Form(
            build=_reduce,
            defaults={**_SHAPED, "axes": None, "keep": 1},
            lists=("shape", "axes"),
            example="shape=1x2048x7x7,axes=2x3",
        )
        for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
    },
    "transpose": Form(
        build=_transpose,
        defaults={**_SHAPED, "perm": None},
        lists=("shape", "perm"),
        example="shape=1x128x12x64,perm=0x2x1x3",
    ),
    **{
        name: Form(
            build=_elementwise, defaults=_SHAPED, lists=("shape",), example="shape=1x64x56x56"
        )
        for name in _ELEMENTWISE
    },
}
"""Every single operator by name."""
