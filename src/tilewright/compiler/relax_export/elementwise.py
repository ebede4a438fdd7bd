"""Operators of single elements."""

from __future__ import annotations

from functools import partial
from math import inf

import numpy as np

from tilewright.compiler.relax_export.calls import (
    Call,
    Translation,
    Value,
    translates,
    translations,
)
from tilewright.compiler.relax_export.writer import refuse

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin",
    "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos",
    "cosh": "Cosh", "divide": "Div", "equal": "Equal", "erf": "Erf", "exp": "Exp",
    "floor": "Floor", "greater": "Greater", "greater_equal": "GreaterOrEqual", "isinf": "IsInf",
    "isnan": "IsNaN", "less": "Less", "less_equal": "LessOrEqual", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor",
    "maximum": "Max", "minimum": "Min", "multiply": "Mul", "negative": "Neg", "nn.relu": "Relu",
    "nn.selu": "Selu", "power": "Pow", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan",
    "tanh": "Tanh", "where": "Where",
}  # fmt: skip
"""Operators that ONNX has with the same operands."""


def _same(operator: str, call: Call) -> Value:
    return call.node(operator, *(call[place] for place in range(len(call.values))))


@translates("isfinite")
def isfinite(call: Call) -> Value:
    """Neither infinite nor no number."""
    infinite, none = call.node("IsInf", call[0]), call.node("IsNaN", call[0])
    return call.node("Not", call.node("Or", infinite, none))


@translates("log_add_exp")
def log_add_exp(call: Call) -> Value:
    """The larger one, and what the other adds to it."""
    apart = call.node("Neg", call.node("Abs", call.node("Sub", call[0], call[1])))
    more = call.node("Softplus", apart)
    return call.node("Add", call.node("Max", call[0], call[1]), more)


@translates("nn.prelu")
def prelu(call: Call) -> Value:
    """Negative numbers times a factor for each place of an axis."""
    behind = call.rank() - 1 - call.axis()
    slope = call[1] if behind == 0 else call.node("Unsqueeze", call[1], [*range(1, 1 + behind)])
    return call.node("PRelu", call[0], slope)


@translates("nn.gelu", "nn.gelu_tanh")
def gelu(call: Call) -> Value:
    """Exact, or with tanh."""
    kind = "tanh" if call.call.op.name.endswith("tanh") else "none"
    return call.node("Gelu", call[0], approximate=kind)


@translates("nn.softplus")
def softplus(call: Call) -> Value:
    """log(1 + exp(βx)) / β, and x where βx is past the threshold; past 20 they are the same."""
    beta, threshold = call.attribute("beta"), call.attribute("threshold")
    scaled = call[0] if beta == 1 else call.node("Mul", call[0], call.number(beta))
    result = call.node("Softplus", scaled)
    result = result if beta == 1 else call.node("Div", result, call.number(beta))
    if threshold >= _ROUNDED:
        return result
    past = call.node("Greater", scaled, call.number(threshold))
    return call.node("Where", past, call[0], result)


_ROUNDED = 20
"""From here on log(1 + exp(x)) is x up to its rounding."""


@translates("clip")
def clip(call: Call) -> Value:
    """Between two bounds; an infinite one bounds nothing."""
    return call.node("Clip", call[0], _bound(call, 1, -inf), _bound(call, 2, inf))


def _bound(call: Call, place: int, none: float) -> str | np.ndarray:
    """A bound in the operand's type, which holds no larger numbers than integers can be."""
    value, dtype = call.argument(place), call.dtype()
    if value == none:
        return ""
    if "int" in dtype:
        value = min(max(value, np.iinfo(dtype).min), np.iinfo(dtype).max)
    return call.number(value)


@translates("floor_divide", "floor_mod", "mod")
def divided(call: Call) -> Value:
    """Quotients rounded down, and what they leave; `mod` has the sign of the dividend."""
    name, floats = call.call.op.name, "float" in call.dtype()
    if name == "relax.mod":
        return call.node("Mod", call[0], call[1], fmod=1)
    if not floats:
        rest = call.node("Mod", call[0], call[1])
        whole = call.node("Sub", call[0], rest)
        return rest if name == "relax.floor_mod" else call.node("Div", whole, call[1])
    quotient = call.node("Floor", call.node("Div", call[0], call[1]))
    if name == "relax.floor_divide":
        return quotient
    return call.node("Sub", call[0], call.node("Mul", quotient, call[1]))


@translates("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def bitwise(call: Call) -> Value:
    """Of bits; truth is one bit."""
    name = call.call.op.name.removeprefix("relax.bitwise_").capitalize()
    return _same(name if call.dtype() == "bool" else f"Bitwise{name}", call)


@translates("left_shift", "right_shift")
def shift(call: Call) -> Value:
    """Of integers without a sign, as ONNX has it."""
    if not call.dtype().startswith("uint"):
        raise refuse(f"elements of type {call.dtype()} are not shifted")
    direction = call.call.op.name.removeprefix("relax.").removesuffix("_shift").upper()
    return call.node("BitShift", call[0], call[1], direction=direction)


@translates("quantize", "dequantize")
def quantize(call: Call) -> Value:
    """Codes of numbers along an axis, and numbers of codes."""
    codes = call.attribute("out_dtype") if call.call.op.name == "relax.quantize" else call.dtype()
    zero = call[2] if call.dtype(2) == codes else call.in_type(call[2], codes)
    forth = call.call.op.name == "relax.quantize"
    operator = "QuantizeLinear" if forth else "DequantizeLinear"
    axis = {"axis": call.attribute("axis")} if call.rank(1) else {}
    return call.node(operator, call[0], call[1], zero, **axis)


_FORMULAS: dict[str, Translation] = {
    **{name: partial(_same, operator) for name, operator in _SAME.items()},
    "not_equal": lambda call: call.node("Not", call.node("Equal", call[0], call[1])),
    "square": lambda call: call.node("Mul", call[0], call[0]),
    "rsqrt": lambda call: call.node("Reciprocal", call.node("Sqrt", call[0])),
    "trunc": lambda call: call.node(
        "Mul", call.node("Sign", call[0]), call.node("Floor", call.node("Abs", call[0]))
    ),
    **dict.fromkeys(
        ("astype", "wrap_param"), lambda call: call.in_type(call[0], call.attribute("dtype"))
    ),
    "nn.leakyrelu": lambda call: call.node("LeakyRelu", call[0], alpha=call.attribute("alpha")),
    "nn.silu": lambda call: call.node("Mul", call[0], call.node("Sigmoid", call[0])),
    "nn.dropout": lambda call: [
        call[0],
        call.node("Cast", call.node("Equal", call[0], call[0]), to=1),
    ],
    **dict.fromkeys(
        (
            "builtin.stop_lift_params",
            "hint_on_device",
            "to_vdevice",
            "grad.no_grad",
            "shape_to_tensor",
            "tensor_to_shape",
        ),
        lambda call: call[0],
    ),
}
translations(_FORMULAS)
