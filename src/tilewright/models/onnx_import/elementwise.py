"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.clean.edit import only_if
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    shortest,
    translates,
)
from tilewright.models.onnx_model import dtype_name

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
    "Celu": ("celu", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": ("shrink", {"bias": 0.0, "lambd": 0.5}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}


_FORMULAS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Softsign": lambda x: x / (x.emit("abs") + 1),
    "Mish": lambda x: x * x.emit("softplus").emit("tanh"),
    "Tan": lambda x: x.emit("sin") / x.emit("cos"),
}


@translates(*_FORMULAS)
def formula(node: OnnxNode) -> Translated:
    """One input in a formula of a few operators."""
    return _FORMULAS[node.operator](node.input(0))


@translates(*_UNARY)
def unary(node: OnnxNode) -> Translated:
    """One input, no parameters."""
    return node.input(0).emit(_UNARY[node.operator])


@translates(*_BINARY)
def two_operands(node: OnnxNode) -> Translated:
    """Two inputs that broadcast."""
    return node.input(0).with_operand(_BINARY[node.operator], node.input(1))


@translates(*_PARAMETRIC)
def parametric(node: OnnxNode) -> Translated:
    """One input and float parameters; of integers (Shrink) in single precision, as ONNX Runtime."""
    operator, defaults = _PARAMETRIC[node.operator]
    named = {name: node.number(name, value) for name, value in defaults.items()}
    only_if(operator == "shrink" or not np.isinf([*named.values()]).any())
    only_if(operator != "celu" or named["alpha"] != 0)  # it divides by alpha
    x = node.input(0)
    exact = x.cast("float32") if "int" in x.dtype else x
    return exact.emit(operator, **named).cast(x.dtype)


@translates(*_VARIADIC)
def variadic(node: OnnxNode) -> Translated:
    """Any number of inputs → a chain of binary operators."""
    result, *rest = node.several(len(node.inputs))
    for tensor in rest:
        result = result.with_operand(_VARIADIC[node.operator], tensor)
    return result * (1 / len(node.inputs)) if node.operator == "Mean" and rest else result


@translates("Pow")
def power(node: OnnxNode) -> Translated:
    """Pow; squares, cubes and square roots as what they are."""
    x, exponent = node.several(2)
    value = exponent.value
    if value is not None and value.size == 1 and value.ndim <= x.rank:
        number = float(value.reshape(-1)[0])
        if number in (2.0, 3.0):
            return x * x if number == 2 else x * x * x
        if number in (0.5, 1.0):
            return x.emit("sqrt") if number == 0.5 else x
    if exponent.dtype != x.dtype and "int" in x.dtype:
        wide = x.cast("float64").with_operand("power", exponent.cast("float64"))
        return wide.cast(x.dtype)
    return x.with_operand("power", exponent.cast(x.dtype))


@translates("Mod")
def modulo(node: OnnxNode) -> Translated:
    """Mod with the sign of the divisor, or as C's fmod with that of what is divided."""
    operator = "remainder" if node.integer("fmod", 0) else "modulo"
    return node.input(0).with_operand(operator, node.input(1))


@translates("BitShift")
def bit_shift(node: OnnxNode) -> Translated:
    """BitShift to the left or the right."""
    direction = node.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction {quoted(direction)} is not known")
    return node.input(0).with_operand(f"shift_{direction.lower()}", node.input(1))


@translates("Xor")
def exclusive_or(node: OnnxNode) -> Translated:
    """Xor → not(equal)."""
    return node.input(0).with_operand("equal", node.input(1)).emit("not")


@translates("Clip")
def clip(node: OnnxNode) -> Translated:
    """Clip with limits as attributes (before operator set 11) or inputs."""
    x, lower, upper = node.input(0), node.given(1), node.given(2)
    if node.opset < 11:
        return _clip(x, node.number("min", -np.inf), node.number("max", np.inf))
    small = lower.value if lower else np.asarray(-np.inf)
    large = upper.value if upper else np.asarray(np.inf)
    if small is not None and large is not None and x.dtype.startswith("float"):
        return _clip(x, float(small.reshape(-1)[0]), float(large.reshape(-1)[0]))
    result = x.emit("maximum", lower) if lower else x
    return result.emit("minimum", upper) if upper else result


def _clip(x: Tensor, minimum: float, maximum: float) -> Tensor:
    if minimum == 0 and maximum == np.inf:
        return x.emit("relu")
    limits = (str(v) if np.isinf(v) else shortest(v) for v in (minimum, maximum))
    return x.emit("clip", **dict(zip(("minimum", "maximum"), limits, strict=True)))


@translates("BitCast")
def bit_cast(node: OnnxNode) -> Translated:
    """BitCast, between types of one size."""
    code = node.integer("to", onnx.TensorProto.FLOAT)
    dtype = dtype_name(code, f"the result of node {quoted(node.name)}")
    return node.input(0).emit("bitcast", dtype=dtype)


@translates("Cast", "CastLike")
def cast(node: OnnxNode) -> Translated:
    """Cast; nothing when the type is right already."""
    if node.operator == "CastLike":
        return node.input(0).cast(node.input(1).dtype)
    target = node.integer("to", onnx.TensorProto.FLOAT)
    return node.input(0).cast(dtype_name(target, f"the result of node {quoted(node.name)}"))


@translates("Where")
def where(node: OnnxNode) -> Translated:
    """Where."""
    return node.input(0).emit("where", node.input(1), node.input(2))


@translates("Gelu", "com.microsoft.Gelu")
def gelu(node: OnnxNode) -> Translated:
    """Gelu in its erf form; the tanh form is x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x³)))."""
    x = node.input(0)
    if node.text("approximate", "none") != "tanh":
        return x.emit("gelu")
    bend = ((x + x * x * x * 0.044715) * np.sqrt(2 / np.pi)).emit("tanh") + 1
    return x * 0.5 * bend


@translates("Swish", "com.microsoft.QuickGelu")
def swish(node: OnnxNode) -> Translated:
    """Swish, and ONNX Runtime's QuickGelu: x * sigmoid(alpha * x)."""
    x, alpha = node.input(0), node.number("alpha", 1.0 if node.operator == "Swish" else 1.702)
    return x.emit("silu") if alpha == 1 else x * (x * alpha).emit("sigmoid")


@translates("Cosh", "Sinh")
def hyperbolic(node: OnnxNode) -> Translated:
    """Cosh, Sinh: (exp(x) ± exp(-x)) / 2, with the half in the exponents so that nothing overflows
    before the result does.

    Near zero the difference would cancel; there Sinh is -(m + m / (1 + m)) / 2 with the sign of x,
    where m = exp(-|x|) - 1, which `elu` gives exactly.
    """
    x = node.input(0)
    half = x.filled(np.log(2.0))
    up, down = (x - half).emit("exp"), (x.emit("negative") - half).emit("exp")
    if node.operator == "Cosh":
        return up + down
    size = x.emit("abs")
    less = size.emit("negative").emit("elu", alpha=1.0)
    near = (less + less / (less + 1)) * -0.5 * x.emit("sign")
    return size.emit("less", 1).emit("where", near, up - down)


@translates("IsInf")
def is_infinite(node: OnnxNode) -> Translated:
    """IsInf → a comparison with the infinities asked for."""
    x = node.input(0)
    up, down = node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    only_if(bool(up or down))
    return (x.emit("abs") if up and down else x).emit("equal", np.inf if up else -np.inf)
