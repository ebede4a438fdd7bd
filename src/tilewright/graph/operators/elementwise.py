"""Operators that work on each (broadcast) position alone.

Every result element counts as one floating-point operation, whatever the operator; `identity`
counts none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, cast

import numpy as np

from tilewright.core.element_types import element_type, is_element_type
from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import Operator, Types, broadcast, common_dtype, expect

_Formula = Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]
_select = cast(Callable[..., Any], np.where)
_SMALL_TOP = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2,
              3.77485237685302021e2, 3.20937758913846947e3)  # fmt: skip
_SMALL_BOTTOM = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
                 2.84423683343917062e3)  # fmt: skip
_MIDDLE_TOP = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
               6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
               1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)  # fmt: skip
_MIDDLE_BOTTOM = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
                  1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
                  3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip


def erf(x: Any) -> Any:
    """erf of every element, in the input's own floating-point type, accurate to about 1e-15.

    Source: W. J. Cody, Rational Chebyshev approximations for the error function, Mathematics of
    Computation 23 (1969), 631-637.
    """
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    square = np.square(np.minimum(size, 0.5))
    small = wide * np.polyval(_SMALL_TOP, square) / np.polyval(_SMALL_BOTTOM, square)
    reach = np.minimum(size, 6.0)
    tail = np.polyval(_MIDDLE_TOP, reach) / np.polyval(_MIDDLE_BOTTOM, reach)
    large = np.copysign(1.0 - np.exp(-np.square(reach)) * tail, wide)
    return np.where(size <= 0.46875, small, large).astype(x.dtype)


def _sigmoid(x: Any) -> Any:
    small: Any = np.exp(-np.abs(x))
    return _select(x >= 0, 1 / (1 + small), small / (1 + small))


def _divide(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a))


def _inside(bits: Any, x: Any) -> Any:
    return (bits >= 0) & (bits < 8 * x.dtype.itemsize)


def _shift_left(x: Any, bits: Any) -> Any:
    return np.where(_inside(bits, x), np.left_shift(x, np.where(_inside(bits, x), bits, 0)), 0)


def _shift_right(x: Any, bits: Any) -> Any:
    beyond = _select(x < 0, -1, 0) if x.dtype.kind == "i" else 0
    return np.where(
        _inside(bits, x), np.right_shift(x, np.where(_inside(bits, x), bits, 0)), beyond
    )


def _elu(x: Any, alpha: float) -> Any:
    return _select(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _shrink(x: Any, bias: float | str, lambd: float | str) -> Any:
    shift, edge = float(bias), float(lambd)
    return _select(x < -edge, x + shift, _select(x > edge, x - shift, 0))


def _clip(x: Any, minimum: float | str, maximum: float | str) -> Any:
    low, high = float(minimum), float(maximum)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        low, high = int(max(low, limits.min)), int(min(high, limits.max))
    return np.minimum(np.maximum(x, low), high)


def _where_type(types: Types) -> TensorType:
    expect(types[0].dtype == "bool", f"the condition is {types[0]}, no bool")
    return TensorType(broadcast([kind.shape for kind in types]), common_dtype(types[1:]))


def _cast_type(types: Types, dtype: str) -> TensorType:
    expect(is_element_type(dtype), f"unknown type {dtype}")
    return TensorType(types[0].shape, dtype)


def _bitcast_type(types: Types, dtype: str) -> TensorType:
    result = _cast_type(types, dtype)
    sizes = {element_type(kind.dtype).bytes for kind in (types[0], result)}
    expect(len(sizes) == 1 and "bool" not in (dtype, types[0].dtype), f"{types[0]} is no {dtype}")
    return result


def _cast(x: Any, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        return x.astype(np.dtype(dtype))


def _steepest(**named: float) -> float:
    """A slope where parameters are factors, or 1 where they are less."""
    return prod(max(1.0, abs(value)) for value in named.values())


def _operator(
    name: str, compute: _Formula, arity: int = 1, *, logical: bool = False, **facts: Any
) -> Operator:
    """An operator whose result has the type of its first operand, or is `logical`: true or false.
    `facts` are fields of `Operator`."""

    def result_type(types: Types, **_named: object) -> TensorType:
        dtype = types[0].dtype if name == "power" else common_dtype(types)
        return TensorType(broadcast([k.shape for k in types]), "bool" if logical else dtype)

    def reference(*arrays: Any, **named: Any) -> Any:
        with np.errstate(all="ignore"):
            value = cast(Callable[..., Any], compute)(*arrays, **named)
        return np.asarray(value, np.bool_ if logical else arrays[0].dtype)

    return Operator(
        name=name,
        result_type=result_type,
        work=int(name != "identity"),
        compute=reference,
        arity=arity,
        elementwise=True,
        **facts,
    )


ELEMENTWISE = (
    _operator("identity", lambda x: x),
    _operator("relu", lambda x: np.maximum(x, 0), slope=1.0),
    _operator("sigmoid", _sigmoid, slope=0.25, transcendental=1),
    _operator("tanh", np.tanh, slope=1.0, transcendental=1),
    _operator("exp", np.exp, transcendental=1),
    _operator("log", np.log, transcendental=1),
    _operator("sqrt", np.sqrt),
    _operator("rsqrt", lambda x: 1 / np.sqrt(x)),
    _operator("negative", np.negative, slope=1.0),
    _operator("abs", np.abs, slope=1.0),
    _operator("erf", erf, slope=1.13, transcendental=1),
    _operator("sin", np.sin, slope=1.0, transcendental=1),
    _operator("cos", np.cos, slope=1.0, transcendental=1),
    _operator("floor", np.floor, jumps=True),
    _operator("ceil", np.ceil, jumps=True),
    _operator("round", np.rint, jumps=True),
    _operator("sign", np.sign, jumps=True),
    _operator("reciprocal", lambda x: 1 / x),
    _operator(
        "softplus",
        lambda x: np.logaddexp(x, np.zeros((), x.dtype)),
        slope=1.0,
        transcendental=2,
    ),
    _operator("silu", lambda x: x * _sigmoid(x), slope=1.1, transcendental=1),
    _operator("gelu", lambda x: 0.5 * x * (1 + erf(x / sqrt(2))), slope=1.13, transcendental=1),
    _operator("hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), slope=1.5),
    _operator("not", np.logical_not, logical=True),
    _operator("isnan", np.isnan, logical=True),
    _operator("leaky_relu", lambda x, alpha: _select(x < 0, alpha * x, x), slope=_steepest),
    _operator("elu", _elu, slope=_steepest, transcendental=1),
    _operator(
        "celu",  # of a negative alpha the slope has no bound
        lambda x, alpha: _select(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x),
        transcendental=1,
    ),
    _operator(
        "selu",
        lambda x, alpha, gamma: gamma * _elu(x, alpha),
        slope=_steepest,
        transcendental=1,
    ),
    _operator("thresholded_relu", lambda x, alpha: np.where(x > alpha, x, 0), jumps=True),
    _operator("shrink", _shrink, jumps=True),  # unless bias and lambd are equal
    _operator(
        "hard_sigmoid", lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), slope=_steepest
    ),
    _operator("clip", _clip, slope=1.0),
    Operator(name="cast", result_type=_cast_type, work=1, compute=_cast, elementwise=True),
    Operator(
        name="bitcast",
        result_type=_bitcast_type,
        work=1,
        compute=lambda x, dtype: x.view(np.dtype(dtype)),
        elementwise=True,
        jumps=True,
    ),
    _operator("add", np.add, 2),
    _operator("subtract", np.subtract, 2),
    _operator("multiply", np.multiply, 2),
    _operator("divide", _divide, 2),
    _operator("power", np.power, 2, transcendental=1),
    _operator("maximum", np.maximum, 2),
    _operator("minimum", np.minimum, 2),
    _operator("modulo", np.mod, 2, jumps=True),
    _operator("remainder", np.fmod, 2, jumps=True),
    _operator("shift_left", _shift_left, 2),
    _operator("shift_right", _shift_right, 2),
    _operator("prelu", lambda x, slope: _select(x < 0, x * slope, x), 2),
    _operator("equal", np.equal, 2, logical=True, jumps=True),
    _operator("less", np.less, 2, logical=True, jumps=True),
    _operator("greater", np.greater, 2, logical=True, jumps=True),
    _operator("less_equal", np.less_equal, 2, logical=True, jumps=True),
    _operator("greater_equal", np.greater_equal, 2, logical=True, jumps=True),
    _operator("and", np.logical_and, 2, logical=True),
    _operator("or", np.logical_or, 2, logical=True),
    Operator(
        name="where", result_type=_where_type, work=1, compute=_select, arity=3, elementwise=True
    ),
)
