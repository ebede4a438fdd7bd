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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tilewright.core.errors import TilewrightError
from tilewright.core.forms import Form
from tilewright.graph.arrays import memory_parts
from tilewright.graph.network import Array, TensorType
from tilewright.graph.operators.attention import heads_of
from tilewright.graph.operators.movement import nearest_index
from tilewright.graph.operators.recurrent import GATES, PARAMETERS, activations_of, state_names
from tilewright.graph.workload import Workload

OPSET = 18
_LOWEST_INDEX = -(2**63)
_MASKS_WHOLLY = -1e30
"""Added to a score it leaves nothing of it in single precision."""


class Untranslatable(TilewrightError):
    """A task that ONNX nodes cannot say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """A node of ONNX: `operator` with its domain before a last dot where that is not ONNX's own."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class OnnxTask:
    """A task as nodes. `inputs` are its arguments in their physical shapes, `output` its result in
    its own; `constants` belong to nodes."""

    inputs: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    nodes: list[OnnxNode] = field(default_factory=list[OnnxNode])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    output: str = ""

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; its name."""
        return self.emit_many(operator, 1, *inputs, **attributes)[0]

    def emit_many(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node; the names of its outputs."""
        names = [f"n{len(self.nodes)}_{place}" for place in range(count)]
        self.nodes.append(
            OnnxNode(operator=operator, inputs=inputs, outputs=tuple(names), attributes=attributes)
        )
        return names

    def constant(self, values: Any, dtype: str = "int64") -> str:
        """A tensor that belongs to a node; its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """A tensor in another shape."""
        return self.emit("Reshape", x, self.constant(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step that is translated: its attributes, and the types of its operands and its result."""

    task: OnnxTask
    named: Mapping[str, Any]
    types: tuple[TensorType, ...]
    result: TensorType


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


def _renamed(operator: str, step: _Step, *operands: str) -> str:
    return step.task.emit(operator, *operands, **step.named)


def _windows(step: _Step, **more: Any) -> dict[str, Any]:
    """What convolutions and pools say of their windows, by ONNX's names."""
    names = {"strides": "strides", "padding": "pads", "dilation": "dilations", "groups": "group",
             "kernel": "kernel_shape", "output_padding": "output_padding"}  # fmt: skip
    return {name: step.named[ours] for ours, name in names.items() if ours in step.named} | more


def _convolution(operator: str, step: _Step, x: str, weights: str) -> str:
    return step.task.emit(operator, x, weights, **_windows(step))


def _average_pool(step: _Step, x: str) -> str:
    named = _windows(step, count_include_pad=int(step.named["count_include_pad"]))
    _require(max(named.pop("dilations")) == 1, "average pooling with dilation")
    return step.task.emit("AveragePool", x, **named)


def _batch_matmul(step: _Step, a: str, b: str) -> str:
    if step.named["transpose_b"]:
        *many, last, least = range(len(step.types[1].shape))
        b = step.task.emit("Transpose", b, perm=(*many, least, last))
    return step.task.emit("MatMul", a, b)


def _reduction(operator: str, step: _Step, x: str) -> str:
    axes = step.named["axes"]
    if not axes:
        return step.task.emit("Identity", x)
    return step.task.emit(
        operator, x, step.task.constant(axes), keepdims=int(step.named["keepdims"])
    )


def _layer_norm(step: _Step, x: str, *others: str) -> str:
    part = step.types[0].shape[step.named["axis"] :]
    whole = [
        name if kind.shape == part else step.task.emit("Expand", name, step.task.constant(part))
        for name, kind in zip(others, step.types[1:], strict=True)
    ]
    return step.task.emit("LayerNormalization", x, *whole, **step.named)


def _clip(step: _Step, x: str) -> str:
    dtype = step.result.dtype
    limits = [float(step.named[name]) for name in ("minimum", "maximum")]
    if dtype != "float32":
        span = np.iinfo(dtype)
        limits = [int(min(max(limit, span.min), span.max)) for limit in limits]
    return step.task.emit("Clip", x, *(step.task.constant(limit, dtype) for limit in limits))


def _prelu(step: _Step, x: str, slope: str) -> str:
    _require(step.types[0].shape == step.result.shape, "a slope that is larger than what it is of")
    return step.task.emit("PRelu", x, slope)


def _modulo(fmod: int, step: _Step, a: str, b: str) -> str:
    _require(bool(fmod) or step.result.dtype != "float32", "modulo of floats")
    return step.task.emit("Mod", a, b, fmod=fmod)


def _slice(step: _Step, x: str) -> str:
    bounds = zip(step.named["stops"], step.named["steps"], strict=True)
    stops = [_LOWEST_INDEX if stop < 0 and by < 0 else stop for stop, by in bounds]
    axes = range(len(stops))
    parts = (step.named["starts"], stops, [*axes], step.named["steps"])
    return step.task.emit("Slice", x, *map(step.task.constant, parts))


def _pad(step: _Step, x: str) -> str:
    sides = step.task.constant([*step.named["before"], *step.named["after"]])
    value = step.task.constant(float(step.named["value"]), step.result.dtype)
    return step.task.emit("Pad", x, sides, value, mode=step.named["mode"])


def _resize_nearest(step: _Step, x: str) -> str:
    scales = zip(step.types[0].shape, step.result.shape, step.named["scales"], strict=True)
    for axis, (before, after, scale) in enumerate(scales):
        if before != after or scale != 1:
            places = [nearest_index(i, before, after, scale, step.named) for i in range(after)]
            x = step.task.emit("Gather", x, step.task.constant(places), axis=axis)
    return x


