"""Elementwise operators of the vocabulary as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilewright.compiler.inverses import inverse
from tilewright.compiler.lower import bindings, mathematics
from tilewright.core.element_types import element_type
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Step

Expr = tirx.Expr
Rule = Callable[[list[Expr], dict[str, Any]], Expr]


def _like(x: Expr, value: float) -> Expr:
    return tirx.const(value, mathematics.dtype(x))


def _at_least(x: Expr, low: Expr) -> Expr:
    """max(x, low) that keeps a NaN in x."""
    return tirx.Select(x < low, low, x)


def _at_most(x: Expr, high: Expr) -> Expr:
    return tirx.Select(x > high, high, x)


def _relu(x: Expr) -> Expr:
    return tirx.max(x, _like(x, 0)) if _exact(x) else _at_least(x, _like(x, 0))


def _clip(x: Expr, named: dict[str, Any]) -> Expr:
    low, high = float(named["minimum"]), float(named["maximum"])
    kind = mathematics.dtype(x)
    if "int" in kind:
        smallest, largest = int(tirx.min_value(kind).value), int(tirx.max_value(kind).value)
        low = -math.inf if low <= smallest else math.trunc(low)
        high = math.inf if high >= largest else math.trunc(high)
    result = x
    if low != -math.inf:
        result = _at_least(result, _like(x, low))
    if high != math.inf:
        return bindings.shared(result, lambda v: _at_most(v, _like(x, high)))
    return result


def _negative_part(x: Expr, below: Expr) -> Expr:
    """`below` where x < 0, else x."""
    return tirx.Select(x < _like(x, 0), below, x)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    line = x * _like(x, alpha) + _like(x, beta)
    low = bindings.shared(line, lambda v: _at_least(v, _like(v, 0)))
    return bindings.shared(low, lambda v: _at_most(v, _like(v, 1)))


def _shrink(x: Expr, bias: float, lambd: float) -> Expr:
    """Below -lambd comes first: with a negative `lambd`, numbers may be on both sides."""
    above = tirx.Select(x > _like(x, lambd), x - _like(x, bias), _like(x, 0))
    return tirx.Select(x < _like(x, -lambd), x + _like(x, bias), above)


def _softplus(x: Expr) -> Expr:
    magnitude = tirx.abs(x)
    return _relu(x) + mathematics.log(_like(x, 1) + mathematics.exp(_like(x, 0) - magnitude))


def _elu(x: Expr, alpha: float) -> Expr:
    return _negative_part(x, mathematics.expm1(x) * _like(x, alpha))


def _celu(x: Expr, alpha: float) -> Expr:
    factor = _like(x, alpha)
    return _negative_part(x, mathematics.expm1(x / factor) * factor)


def _gelu(x: Expr) -> Expr:
    return x * _like(x, 0.5) * (_like(x, 1) + mathematics.erf(x * _like(x, 2**-0.5)))


def _power(a: Expr, b: Expr) -> Expr:
    kind = mathematics.dtype(a)
    if "int" in kind:
        return tirx.Cast(kind, tirx.power(tirx.Cast("float64", a), tirx.Cast("float64", b)))
    return tirx.power(a, b if mathematics.dtype(b) == kind else tirx.Cast(kind, b))


def _sign(x: Expr) -> Expr:
    return _minus_one_if_negative(x, tirx.Select(x > _like(x, 0), _like(x, 1), x))


def _minus_one_if_negative(x: Expr, otherwise: Expr) -> Expr:
    """-1 where x < 0; a number without a sign never is."""
    unsigned = mathematics.dtype(x).startswith("uint")
    return otherwise if unsigned else tirx.Select(x < _like(x, 0), _like(x, -1), otherwise)


def _extreme(x: list[Expr], exact: Callable[..., Expr], better: Callable[..., Expr]) -> Expr:
    """The better of two numbers; a NaN where either is one."""
    a, b = x
    return exact(a, b) if _exact(a) else tirx.Select(tirx.any(better(a, b), tirx.isnan(a)), a, b)


def _exact(x: Expr) -> bool:
    kind = mathematics.dtype(x)
    return "int" in kind or kind == "bool"


def _where(condition: Expr, a: Expr, b: Expr) -> Expr:
    """A choice; of booleans in logic, for TVM makes bytes of a vector of chosen booleans."""
    if mathematics.dtype(a) != "bool":
        return tirx.Select(condition, a, b)
    return tirx.any(tirx.all(condition, a), tirx.all(tirx.Not(condition), b))


def _equal(a: Expr, b: Expr) -> Expr:
    """Booleans in logic, for TVM compares vectors of them as if they were floats."""
    if mathematics.dtype(a) != "bool":
        return tirx.EQ(a, b)
    return tirx.any(tirx.all(a, b), tirx.Not(tirx.any(a, b)))


def _modulo(a: Expr, b: Expr) -> Expr:
    """The sign is the divisor's: -1 modulo inf is inf."""
    if _exact(a):
        return tirx.floormod(a, b)

    def signed(rest: Expr) -> Expr:
        other = tirx.Select(b < _like(b, 0), rest > _like(b, 0), rest < _like(b, 0))
        return tirx.Select(other, rest + b, rest)

    return bindings.shared(tirx.truncmod(a, b), signed)


