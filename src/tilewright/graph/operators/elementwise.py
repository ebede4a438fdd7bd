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
from tilewright.graph.network import Array
from tilewright.graph.operators.base import Infer, Named, Operator, Reference, Types
from tilewright.graph.operators.checks import (
    arity,
    broadcast,
    common_dtype,
    expect,
    fail,
    number,
    text,
)
from tilewright.graph.operators.error_function import erf
from tilewright.graph.tensor import TensorType

_select = cast(Callable[..., Any], np.where)


def _sigmoid(x: Any) -> Any:
    small: Any = np.exp(-np.abs(x))
    return _select(x >= 0, 1 / (1 + small), small / (1 + small))


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _prelu(x: Any, slope: Any) -> Any:
    return _select(x < 0, x * slope, x)


def _hard_swish(x: Any) -> Any:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _softplus(x: Any) -> Any:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _divide(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    truncated = (quotient < 0) & (quotient * b != a)
    return quotient + truncated


def _inside(bits: Any, x: Any) -> Any:
    return (bits >= 0) & (bits < 8 * x.dtype.itemsize)


def _shift_left(x: Any, bits: Any) -> Any:
    return np.where(_inside(bits, x), np.left_shift(x, np.where(_inside(bits, x), bits, 0)), 0)


def _shift_right(x: Any, bits: Any) -> Any:
    beyond = _select(x < 0, -1, 0) if x.dtype.kind == "i" else 0
    shifted = np.right_shift(x, np.where(_inside(bits, x), bits, 0))
    return np.where(_inside(bits, x), shifted, beyond)


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "relu": _relu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
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
    "softplus": _softplus,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / sqrt(2))),
    "hard_swish": _hard_swish,
    "identity": lambda x: x,
    "not": np.logical_not,
    "isnan": np.isnan,
}


def _leaky_relu(x: Any, named: Named) -> Any:
    return _select(x < 0, number(named, "alpha") * x, x)


def _elu(x: Any, named: Named) -> Any:
    negative: Any = np.expm1(np.minimum(x, 0))
    return _select(x < 0, number(named, "alpha") * negative, x)


def _thresholded_relu(x: Any, named: Named) -> Any:
    return np.where(x > number(named, "alpha"), x, 0)


def _hard_sigmoid(x: Any, named: Named) -> Any:
    return np.clip(number(named, "alpha") * x + number(named, "beta"), 0, 1)


def _clip(x: Any, named: Named) -> Any:
    low, high = number(named, "minimum"), number(named, "maximum")
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        low, high = int(max(low, limits.min)), int(min(high, limits.max))
    return np.minimum(np.maximum(x, low), high)


_PARAMETRIC: Mapping[str, Callable[[Any, Named], Any]] = {
    "clip": _clip,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "selu": lambda x, named: number(named, "gamma") * _elu(x, named),
    "thresholded_relu": _thresholded_relu,
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
    "prelu": _prelu,
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


def _flop(_types: Types, result: TensorType, _named: Named) -> int:
    return result.elements


def _no_flop(_types: Types, _result: TensorType, _named: Named) -> int:
    return 0


def _infer_unary(name: str) -> Infer:
    def infer(types: Types, _named: Named) -> TensorType:
        arity(name, types, 1)
        return TensorType(types[0].shape, "bool") if name in _LOGICAL else types[0]

    return infer


def _infer_binary(name: str) -> Infer:
    def infer(types: Types, _named: Named) -> TensorType:
        arity(name, types, 2)
        dtype = types[0].dtype if name == "power" else common_dtype(name, types)
        shape = broadcast(name, (types[0].shape, types[1].shape))
        return TensorType(shape, "bool" if name in _LOGICAL else dtype)

    return infer


def _infer_where(types: Types, _named: Named) -> TensorType:
    arity("where", types, 3)
    expect(types[0].dtype == "bool", "where", f"the condition is {types[0]}, no bool")
    dtype = common_dtype("where", types[1:])
    return TensorType(broadcast("where", tuple(kind.shape for kind in types)), dtype)


def _infer_cast(types: Types, named: Named) -> TensorType:
    arity("cast", types, 1)
    dtype = text(named, "dtype")
    if not is_element_type(dtype):
        fail("cast", f"unknown type {dtype}")
    return TensorType(types[0].shape, dtype)


def _reference(name: str, compute: Callable[..., Any], *, named_too: bool) -> Reference:
    def reference(arrays: tuple[Array, ...], named: Named) -> Array:
        with np.errstate(all="ignore"):
            value = compute(*arrays, named) if named_too else compute(*arrays)
        return np.asarray(value, np.bool_ if name in _LOGICAL else arrays[0].dtype)

    return reference


def _where(arrays: tuple[Array, ...], _named: Named) -> Array:
    return np.where(arrays[0], arrays[1], arrays[2])


def _cast(arrays: tuple[Array, ...], named: Named) -> Array:
    with np.errstate(all="ignore"):
        return arrays[0].astype(np.dtype(text(named, "dtype")))


ELEMENTWISE = (
    *(
        Operator(
            name=name,
            infer=_infer_unary(name),
            flop=_no_flop if name == "identity" else _flop,
            reference=_reference(name, compute, named_too=False),
            elementwise=True,
        )
        for name, compute in _UNARY.items()
    ),
    *(
        Operator(
            name=name,
            infer=_infer_unary(name),
            flop=_flop,
            reference=_reference(name, compute, named_too=True),
            elementwise=True,
        )
        for name, compute in _PARAMETRIC.items()
    ),
    *(
        Operator(
            name=name,
            infer=_infer_binary(name),
            flop=_flop,
            reference=_reference(name, compute, named_too=False),
            elementwise=True,
        )
        for name, compute in _BINARY.items()
    ),
    Operator(name="where", infer=_infer_where, flop=_flop, reference=_where, elementwise=True),
    Operator(name="cast", infer=_infer_cast, flop=_flop, reference=_cast, elementwise=True),
)
