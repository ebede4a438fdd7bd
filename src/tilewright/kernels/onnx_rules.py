"""Tasks as ONNX nodes, for libraries that read ONNX: the importer's way back, by a table.

    conv2d → add → relu      Conv → Add → Relu
    gelu                     com.microsoft.Gelu
    recurrent                LSTM of gates as they are, with a unit matrix for input weights

Physical operands become logical ones by a transposition and a reshaping, and the result the other
way round, so that changes of layout at the edge are part of what a library computes.

Not translated are opaque operators, sums of bytes, floating-point types other than float32,
`interpolate`, `bitcast`, `modulo` of floats, shifts, average pooling with dilation, and attention
with a mask that ONNX Runtime's own operator cannot be given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.graph.arrays import memory_parts
from tilewright.graph.network import TensorType
from tilewright.graph.operators.movement import nearest_index
from tilewright.graph.workload import Workload
from tilewright.kernels.onnx_layers import attention, recurrent
from tilewright.kernels.onnx_nodes import OnnxTask, Step, Untranslatable, require

_LOWEST_INDEX = -(2**63)


Rule = Callable[..., str]
"""(step, names of its operands) → the name of its result."""

_NAMES = {
    "identity": "Identity", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "negative": "Neg", "abs": "Abs", "erf": "Erf", "sin": "Sin",
    "cos": "Cos", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign",
    "reciprocal": "Reciprocal", "softplus": "Softplus", "gelu": "com.microsoft.Gelu",
    "hard_swish": "HardSwish", "not": "Not", "isnan": "IsNaN", "leaky_relu": "LeakyRelu",
    "elu": "Elu", "celu": "Celu", "selu": "Selu", "thresholded_relu": "ThresholdedRelu",
    "shrink": "Shrink", "hard_sigmoid": "HardSigmoid", "add": "Add", "subtract": "Sub",
    "multiply": "Mul", "divide": "Div", "power": "Pow", "maximum": "Max", "minimum": "Min",
    "equal": "Equal", "less": "Less", "greater": "Greater", "less_equal": "LessOrEqual",
    "greater_equal": "GreaterOrEqual", "and": "And", "or": "Or", "where": "Where",
    "dense": "MatMul", "softmax": "Softmax", "log_softmax": "LogSoftmax", "lrn": "LRN",
    "instance_norm": "InstanceNormalization", "concat": "Concat", "gather": "Gather",
}  # fmt: skip
"""Operators that ONNX has with the same operands, and attributes of the same names."""


def _renamed(operator: str, step: Step, *operands: str) -> str:
    return step.task.emit(operator, *operands, **step.named)


def _windows(step: Step, **more: Any) -> dict[str, Any]:
    """What convolutions and pools say of their windows, by ONNX's names."""
    names = {"strides": "strides", "padding": "pads", "dilation": "dilations", "groups": "group",
             "kernel": "kernel_shape", "output_padding": "output_padding"}  # fmt: skip
    return {name: step.named[ours] for ours, name in names.items() if ours in step.named} | more


def _convolution(operator: str, step: Step, x: str, weights: str) -> str:
    return step.task.emit(operator, x, weights, **_windows(step))


def _average_pool(step: Step, x: str) -> str:
    named = _windows(step, count_include_pad=int(step.named["count_include_pad"]))
    require(max(named.pop("dilations")) == 1, "average pooling with dilation")
    return step.task.emit("AveragePool", x, **named)


def _batch_matmul(step: Step, a: str, b: str) -> str:
    if step.named["transpose_b"]:
        *many, last, least = range(len(step.types[1].shape))
        b = step.task.emit("Transpose", b, perm=(*many, least, last))
    return step.task.emit("MatMul", a, b)


def _reduction(operator: str, step: Step, x: str) -> str:
    axes = step.named["axes"]
    if not axes:
        return step.task.emit("Identity", x)
    return step.task.emit(
        operator, x, step.task.constant(axes), keepdims=int(step.named["keepdims"])
    )


def _norm(operator: str, step: Step, x: str, *others: str) -> str:
    part = step.types[0].shape[step.named["axis"] :]
    whole = [
        name if kind.shape == part else step.task.emit("Expand", name, step.task.constant(part))
        for name, kind in zip(others, step.types[1:], strict=True)
    ]
    return step.task.emit(operator, x, *whole, **step.named)


def _clip(step: Step, x: str) -> str:
    dtype = step.result.dtype
    limits = [float(step.named[name]) for name in ("minimum", "maximum")]
    if dtype != "float32":
        span = np.iinfo(dtype)
        limits = [int(min(max(limit, span.min), span.max)) for limit in limits]
    return step.task.emit("Clip", x, *(step.task.constant(limit, dtype) for limit in limits))


def _prelu(step: Step, x: str, slope: str) -> str:
    require(step.types[0].shape == step.result.shape, "a slope that is larger than what it is of")
    return step.task.emit("PRelu", x, slope)


def _modulo(fmod: int, step: Step, a: str, b: str) -> str:
    require(bool(fmod) or step.result.dtype != "float32", "modulo of floats")
    return step.task.emit("Mod", a, b, fmod=fmod)


def _slice(step: Step, x: str) -> str:
    bounds = zip(step.named["stops"], step.named["steps"], strict=True)
    stops = [_LOWEST_INDEX if stop < 0 and by < 0 else stop for stop, by in bounds]
    axes = range(len(stops))
    parts = (step.named["starts"], stops, [*axes], step.named["steps"])
    return step.task.emit("Slice", x, *map(step.task.constant, parts))


def _pad(step: Step, x: str) -> str:
    sides = step.task.constant([*step.named["before"], *step.named["after"]])
    value = step.task.constant(float(step.named["value"]), step.result.dtype)
    return step.task.emit("Pad", x, sides, value, mode=step.named["mode"])