def _shift(x: Expr, bits: Expr, shift: Callable[[Expr, Expr], Expr], beyond: Expr) -> Expr:
    """A processor says nothing of shifts by a negative number of bits, or by all of them."""
    width = 8 * element_type(mathematics.dtype(x)).bytes
    inside = tirx.all(bits >= _like(bits, 0), bits < _like(bits, width))
    return tirx.Select(inside, shift(x, tirx.Select(inside, bits, _like(bits, 0))), beyond)


def _divide(a: Expr, b: Expr) -> Expr:
    return tirx.truncdiv(a, b) if _exact(a) else a / b


def _absolute(x: Expr) -> Expr:
    return x if mathematics.dtype(x).startswith("uint") else tirx.abs(x)


def _cast(x: Expr, named: dict[str, Any]) -> Expr:
    kind = mathematics.dtype(x)
    if kind == named["dtype"]:
        return x
    if named["dtype"] == "bool":
        return tirx.NE(x, _like(x, 0))
    return mathematics.converted(x, named["dtype"])


def _bitcast(x: Expr, dtype: str) -> Expr:
    return x if mathematics.dtype(x) == dtype else tirx.reinterpret(dtype, x)


RULES: dict[str, Rule] = {
    "identity": lambda x, _: x[0],
    "relu": lambda x, _: _relu(x[0]),
    "sigmoid": lambda x, _: mathematics.sigmoid(x[0]),
    "tanh": lambda x, _: mathematics.tanh(x[0]),
    "exp": lambda x, _: mathematics.exp(x[0]),
    "erf": lambda x, _: mathematics.erf(x[0]),
    "log": lambda x, _: mathematics.log(x[0]),
    "sqrt": lambda x, _: tirx.sqrt(x[0]),
    "rsqrt": lambda x, _: _like(x[0], 1) / tirx.sqrt(x[0]),
    "negative": lambda x, _: _like(x[0], 0) - x[0],
    "abs": lambda x, _: _absolute(x[0]),
    "sin": lambda x, _: tirx.sin(x[0]),
    "cos": lambda x, _: tirx.cos(x[0]),
    "floor": lambda x, _: tirx.floor(x[0]),
    "ceil": lambda x, _: tirx.ceil(x[0]),
    "round": lambda x, _: tirx.nearbyint(x[0]),
    "sign": lambda x, _: _sign(x[0]),
    "reciprocal": lambda x, _: _like(x[0], 1) / x[0],
    "softplus": lambda x, _: _softplus(x[0]),
    "silu": lambda x, _: x[0] * mathematics.sigmoid(x[0]),
    "gelu": lambda x, _: _gelu(x[0]),
    "hard_swish": lambda x, _: x[0] * _hard_sigmoid(x[0], 1 / 6, 0.5),
    "not": lambda x, _: tirx.Not(x[0]),
    "isnan": lambda x, _: tirx.isnan(x[0]),
    "clip": lambda x, named: _clip(x[0], named),
    "leaky_relu": lambda x, n: _negative_part(x[0], x[0] * _like(x[0], n["alpha"])),
    "elu": lambda x, n: _elu(x[0], n["alpha"]),
    "celu": lambda x, n: _celu(x[0], n["alpha"]),
    "selu": lambda x, n: _elu(x[0], n["alpha"]) * _like(x[0], n["gamma"]),
    "thresholded_relu": lambda x, n: tirx.Select(
        x[0] > _like(x[0], n["alpha"]), x[0], _like(x[0], 0)
    ),
    "shrink": lambda x, n: _shrink(x[0], float(n["bias"]), float(n["lambd"])),
    "hard_sigmoid": lambda x, n: _hard_sigmoid(x[0], n["alpha"], n["beta"]),
    "cast": lambda x, named: _cast(x[0], named),
    "bitcast": lambda x, named: _bitcast(x[0], named["dtype"]),
    "add": lambda x, _: x[0] + x[1],
    "subtract": lambda x, _: x[0] - x[1],
    "multiply": lambda x, _: x[0] * x[1],
    "divide": lambda x, _: _divide(x[0], x[1]),
    "power": lambda x, _: _power(x[0], x[1]),
    "maximum": lambda x, _: _extreme(x, tirx.max, tirx.GT),
    "minimum": lambda x, _: _extreme(x, tirx.min, tirx.LT),
    "modulo": lambda x, _: _modulo(x[0], x[1]),
    "remainder": lambda x, _: tirx.truncmod(x[0], x[1]),
    "shift_left": lambda x, _: _shift(x[0], x[1], tirx.shift_left, _like(x[0], 0)),
    "shift_right": lambda x, _: _shift(
        x[0], x[1], tirx.shift_right, _minus_one_if_negative(x[0], _like(x[0], 0))
    ),
    "equal": lambda x, _: _equal(x[0], x[1]),
    "less": lambda x, _: x[0] < x[1],
    "greater": lambda x, _: x[0] > x[1],
    "less_equal": lambda x, _: x[0] <= x[1],
    "greater_equal": lambda x, _: x[0] >= x[1],
    "and": lambda x, _: tirx.all(x[0], x[1]),
    "or": lambda x, _: tirx.any(x[0], x[1]),
    "prelu": lambda x, _: _negative_part(x[0], x[0] * x[1]),
    "where": lambda x, _: _where(x[0], x[1], x[2]),
}


