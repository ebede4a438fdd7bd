"""Operators that work element by element."""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.core.errors import ModelError
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.weights import dtype_name

_UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log",
    "Sqrt": "sqrt", "Neg": "negative", "Abs": "abs", "Erf": "erf", "Sin": "sin", "Cos": "cos",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign",
    "Reciprocal": "reciprocal", "Softplus": "softplus", "HardSwish": "hard_swish", "Not": "not",
    "IsNaN": "isnan",
}  # fmt: skip

_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Equal": "equal",
    "Less": "less", "Greater": "greater", "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "PRelu": "prelu",
}  # fmt: skip

_VARIADIC = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}

_PARAMETRIC = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}


def operand(builder: GraphBuilder, name: str, other: str) -> str:
    """A constant operand without leading axes of size one: [1,C,1,1] → [C,1,1].

    The result's shape stays, for `other` has at least as many axes.
    """
    shape = builder.shape(name)
    if builder.value(name) is None or len(builder.shape(other)) < len(shape):
        return name
    start = 0
    while start < len(shape) and shape[start] == 1:
        start += 1
    return builder.reshape(name, shape[start:])


def binary(builder: GraphBuilder, operator: str, a: str, b: str) -> str:
    """A binary operator with its constant operand in canonical shape."""
    if builder.value(a) is not None and builder.value(b) is not None:
        return builder.emit(operator, a, b)
    return builder.emit(operator, operand(builder, a, b), operand(builder, b, a))


def scalar(builder: GraphBuilder, value: float, like: str) -> str:
    """A constant without axes, of another tensor's element type."""
    return builder.full((), value, builder.dtype(like))


