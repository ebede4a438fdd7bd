"""`op:conv2d[n=1,c=64,...]`: a single operator as an ONNX model with seeded random weights, or
without most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.errors import ModelError, UsageError, close_matches, quoted
from tilewright.core.input_files import machine_memory_bytes
from tilewright.core.units import format_bytes
from tilewright.graph.network import Array
from tilewright.graph.operators.recurrent import GATES
from tilewright.models.source import Value, label, read_values, split_brackets

_OPSET = 20
_LIMITED = {"pad": 0, "padh": 0, "padw": 0, "output_pad": 0, "ceil": 0, "include_pad": 0,
            "bias": 0, "relu": 0, "transpose_b": 0, "keep": 0, "signed": 0, "requantize": 0,
            "key_heads": 0, "keys": 0, "causal": 0, "mask": 0}  # fmt: skip
_FREE, _LISTS = {"axis", "axes", "perm"}, {"shape", "axes", "perm"}
UNDRAWN = "weight that was not drawn"
"""The documentation of an input that stands for a weight, in an outline."""
_UNDRAWN_ELEMENTS = 1024
"""Smaller weights are drawn even so: shape inference and cleaning may ask what is in them."""


def build_operator(
    text: str, *, seed: int = 0, outline: bool = False
) -> tuple[str, onnx.ModelProto]:
    """A readable name and the model for the text after `op:`. In an outline large weights are not
    drawn: they are inputs of the model, documented as `UNDRAWN`.

    Raises UsageError for unknown operators and parameters, missing ones, and impossible values.
    """
    name, inside = split_brackets("op", text)
    if name not in SIGNATURES:
        raise UsageError(f"no single operator {quoted(name)}", hint=close_matches(name, SIGNATURES))
    known = SIGNATURES[name]
    per_axis = _PER_AXIS if "pad" in known.defaults else ()
    given = read_values(f"op:{name}", inside, {*known.defaults, *per_axis}, _LISTS)
    missing = [key for key, value in known.defaults.items() if value is None and key not in given]
    if missing:
        raise UsageError(
            f"op:{name} needs {', '.join(missing)}",
            hint=f"For instance: op:{name}[{known.example}]",
        )
    values = {key: value for key, value in known.defaults.items() if value is not None} | given
    draft = _Draft(operator=name, values=values, seed=seed, outline=outline)
    return label(name, given), draft.finished(known.write(draft))


def with_default(text: str, parameter: str) -> str:
    """`op:conv2d[c=8]`, "pad" → `op:conv2d[c=8,pad=0]`: a parameter that has a default number and
    was left out is written out; any other text stays as it is."""
    name, inside = split_brackets("op", text.removeprefix("op:"))
    default = SIGNATURES[name].defaults.get(parameter) if name in SIGNATURES else None
    written = {part.partition("=")[0].strip() for part in inside.split(",")}
    if not isinstance(default, int) or parameter in written:
        return text
    parts = [*filter(None, [inside]), f"{parameter}={default}"]
    return f"op:{name}[{','.join(parts)}]"


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A single operator being written: `values` are its parameters, defaults filled in.

    `taken` and `given` are ONNX's element types of the inputs and of the result; `undrawn` are the
    shapes of the weights that an outline goes without.
    """

    operator: str
    values: Mapping[str, Any]
    seed: int
    outline: bool
    taken: int = TensorProto.FLOAT
    given: int = TensorProto.FLOAT
    inputs: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])
    undrawn: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])

    def number(self, name: str, refinement: str = "") -> int:
        """One integer; `refinement` wins where given."""
        value: int = self.values.get(refinement, self.values.get(name, 0))
        lowest = _LIMITED.get(refinement or name, _LIMITED.get(name, 1))
        if name not in _FREE and value < lowest:
            raise self.refusal(f"{name}={value} is not possible")
        return value

    def numbers(self, *names: str) -> list[int]:
        """Several of them."""
        return [self.number(name) for name in names]

    def pair(self, name: str, down: str, across: str) -> list[int]:
        """A value per spatial axis."""
        return [self.number(name, down), self.number(name, across)]

    def shape(self, name: str = "shape") -> list[int]:
        """A list of integers."""
        sizes = [*self.values[name]]
        if name not in _FREE and min(sizes) < 1:
            raise self.refusal(f"{name}={sizes} is not possible")
        return sizes

    def refusal(self, why: str) -> UsageError:
        """What to raise where the parameters make no operator."""
        return UsageError(f"op:{self.operator}: {why}")

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.refusal(f"axis {axis} is outside {rank} axes")
        return axis % rank

    def weight(self, name: str, shape: list[int]) -> str:
        """A random weight, or in an outline perhaps a shape alone."""
        size_bytes, memory_bytes = 4 * prod(shape), machine_memory_bytes()
        if size_bytes > memory_bytes:
            raise ModelError(
                f"its weight of shape {shape} is {format_bytes(size_bytes)}, more than the memory "
                f"of this machine, {format_bytes(memory_bytes)}"
            )
        if self.outline and prod(shape) > _UNDRAWN_ELEMENTS:
            self.undrawn[name] = shape
            return name
        generator = np.random.default_rng([self.seed, len(self.weights)])
        spread = np.float32(1 / sqrt(max(1, prod(shape[1:]))))
        self.weights[name] = generator.standard_normal(shape, np.float32) * spread
        return name

    def node(self, kind: str, inputs: list[str], output: str = "", **named: Any) -> str:
        """Append a node; its output has the operator's name, if no other."""
        output = output or self.operator
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **named))
        return output

    def reshape(self, source: str, shape: list[int], output: str) -> str:
        """Append a view of a tensor."""
        self.weights[f"{output}_shape"] = np.array(shape)
        return self.node("Reshape", [source, f"{output}_shape"], output)

    def finished(self, result: str) -> onnx.ModelProto:
        """The model, with a following relu where asked for."""
        if self.values.get("relu"):
            result = self.node("Relu", [result], "relu")
        self.node("Identity", [result], "y")
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            self.operator,
            [
                *(info(name, self.taken, shape) for name, shape in self.inputs.items()),
                *(info(name, TensorProto.FLOAT, s, UNDRAWN) for name, s in self.undrawn.items()),
            ],
            [info("y", self.given, None)],
            [numpy_helper.from_array(values, name) for name, values in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        try:
            return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            raise self.refusal(" ".join(str(error).split())) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of an operator with their defaults; None must be given. An operator with a
    window takes those of `_PER_AXIS`, too. `write` appends its nodes and names the result."""

    write: Callable[[_Draft], str]
    defaults: Mapping[str, Value | None]
    example: str


def _image(draft: _Draft) -> list[int]:
    n, c, h = draft.numbers("n", "c", "h")
    return [n, c, h, draft.number("w") if "w" in draft.values else h]


def _windows(draft: _Draft) -> dict[str, list[int]]:
    return {
        "kernel_shape": draft.pair("k", "kh", "kw"),
        "strides": draft.pair("stride", "sh", "sw"),
        "dilations": draft.pair("dilation", "dh", "dw"),
        "pads": draft.pair("pad", "padh", "padw") * 2,
    }


def _channels(draft: _Draft) -> tuple[int, int, int]:
    """Channels in and out, and groups that divide both."""
    channels = draft.number("c")
    if draft.operator == "depthwise":
        return channels, channels * draft.number("multiplier"), channels
    groups, filters = draft.numbers("groups", "out")
    if channels % groups or filters % groups:
        raise draft.refusal(f"{groups} groups do not divide the channels")
    return channels, filters, groups


def _convolution(draft: _Draft) -> str:
    draft.inputs["x"] = _image(draft)
    channels, filters, groups = _channels(draft)
    named: dict[str, Any] = {**_windows(draft), "group": groups}
    kind, shape = "Conv", [filters, channels // groups, *named["kernel_shape"]]
    if draft.operator == "conv2d_transpose":
        kind, shape = "ConvTranspose", [channels, filters // groups, *named["kernel_shape"]]
        named["output_padding"] = [draft.number("output_pad")] * 2
    inputs = ["x", draft.weight("weight", shape)]
    if draft.values["bias"]:
        inputs.append(draft.weight("bias", [filters]))
    return draft.node(kind, inputs, **named)


def _integer_convolution(draft: _Draft) -> str:
    """Bytes times signed bytes: bare sums of 32 bits, or with bias and requantized to bytes."""
    signed, requantize = draft.numbers("signed", "requantize")
    if signed and not requantize:
        raise draft.refusal("requantize=0 is only for unsigned data (signed=0)")
    channels, filters, groups = _channels(draft)
    draft.inputs["x"] = _image(draft)
    draft.taken = TensorProto.INT8 if signed else TensorProto.UINT8
    draft.given = draft.taken if requantize else TensorProto.INT32
    named: dict[str, Any] = {**_windows(draft), "group": groups}
    shape = [filters, channels // groups, *named["kernel_shape"]]
    generator = np.random.default_rng(draft.seed)
    draft.weights["weight"] = generator.integers(-127, 128, shape).astype(np.int8)
    if not requantize:
        return draft.node("ConvInteger", ["x", "weight"], **named)
    # sums of random bytes come out some 40 quanta wide
    scales = generator.uniform(0.5, 1.5, filters) * (40 / (sqrt(prod(shape[1:])) * 57 * 73))
    middle = np.zeros((), np.int8) if signed else np.full((), 128, np.uint8)
    draft.weights |= {
        "one": np.ones((), np.float32),
        "x_zero": np.zeros_like(middle),
        "weight_scale": scales.astype(np.float32),
        "weight_zero": np.zeros(filters, np.int8),
        "y_zero": middle,
        "bias": generator.integers(-1000, 1001, filters).astype(np.int32),
    }
    data, weights = ["x", "one", "x_zero"], ["weight", "weight_scale", "weight_zero"]
    return draft.node("QLinearConv", [*data, *weights, "one", "y_zero", "bias"], **named)


def _dense(draft: _Draft) -> str:
    m, k, n = draft.numbers(*"mkn")
    draft.inputs["x"] = [m, k]
    result = draft.node("MatMul", ["x", draft.weight("weight", [k, n])])
    biased = draft.values["bias"]
    return draft.node("Add", [result, draft.weight("bias", [n])], "add") if biased else result


def _batch_matmul(draft: _Draft) -> str:
    b, m, k, n = draft.numbers(*"bmkn")
    swapped = draft.values["transpose_b"]
    draft.inputs = {"a": [b, m, k], "b": [b, n, k] if swapped else [b, k, n]}
    second = draft.node("Transpose", ["b"], "transposed", perm=[0, 2, 1]) if swapped else "b"
    return draft.node("MatMul", ["a", second])


def _recurrent(draft: _Draft) -> str:
    steps, n, k, hidden, directions = draft.numbers("steps", "n", "k", "hidden", "directions")
    if directions > 2:
        raise draft.refusal(f"directions={directions} is not possible, but 1 or 2")
    draft.inputs["x"] = [steps, n, k]
    columns = GATES[draft.operator] * hidden
    shapes = {"weight": [columns, k], "recurrent": [columns, hidden], "bias": [2 * columns]}
    weights = [draft.weight(name, [directions, *shape]) for name, shape in shapes.items()]
    named: dict[str, Any] = {"linear_before_reset": 1} if draft.operator == "gru" else {}
    direction = ("forward", "bidirectional")[directions - 1]
    kind = draft.operator.upper()
    return draft.node(kind, ["x", *weights], hidden_size=hidden, direction=direction, **named)


def _attention(draft: _Draft) -> str:
    """As exporters write it: heads are made of rows, keys are turned, and back."""
    n, heads, key_heads, d, queries = draft.numbers("n", "heads", "key_heads", "d", "queries")
    keys, key_heads = draft.number("keys") or queries, key_heads or heads
    if heads % key_heads:
        raise draft.refusal(f"key_heads={key_heads} does not divide {heads} heads")
    sides = {"q": (queries, heads), "k": (keys, key_heads), "v": (keys, key_heads)}
    draft.inputs = {name: [n, length, count * d] for name, (length, count) in sides.items()}
    for name, (length, count) in sides.items():
        order = [0, 2, 3, 1] if name == "k" and key_heads == heads else [0, 2, 1, 3]
        draft.reshape(name, [n, length, count, d], f"{name}_apart")
        draft.node("Transpose", [f"{name}_apart"], f"{name}_heads", perm=order)
    left, right = "k_heads", "v_heads"
    if key_heads < heads:
        for name in "kv":
            draft.reshape(f"{name}_heads", [n, key_heads, 1, keys, d], f"{name}_once")
            draft.weights[f"{name}_shape"] = np.array([n, key_heads, heads // key_heads, keys, d])
            draft.node("Expand", [f"{name}_once", f"{name}_shape"], f"{name}_often")
            draft.reshape(f"{name}_often", [n, heads, keys, d], f"{name}_repeated")
        left = draft.node("Transpose", ["k_repeated"], "k_columns", perm=[0, 1, 3, 2])
        right = "v_repeated"
    draft.weights["factor"] = np.array(d**-0.5, np.float32)
    scores = draft.node("Mul", [draft.node("MatMul", ["q_heads", left], "products"), "factor"])
    if draft.number("causal"):
        draft.weights["seen"] = np.tril(np.ones((queries, keys), bool), keys - queries)
        draft.weights["lowest"] = np.array(np.finfo(np.float32).min)
        scores = draft.node("Where", ["seen", scores, "lowest"], "seen_scores")
    if draft.number("mask"):
        draft.inputs["mask"] = [n, 1, 1, keys]
        scores = draft.node("Add", [scores, "mask"], "masked")
    shares = draft.node("Softmax", [scores], "shares", axis=-1)
    context = draft.node("MatMul", [shares, right], "context")
    ahead = draft.node("Transpose", [context], "ahead", perm=[0, 2, 1, 3])
    return draft.reshape(ahead, [n, queries, heads * d], "merged")


def _pool(draft: _Draft) -> str:
    draft.inputs["x"] = _image(draft)
    named: dict[str, Any] = {**_windows(draft), "ceil_mode": draft.number("ceil")}
    if draft.operator == "max_pool2d":
        return draft.node("MaxPool", ["x"], **named)
    return draft.node("AveragePool", ["x"], **named, count_include_pad=draft.number("include_pad"))


def _over_axis(draft: _Draft) -> str:
    shape = draft.shape()
    axis = draft.axis(draft.number("axis"), len(shape))
    if draft.operator == "concat":
        draft.inputs = {f"x{i}": shape for i in range(draft.number("count"))}
        return draft.node("Concat", [*draft.inputs], axis=axis)
    draft.inputs["x"] = shape
    if draft.operator == "softmax":
        return draft.node("Softmax", ["x"], axis=axis)
    weights = [draft.weight(name, shape[axis:]) for name in ("scale", "bias")]
    return draft.node("LayerNormalization", ["x", *weights], axis=axis)


def _reduce(draft: _Draft) -> str:
    draft.inputs["x"] = shape = draft.shape()
    axes = sorted(draft.axis(axis, len(shape)) for axis in draft.shape("axes"))
    draft.weights["axes"] = np.asarray(axes, np.int64)
    kind = "Reduce" + draft.operator.removeprefix("reduce_").capitalize()
    return draft.node(kind, ["x", "axes"], "reduce", keepdims=draft.number("keep"))


def _transpose(draft: _Draft) -> str:
    draft.inputs["x"] = shape = draft.shape()
    order = draft.shape("perm")
    if sorted(order) != list(range(len(shape))):
        raise draft.refusal(f"perm {order} does not fit {len(shape)} axes")
    return draft.node("Transpose", ["x"], perm=order)


_ELEMENTWISE = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "sqrt": "Sqrt",
    "erf": "Erf", "gelu": "Gelu", "hard_swish": "HardSwish", "negative": "Neg", "abs": "Abs",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max",
    "minimum": "Min",
}  # fmt: skip
_TWO_INPUTS = {"add", "subtract", "multiply", "divide", "maximum", "minimum"}


def _elementwise(draft: _Draft) -> str:
    draft.inputs = dict.fromkeys("ab" if draft.operator in _TWO_INPUTS else "x", draft.shape())
    return draft.node(_ELEMENTWISE[draft.operator], [*draft.inputs])


_IMAGE: dict[str, Value | None] = {"n": 1, "c": None, "h": None, "k": None}
_WINDOW: dict[str, Value | None] = {"pad": 0, "stride": 1, "dilation": 1}
_AFTER: dict[str, Value | None] = {"bias": 0, "relu": 0}
_PER_AXIS = ("w", "kh", "kw", "sh", "sw", "dh", "dw", "padh", "padw")
_SHAPED: dict[str, Value | None] = {"shape": None}
_CONVOLVED = "c=64,h=56,k=3,pad=1"

SIGNATURES: Mapping[str, Signature] = {
    "conv2d": Signature(
        write=_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "groups": 1, **_AFTER},
        example=_CONVOLVED + ",out=64",
    ),
    "conv2d_int8": Signature(
        write=_integer_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "groups": 1, "signed": 0, "requantize": 1},
        example=_CONVOLVED + ",out=64",
    ),
    "depthwise": Signature(
        write=_convolution,
        defaults={**_IMAGE, **_WINDOW, "multiplier": 1, **_AFTER},
        example=_CONVOLVED,
    ),
    "conv2d_transpose": Signature(
        write=_convolution,
        defaults={**_IMAGE, "out": None, **_WINDOW, "output_pad": 0, "groups": 1, **_AFTER},
        example="c=64,h=28,k=4,pad=1,stride=2,out=32",
    ),
    "dense": Signature(
        write=_dense,
        defaults={"m": 1, "k": None, "n": None, **_AFTER},
        example="m=128,k=768,n=3072",
    ),
    "batch_matmul": Signature(
        write=_batch_matmul,
        defaults={"b": 1, "m": None, "k": None, "n": None, "transpose_b": 0, "relu": 0},
        example="b=12,m=128,k=64,n=128",
    ),
    **{
        name: Signature(
            write=_recurrent,
            defaults={"steps": None, "k": None, "hidden": None, "n": 1, "directions": 1},
            example="steps=64,k=128,hidden=256",
        )
        for name in ("lstm", "gru", "rnn")
    },
    "attention": Signature(
        write=_attention,
        defaults={
            "n": 1,
            "heads": None,
            "queries": None,
            "d": None,
            "keys": 0,
            "key_heads": 0,
            "causal": 0,
            "mask": 0,
        },  # fmt: skip
        example="heads=12,queries=128,d=64",
    ),
    "max_pool2d": Signature(
        write=_pool,
        defaults={**_IMAGE, **_WINDOW, "ceil": 0},
        example=_CONVOLVED + ",stride=2",
    ),
    "avg_pool2d": Signature(
        write=_pool,
        defaults={**_IMAGE, **_WINDOW, "ceil": 0, "include_pad": 0},
        example=_CONVOLVED + ",stride=2",
    ),
    **{
        name: Signature(
            write=_over_axis,
            defaults={**_SHAPED, "axis": -1},
            example="shape=1x128x768",
        )
        for name in ("softmax", "layer_norm")
    },
    "concat": Signature(
        write=_over_axis,
        defaults={**_SHAPED, "axis": 1, "count": 2},
        example="shape=1x64x56x56,count=2,axis=1",
    ),
    **{
        name: Signature(
            write=_reduce,
            defaults={**_SHAPED, "axes": None, "keep": 1},
            example="shape=1x2048x7x7,axes=2x3",
        )
        for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
    },
    "transpose": Signature(
        write=_transpose,
        defaults={**_SHAPED, "perm": None},
        example="shape=1x128x12x64,perm=0x2x1x3",
    ),
    **{
        name: Signature(write=_elementwise, defaults=_SHAPED, example="shape=1x64x56x56")
        for name in _ELEMENTWISE
    },
}
"""Every single operator by name."""