_FOR_LLVM: dict[str, Rule] = {
    "round": lambda x, _: tirx.call_llvm_pure_intrin(
        mathematics.dtype(x[0]), "llvm.nearbyint", x[0]
    ),
}
"""Rules for CPUs, where TVM takes vectors apart over its own function."""


_USES_ONCE = frozenset(
    {
        "identity", "sigmoid", "tanh", "exp", "erf", "log", "sqrt", "rsqrt", "negative", "abs",
        "sin", "cos", "floor", "ceil", "round", "reciprocal", "not", "isnan", "hard_sigmoid",
        "cast", "add", "subtract", "multiply", "divide", "power", "remainder", "equal", "less",
        "greater", "less_equal", "greater_equal", "and", "or", "where",
    }
)  # fmt: skip
"""Operators whose rule mentions every operand once, or booleans twice: TVM binds no vectors of
booleans."""

_IN_SINGLE = frozenset(
    {
        "sqrt", "rsqrt", "floor", "ceil", "round", "modulo", "remainder", "hard_swish",
        "hard_sigmoid", "isnan", "maximum", "minimum", "shrink",
    }
    | {name for name, operator in OPERATORS.items() if operator.transcendental}
)  # fmt: skip
"""Operators computed in single precision where the type is float16, all transcendental ones among
them; with bfloat16, which TVM does not take everywhere, all are that compute something."""