@translates(*_UNARY)
def unary(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """One input, no parameters."""
    return builder.emit(_UNARY[node.operator], node.input(0))


@translates(*_BINARY)
def two_operands(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Two inputs that broadcast."""
    return binary(builder, _BINARY[node.operator], node.input(0), node.input(1))


@translates(*_PARAMETRIC)
def parametric(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """One input and float parameters."""
    operator, defaults = _PARAMETRIC[node.operator]
    named = {name: node.number(name, value) for name, value in defaults.items()}
    return builder.emit(operator, node.input(0), **named)


@translates(*_VARIADIC)
def variadic(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Any number of inputs → a chain of binary operators."""
    result, *rest = node.inputs
    for name in rest:
        result = binary(builder, _VARIADIC[node.operator], result, name)
    if node.operator == "Mean" and rest:
        factor = scalar(builder, 1 / len(node.inputs), result)
        result = builder.emit("multiply", result, factor)
    return result


@translates("Pow")
def power(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Pow; squares, cubes and square roots as what they are."""
    x, exponent = node.input(0), node.input(1)
    value = builder.value(exponent)
    if value is not None and value.size == 1 and len(value.shape) <= len(builder.shape(x)):
        number = float(value.reshape(-1)[0])
        if number in (2.0, 3.0):
            square = builder.emit("multiply", x, x)
            return square if number == 2 else builder.emit("multiply", square, x)
        if number == 0.5:
            return builder.emit("sqrt", x)
        if number == 1:
            return x
    if builder.dtype(exponent) != builder.dtype(x):
        if value is None or builder.dtype(x).startswith("int"):
            return None
        exponent = builder.emit("cast", exponent, dtype=builder.dtype(x))
    return binary(builder, "power", x, exponent)


@translates("Mod")
def modulo(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Mod with the sign of the divisor, or as C's fmod with that of what is divided."""
    operator = "remainder" if node.integer("fmod", 0) else "modulo"
    return binary(builder, operator, node.input(0), node.input(1))


@translates("BitShift")
def bit_shift(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """BitShift to the left or the right."""
    direction = node.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction {quoted(direction)} is not known")
    return binary(builder, f"shift_{direction.lower()}", node.input(0), node.input(1))


@translates("Xor")
def exclusive_or(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Xor → not(equal)."""
    return builder.emit("not", binary(builder, "equal", node.input(0), node.input(1)))


@translates("Clip")
def clip(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Clip with limits as attributes (before operator set 11) or inputs."""
    x = node.input(0)
    if node.opset < 11:
        known = [node.number("min", -np.inf), node.number("max", np.inf)]
        return _clip(builder, x, known[0], known[1])
    lower, upper = node.input(1), node.input(2)
    small = builder.value(lower) if lower else np.asarray(-np.inf)
    large = builder.value(upper) if upper else np.asarray(np.inf)
    if small is not None and large is not None and builder.dtype(x).startswith("float"):
        return _clip(builder, x, float(small.reshape(-1)[0]), float(large.reshape(-1)[0]))
    result = builder.emit("maximum", x, lower) if lower else x
    return builder.emit("minimum", result, upper) if upper else result


def _clip(builder: GraphBuilder, x: str, minimum: float, maximum: float) -> str:
    if minimum == 0 and maximum == np.inf:
        return builder.emit("relu", x)
    return builder.emit("clip", x, minimum=_finite(minimum), maximum=_finite(maximum))


def _finite(value: float) -> float | str:
    return ("inf" if value > 0 else "-inf") if np.isinf(value) else float(str(np.float32(value)))


@translates("Cast", "CastLike")
def cast(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Cast; nothing when the type is right already."""
    x = node.input(0)
    if node.operator == "CastLike":
        dtype = builder.dtype(node.input(1))
    else:
        target = node.integer("to", onnx.TensorProto.FLOAT)
        dtype = dtype_name(target, f"the result of node {quoted(node.name)}")
    return x if builder.dtype(x) == dtype else builder.emit("cast", x, dtype=dtype)


@translates("Where")
def where(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Where."""
    return builder.emit("where", *node.inputs[:3])


@translates("Gelu", "com.microsoft.Gelu")
def gelu(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Gelu in its erf form; the tanh form is a chain."""
    x = node.input(0)
    if node.text("approximate", "none") != "tanh":
        return builder.emit("gelu", x)
    cube = builder.emit("multiply", builder.emit("multiply", x, x), x)
    scaled = builder.emit("multiply", cube, scalar(builder, 0.044715, x))
    inner = builder.emit("add", x, scaled)
    bend = builder.emit("multiply", inner, scalar(builder, np.sqrt(2 / np.pi), x))
    gate = builder.emit("add", builder.emit("tanh", bend), scalar(builder, 1, x))
    half = builder.emit("multiply", x, scalar(builder, 0.5, x))
    return builder.emit("multiply", half, gate)


@translates("Swish", "com.microsoft.QuickGelu")
def swish(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Swish, and ONNX Runtime's QuickGelu: x * sigmoid(alpha * x)."""
    x, alpha = node.input(0), node.number("alpha", 1.0 if node.operator == "Swish" else 1.702)
    if alpha == 1:
        return builder.emit("silu", x)
    gate = builder.emit("sigmoid", builder.emit("multiply", x, scalar(builder, alpha, x)))
    return builder.emit("multiply", x, gate)


@translates("Mish")
def mish(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Mish: x * tanh(softplus(x))."""
    x = node.input(0)
    return builder.emit("multiply", x, builder.emit("tanh", builder.emit("softplus", x)))


@translates("Softsign")
def softsign(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Softsign: x / (1 + |x|)."""
    x = node.input(0)
    below = builder.emit("add", builder.emit("abs", x), scalar(builder, 1, x))
    return builder.emit("divide", x, below)


@translates("Celu")
def celu(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Celu: elu of x/alpha, times alpha."""
    x, alpha = node.input(0), node.number("alpha", 1.0)
    if alpha == 1:
        return builder.emit("elu", x, alpha=1.0)
    inner = builder.emit("divide", x, scalar(builder, alpha, x))
    return builder.emit(
        "multiply", builder.emit("elu", inner, alpha=1.0), scalar(builder, alpha, x)
    )


@translates("Tan")
def tangent(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Tan: sin / cos."""
    x = node.input(0)
    return builder.emit("divide", builder.emit("sin", x), builder.emit("cos", x))


@translates("Cosh", "Sinh")
def hyperbolic(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Cosh, Sinh: (exp(x) ± exp(-x)) / 2, with the half in the exponents so that nothing overflows
    before the result does.

    Near zero the difference would cancel; there Sinh is -(m + m / (1 + m)) / 2 with the sign of x,
    where m = exp(-|x|) - 1, which `elu` gives exactly.
    """
    x = node.input(0)
    half = scalar(builder, np.log(2.0), x)
    up = builder.emit("exp", builder.emit("subtract", x, half))
    down = builder.emit("exp", builder.emit("subtract", builder.emit("negative", x), half))
    if node.operator == "Cosh":
        return builder.emit("add", up, down)
    size = builder.emit("abs", x)
    less = builder.emit("elu", builder.emit("negative", size), alpha=1.0)
    ratio = builder.emit("divide", less, builder.emit("add", less, scalar(builder, 1, x)))
    twice = builder.emit("multiply", builder.emit("add", less, ratio), scalar(builder, -0.5, x))
    near = builder.emit("multiply", twice, builder.emit("sign", x))
    small = builder.emit("less", size, scalar(builder, 1, x))
    return builder.emit("where", small, near, builder.emit("subtract", up, down))


@translates("IsInf")
def is_infinite(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """IsInf → a comparison with the infinities asked for."""
    x = node.input(0)
    up, down = node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    if up and down:
        return builder.emit("equal", builder.emit("abs", x), scalar(builder, np.inf, x))
    if not up and not down:
        return None
    return builder.emit("equal", x, scalar(builder, np.inf if up else -np.inf, x))
