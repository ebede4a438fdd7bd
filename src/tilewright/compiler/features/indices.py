"""Values of index expressions at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx

from tilewright.compiler.statements import operator_name

_BINARY: dict[type, Callable[..., Any]] = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply, tirx.Min: np.minimum,
    tirx.Max: np.maximum, tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod,
    tirx.Div: np.floor_divide, tirx.Mod: np.mod, tirx.EQ: np.equal, tirx.NE: np.not_equal,
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal,
    tirx.And: np.logical_and, tirx.Or: np.logical_or, tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or, tirx.BitwiseXor: np.bitwise_xor, tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}  # fmt: skip
CONDITIONAL = "prim.if_then_else"


def evaluated(node: Any, known: Mapping[Any, Any], lane: int = 0) -> Any:
    """An index expression at the points for which `known` has the values of variables; others, and
    what is read from memory, count as 0. Of a vector the element `lane`."""
    kind = type(node)
    if kind is tirx.IntImm:
        return int(node.value)
    if kind is tirx.Var:
        return known.get(node, 0)
    if kind in _BINARY:
        return _BINARY[kind](evaluated(node.a, known, lane), evaluated(node.b, known, lane))
    if kind in (tirx.Cast, tirx.Broadcast):
        return evaluated(node.value, known, lane)
    if kind is tirx.Not:
        return np.logical_not(evaluated(node.a, known, lane))
    if kind is tirx.Ramp:
        first = evaluated(node.base, known, lane)
        return first + lane * evaluated(node.stride, known, lane) if lane else first
    if kind is tirx.Select:
        parts = (node.condition, node.true_value, node.false_value)
        return np.where(*(evaluated(part, known, lane) for part in parts))
    if operator_name(node) == CONDITIONAL:
        return np.where(*(evaluated(part, known, lane) for part in node.args))
    return 0