def _resize_nearest(step: Step, x: str) -> str:
    scales = zip(step.types[0].shape, step.result.shape, step.named["scales"], strict=True)
    for axis, (before, after, scale) in enumerate(scales):
        if before != after or scale != 1:
            places = [nearest_index(i, before, after, scale, step.named) for i in range(after)]
            x = step.task.emit("Gather", x, step.task.constant(places), axis=axis)
    return x


_OF_ONE: dict[str, Callable[[Step, str], str]] = {
    "rsqrt": lambda s, x: s.task.emit("Reciprocal", s.task.emit("Sqrt", x)),
    "silu": lambda s, x: s.task.emit("Mul", x, s.task.emit("Sigmoid", x)),
    "cast": lambda s, x: s.task.emit("Cast", x, to=s.named["dtype"]),
    "max_pool2d": lambda s, x: s.task.emit("MaxPool", x, **_windows(s)),
    "reshape": lambda s, x: s.task.reshaped(x, s.named["shape"]),
    "transpose": lambda s, x: s.task.emit("Transpose", x, perm=s.named["permutation"]),
    "expand": lambda s, x: s.task.emit("Expand", x, s.task.constant(s.named["shape"])),
}
"""Operators of one operand that take one line."""

_RULES: dict[str, Rule] = {
    **{ours: partial(_renamed, theirs) for ours, theirs in _NAMES.items()},
    **{
        f"reduce_{name.lower()}": partial(_reduction, f"Reduce{name}")
        for name in ("Sum", "Mean", "Max", "Min", "Prod")
    },
    **_OF_ONE,
    "remainder": partial(_modulo, 1),
    "modulo": partial(_modulo, 0),
    "clip": _clip,
    "prelu": _prelu,
    "conv2d": partial(_convolution, "Conv"),
    "conv2d_transpose": partial(_convolution, "ConvTranspose"),
    "avg_pool2d": _average_pool,
    "batch_matmul": _batch_matmul,
    "layer_norm": partial(_norm, "LayerNormalization"),
    "rms_norm": partial(_norm, "SimplifiedLayerNormalization"),
    "attention": attention,
    "recurrent": recurrent,
    "slice": _slice,
    "pad": _pad,
    "resize_nearest": _resize_nearest,
}
"""How each operator is said in ONNX."""

_SIGNED = ("int8", "int16", "int32", "int64")
_OF_INTEGERS: dict[str, tuple[str, ...]] = {
    "relu": ("int8", "int32", "int64"),
    "negative": _SIGNED,
    "remainder": _SIGNED,
    **dict.fromkeys(
        ("maximum", "minimum"), ("int8", "int32", "int64", "uint8", "uint32", "uint64")
    ),
    "where": ("int8", "int32", "int64", "uint8", "uint32"),
    "max_pool2d": ("int8", "uint8"),
    **dict.fromkeys(("reduce_max", "reduce_min"), ("int8", "int32", "int64", "uint8")),
    "reduce_sum": ("int32", "int64"),
    "reduce_prod": ("int64",),
    "reduce_mean": (),
}
"""Of which integers ONNX Runtime has operators, where not of all that a network may have."""
_OF_FLOATS = frozenset({"conv2d", "conv2d_transpose", "dense", "batch_matmul", "avg_pool2d"})


@lru_cache(maxsize=256)
def onnx_task(workload: Workload, forms: tuple[Form, ...]) -> OnnxTask:
    """A task with its ports in `forms` as ONNX nodes. Raises Untranslatable where there are none;
    the result is shared and not to be changed."""
    for kind, form in zip((*workload.types, workload.result), (*forms, *forms), strict=False):
        require(form.dtype is None, f"elements in form {form}")
        require(kind.elements > 0, f"{kind}")
    for kind in workload.types:
        require("float" not in kind.dtype or kind.dtype == "float32", kind.dtype)
    task, values = OnnxTask(), list[str]()
    for index, (argument, form) in enumerate(zip(workload.arguments, forms, strict=False)):
        kind, name = argument.type, f"x{index}"
        task.inputs[name] = TensorType(form.physical_shape(kind.shape), kind.dtype)
        if not form.layout.is_row_major:
            _, order = memory_parts(form, kind.shape)
            back = tuple(int(place) for place in np.argsort(order))
            name = task.reshaped(task.emit("Transpose", name, perm=back), kind.shape)
        values.append(name)
    for index, step in enumerate(workload.steps):
        types, result = workload.step_types(index)
        rule = _RULES.get(step.operator)
        whole = step.operator in _OF_FLOATS and "float" not in types[0].dtype
        require(not whole, f"{step.operator} of {types[0].dtype}")
        dtype = types[-1].dtype
        taken = _OF_INTEGERS.get(step.operator, (dtype,))
        require("float" in dtype or dtype in taken, f"{step.operator} of {dtype}")
        require(all(kind.elements > 0 for kind in (*types, result)), f"{result}")
        if rule is None:
            raise Untranslatable(f"ONNX Runtime is not given {step.operator}")
        facts = Step(task=task, named=step.named, types=types, result=result)
        values.append(rule(facts, *(values[value] for value in step.inputs)))
    task.output = _arranged(task, values[-1], workload.result.shape, forms[-1])
    return task


def _arranged(task: OnnxTask, result: str, shape: tuple[int, ...], form: Form) -> str:
    """The result in its form."""
    if form.layout.is_row_major:
        return task.emit("Identity", result)
    parts, order = memory_parts(form, shape)
    return task.emit("Transpose", task.reshaped(result, parts), perm=tuple(order))