_MOVES_BITS = frozenset({"identity", "cast", "bitcast"})


def expression(step: Step, operands: list[Expr], *, llvm: bool = False) -> Expr:
    """The step's result at one position, from its operands at that position; for `llvm` or for
    anything."""
    rule = (_FOR_LLVM if llvm else RULES).get(step.operator, RULES[step.operator])
    return bindings.bound(lambda: _apply(step, rule, [bindings.opened(o) for o in operands]))


_FAR = 2.0**100
"""Beyond all codes; what is further is infinite or as good as that."""


def quotient(x: Expr, divisor: Expr, *, finite: bool) -> Expr:
    """x / divisor by the inverse and one step of Newton's, in a third of the time of a division; a
    result is off by its last bit for a few in ten million, and none for whole numbers and halves
    between them that are results themselves (Markstein, 1990). The divisor is a finite single.

    Where x / divisor need not be `finite`, as with a mask, the step begins at ±2¹⁰⁰ at most: from
    an infinity it would make NaN. The result is infinite again, and NaN stays NaN.
    """

    def fused(a: Expr, b: Expr, c: Expr) -> Expr:
        return tirx.call_llvm_pure_intrin("float32", "llvm.fma", a, b, c)

    def corrected(x: Expr, factor: Expr, near: Expr) -> Expr:
        # times -1 is a change of sign, which multiply-adds have; 0 - near is a subtraction
        return fused(fused(near * _like(x, -1), divisor, x), factor, near)

    def within(near: Expr) -> Expr:
        return near if finite else _clip(near, {"minimum": -_FAR, "maximum": _FAR})

    return bindings.bound(
        lambda: bindings.shared(
            bindings.opened(x),
            lambda x: bindings.shared(
                inverse(divisor),
                lambda factor: bindings.shared(
                    bindings.shared(x * factor, within),
                    lambda near: corrected(x, factor, near),
                ),
            ),
        )
    )


def nearest_code(x: Expr, limits: dict[str, Any], kind: str) -> Expr:
    """cast(clip(round(x))) of a single, for whole limits within the element type `kind`: limits are
    applied first, so that one conversion rounds and no integer overflows.

    255 is applied last, by the instruction that stores bytes. x86 converts what is beyond all
    integers to -2³¹, which without a sign is above 255 as well.
    """

    def code(x: Expr) -> Expr:
        if kind != "uint8" or limits["maximum"] != 255:
            return tirx.Cast(kind, _nearest(_clip(x, limits)))
        whole = tirx.Cast("uint32", _nearest(_clip(x, {**limits, "maximum": math.inf})))
        return tirx.Cast(kind, tirx.min(whole, tirx.const(255, "uint32")))

    return bindings.bound(lambda: bindings.shared(bindings.opened(x), code))


def _nearest(x: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin("int32", "llvm.lrint", x)


def _apply(step: Step, rule: Rule, operands: list[Expr]) -> Expr:
    kind = mathematics.dtype(operands[1 if step.operator == "where" else 0])
    wide = kind == "bfloat16" and step.operator not in _MOVES_BITS
    single = wide or (kind == "float16" and step.operator in _IN_SINGLE)
    if single:
        operands = [_unless_logical(operand, "float32") for operand in operands]
    if step.operator not in _USES_ONCE:
        operands = [bindings.shared(operand, lambda name: name) for operand in operands]
    value = rule(operands, dict(step.attributes))
    return _unless_logical(value, kind) if single else value


def _unless_logical(x: Expr, kind: str) -> Expr:
    """`x` in another element type; booleans stay what they are."""
    return x if mathematics.dtype(x) == "bool" else mathematics.converted(x, kind)