def _attention(step: _Step, q: str, k: str, v: str, *masks: str) -> str:
    """ONNX Runtime's own operator, which takes rows with heads side by side as ours does."""
    found, named = heads_of(step.types, **step.named), step.named
    _require(found.heads == found.key_heads, "attention whose heads share keys")
    _require(not named["causal"] or found.queries == found.keys, "causal attention with a past")
    bias = ""
    for mask, kind in zip(masks, step.types[3:], strict=True):
        if kind.dtype == "bool":
            _require(float(named["fill"]) < _MASKS_WHOLLY, "a mask that replaces scores by a bit")
            values = (step.task.constant(float(v), "float32") for v in (0.0, named["fill"]))
            mask = step.task.emit("Where", mask, *values)
        shape = (1,) * (4 - len(kind.shape)) + kind.shape
        bias = step.task.emit(
            "Expand", mask, step.task.constant((*shape[:2], found.queries, found.keys))
        )
    return step.task.emit(
        "com.microsoft.MultiHeadAttention",
        *(q, k, v, "", "", bias),
        num_heads=found.heads,
        scale=float(named["scale"]),
        unidirectional=int(named["causal"]),
    )


_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
_ACTIVATIONS = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "affine": "Affine",
    "leaky_relu": "LeakyRelu", "thresholded_relu": "ThresholdedRelu", "elu": "Elu",
    "scaled_tanh": "ScaledTanh", "hard_sigmoid": "HardSigmoid", "softsign": "Softsign",
    "softplus": "Softplus",
}  # fmt: skip


def _recurrent(step: _Step, gates: str, weights: str, *others: str) -> str:
    """A layer whose inputs are the gates: its input weights are a unit matrix."""
    task, named, cell = step.task, step.named, str(step.named["cell"])
    given = dict(zip(named["operands"].split(), others, strict=True))
    hidden, columns = step.types[1].shape
    steps, batch, _ = step.types[0].shape
    functions = activations_of(named["activations"])
    _require(all(each.name in _ACTIVATIONS for each in functions), "one of its activations")
    unit = task.constant(np.eye(columns)[None], "float32")
    own = task.reshaped(task.emit("Transpose", weights, perm=(1, 0)), (1, columns, hidden))
    bias = ""
    if "bias" in given:  # of the products with the state, in the last of three gates
        zeros = task.constant(np.zeros((1, 2 * columns - hidden)), "float32")
        bias = task.emit("Concat", zeros, task.reshaped(given["bias"], (1, hidden)), axis=1)
    first = [
        task.reshaped(given[name], (1, batch, hidden)) if name in given else ""
        for name in ("state", "memory")
    ]
    layer, outputs = _LAYERS[cell.split("_")[0]], len(state_names(cell)) + 1
    operands = [gates, unit, own, bias, given.get("lengths", ""), *first[: outputs - 1]]
    if "peepholes" in given:
        operands.append(task.reshaped(given["peepholes"], (1, columns * 3 // GATES[cell])))
    variant = {"lstm_coupled": "input_forget", "gru_reset_after": "linear_before_reset"}.get(cell)
    numbers = {
        f"activation_{name}": [each.named[name] for each in functions if name in each.named]
        for name in PARAMETERS
    }
    rows, *last = task.emit_many(
        layer,
        outputs,
        *operands,
        hidden_size=hidden,
        direction="reverse" if named["reverse"] else "forward",
        activations=[_ACTIVATIONS[each.name] for each in functions],
        **{name: values for name, values in numbers.items() if values},
        **({variant: 1} if variant else {}),
        **({"clip": float(named["clip"])} if named["clip"] else {}),
    )
    rows = task.reshaped(rows, (steps, batch, hidden))
    return task.emit("Concat", rows, *last[: named["finals"]], axis=0) if named["finals"] else rows


_OF_ONE: dict[str, Callable[[_Step, str], str]] = {
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
    "layer_norm": _layer_norm,
    "attention": _attention,
    "recurrent": _recurrent,
    "slice": _slice,
    "pad": _pad,
    "resize_nearest": _resize_nearest,
}
"""How each operator is said in ONNX."""

_OF_FLOATS = frozenset({"conv2d", "conv2d_transpose", "dense", "batch_matmul", "avg_pool2d"})


def _require(condition: bool, what: str) -> None:  # noqa: FBT001
    if not condition:
        raise Untranslatable(f"ONNX Runtime is not given {what}")


@lru_cache(maxsize=256)
def onnx_task(workload: Workload, forms: tuple[Form, ...]) -> OnnxTask:
    """A task with its ports in `forms` as ONNX nodes. Raises Untranslatable where there are none;
    the result is shared and not to be changed."""
    for kind, form in zip((*workload.types, workload.result), (*forms, *forms), strict=False):
        _require(form.dtype is None, f"elements in form {form}")
        _require(kind.elements > 0, f"{kind}")
    for kind in workload.types:
        _require("float" not in kind.dtype or kind.dtype == "float32", kind.dtype)
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
        _require(not whole, f"{step.operator} of {types[0].dtype}")
        _require(all(kind.elements > 0 for kind in (*types, result)), f"{result}")
        if rule is None:
            raise Untranslatable(f"ONNX Runtime is not given {step.operator}")
        facts = _Step(task=task, named=step.named, types=types, result=result)
        values.append(rule(facts, *(values[value] for value in step.inputs)))
    task.output = _arranged(task, values[-1], workload.result.shape, forms[-1])
    return task


def _arranged(task: OnnxTask, result: str, shape: tuple[int, ...], form: Form) -> str:
    """The result in its form."""
    if form.layout.is_row_major:
        return task.emit("Identity", result)
    parts, order = memory_parts(form, shape)
    return task.emit("Transpose", task.reshaped(result, parts), perm=tuple(order))
