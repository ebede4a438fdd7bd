"""Operators that work on each (broadcast) position alone.

Every result element counts as one floating-point operation, whatever the operator; `identity`
counts none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, cast

import numpy as np

from tilewright.core.element_types import is_element_type
from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import Operator, Types, broadcast, common_dtype, expect

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


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "negative": np.negative,
    "abs": np.abs,
    "erf": erf,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "reciprocal": lambda x: 1 / x,
    "softplus": lambda x: np.logaddexp(x, np.zeros((), x.dtype)),
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / sqrt(2))),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "identity": lambda x: x,
    "not": np.logical_not,
    "isnan": np.isnan,
}


def _elu(x: Any, alpha: float) -> Any:
    return _select(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _selu(x: Any, alpha: float, gamma: float) -> Any:
    return gamma * _elu(x, alpha)


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return np.clip(alpha * x + beta, 0, 1)


def _clip(x: Any, minimum: float | str, maximum: float | str) -> Any:
    low, high = float(minimum), float(maximum)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        low, high = int(max(low, limits.min)), int(min(high, limits.max))
    return np.minimum(np.maximum(x, low), high)


_WITH_ALPHA: Mapping[str, Callable[[Any, float], Any]] = {
    "leaky_relu": lambda x, alpha: _select(x < 0, alpha * x, x),
    "elu": _elu,
    "thresholded_relu": lambda x, alpha: np.where(x > alpha, x, 0),
}

_PARAMETRIC: Mapping[str, Callable[..., Any]] = {
    **_WITH_ALPHA,
    "clip": _clip,
    "selu": _selu,
    "hard_sigmoid": _hard_sigmoid,
}

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "modulo": np.mod,
    "remainder": np.fmod,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "prelu": lambda x, slope: _select(x < 0, x * slope, x),
    "equal": np.equal,
    "less": np.less,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "greater_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}

_LOGICAL = frozenset(
    {"not", "isnan", "equal", "less", "greater", "less_equal", "greater_equal", "and", "or"}
)


def _where_type(types: Types) -> TensorType:
    expect(types[0].dtype == "bool", f"the condition is {types[0]}, no bool")
    return TensorType(broadcast([kind.shape for kind in types]), common_dtype(types[1:]))


def _cast_type(types: Types, dtype: str) -> TensorType:
    expect(is_element_type(dtype), f"unknown type {dtype}")
    return TensorType(types[0].shape, dtype)


def _cast(x: Any, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        return x.astype(np.dtype(dtype))


def _operator(name: str, compute: Callable[..., Any], arity: int) -> Operator:
    """An operator whose result has the type of its first operand, or tells true from false."""
    logical = name in _LOGICAL

    def result_type(types: Types, **_named: object) -> TensorType:
        dtype = types[0].dtype if name == "power" else common_dtype(types)
        return TensorType(broadcast([k.shape for k in types]), "bool" if logical else dtype)

    def reference(*arrays: Any, **named: Any) -> Any:
        with np.errstate(all="ignore"):
            value = compute(*arrays, **named)
        return np.asarray(value, np.bool_ if logical else arrays[0].dtype)

    return Operator(
        name=name,
        result_type=result_type,
        work=int(name != "identity"),
        compute=reference,
        arity=arity,
        elementwise=True,
    )


ELEMENTWISE = (
    *(_operator(name, compute, 1) for name, compute in {**_UNARY, **_PARAMETRIC}.items()),
    *(_operator(name, compute, 2) for name, compute in _BINARY.items()),
    Operator(
        name="where", result_type=_where_type, work=1, compute=_select, arity=3, elementwise=True
    ),
    Operator(name="cast", result_type=_cast_type, work=1, compute=_cast, elementwise=True),
)
