"""Movement operators as index maps: position in the result → expression in the operand.

An interpolation reads several positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilewright.compiler.lower.values import Index, Simplifier, Value, broadcast_index
from tilewright.core.errors import InternalError
from tilewright.graph.operators.movement import nearest_index
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Step

Rule = Callable[[list[Value], dict[str, Any], TensorType, Simplifier], Value]


def _integer(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _reshape(operands: list[Value], _: Any, result: TensorType, simplify: Simplifier) -> Value:
    source = operands[0]

    def read(index: Index) -> tirx.Expr:
        linear: tirx.Expr = _integer(0)
        for position, extent in zip(index, result.shape, strict=True):
            linear = linear * extent + position
        positions: list[tirx.Expr] = []
        rest = linear
        for extent in reversed(source.type.shape):
            positions.append(simplify(tirx.floormod(rest, extent)) if extent > 1 else _integer(0))
            rest = simplify(tirx.floordiv(rest, extent))
        return source.read(positions[::-1])

    return Value(type=result, read=read)


def _transpose(operands: list[Value], named: Any, result: TensorType, _: Simplifier) -> Value:
    permutation: tuple[int, ...] = named["permutation"]

    def read(index: Index) -> tirx.Expr:
        source = [_integer(0)] * len(permutation)
        for position, axis in zip(index, permutation, strict=True):
            source[axis] = position
        return operands[0].read(source)

    return Value(type=result, read=read)


def _slice(operands: list[Value], named: Any, result: TensorType, _: Simplifier) -> Value:
    starts, steps = named["starts"], named["steps"]

    def read(index: Index) -> tirx.Expr:
        return operands[0].read(
            [start + i * step for i, start, step in zip(index, starts, steps, strict=True)]
        )

    return Value(type=result, read=read)


def _concat(operands: list[Value], named: Any, result: TensorType, simplify: Simplifier) -> Value:
    axis: int = named["axis"]

    def read(index: Index) -> tirx.Expr:
        offset = result.shape[axis]
        expression: tirx.Expr | None = None
        for operand in reversed(operands):
            offset -= operand.type.shape[axis]
            inside = [*index]
            inside[axis] = simplify(index[axis] - offset)
            value = operand.read(inside)
            expression = (
                value
                if expression is None
                else tirx.if_then_else(
                    index[axis] < offset + operand.type.shape[axis], value, expression
                )
            )
        assert expression is not None
        return expression

    return Value(type=result, read=read)


def _pad(operands: list[Value], named: Any, result: TensorType, _: Simplifier) -> Value:
    before, mode = named["before"], named["mode"]
    source = operands[0]

    def constant(index: Index) -> tirx.Expr:
        inside: list[tirx.Expr] = []
        conditions: list[tirx.Expr] = []
        for axis, position in enumerate(index):
            shifted = position - before[axis] if before[axis] else position
            inside.append(shifted)
            if before[axis]:
                conditions.append(position >= before[axis])
            if result.shape[axis] > before[axis] + source.type.shape[axis]:
                conditions.append(position < before[axis] + source.type.shape[axis])
        filler = float(named["value"])
        exact = "int" in result.dtype or result.dtype == "bool"
        value = tirx.const(int(filler) if exact else filler, result.dtype)
        if not conditions:
            return source.read(inside)
        return tirx.if_then_else(tirx.all(*conditions), source.read(inside), value)

    def bounded(index: Index) -> tirx.Expr:
        inside: list[tirx.Expr] = []
        for axis, position in enumerate(index):
            last = source.type.shape[axis] - 1
            shifted = position - before[axis]
            if mode == "reflect":
                folded = tirx.abs(shifted)
                inside.append(_integer(last) - tirx.abs(_integer(last) - folded))
            else:
                inside.append(tirx.max(tirx.min(shifted, _integer(last)), _integer(0)))
        return source.read(inside)

    return Value(type=result, read=constant if mode == "constant" else bounded)


def _expand(operands: list[Value], _: Any, result: TensorType, __: Simplifier) -> Value:
    source = operands[0]
    return Value(
        type=result, read=lambda index: source.read(broadcast_index(index, source.type.shape))
    )


def _gather(operands: list[Value], named: Any, result: TensorType, simplify: Simplifier) -> Value:
    axis: int = named["axis"]
    data, indices = operands
    rank = len(indices.type.shape)
    extent = data.type.shape[axis]

    def read(index: Index) -> tirx.Expr:
        chosen = tirx.Cast("int32", indices.read(list(index)[axis : axis + rank]))
        wrapped = tirx.Select(chosen < 0, chosen + extent, chosen)
        # an index out of range must never read outside the buffer
        safe = tirx.max(tirx.min(wrapped, _integer(extent - 1)), _integer(0))
        with simplify.pausing():
            return data.read([*list(index)[:axis], safe, *list(index)[axis + rank :]])

    return Value(type=result, read=read)


def _interpolate(
    operands: list[Value], named: Any, result: TensorType, simplify: Simplifier
) -> Value:
    axis: int = named["axis"]
    data, indices, weights = operands
    last = _integer(data.type.shape[axis] - 1)

    def tap(number: int, index: Index) -> tirx.Expr:
        place = [_integer(number), index[axis]]
        # an index out of range must never read outside the buffer
        safe = tirx.max(tirx.min(indices.read(place), last), _integer(0))
        with simplify.pausing():
            element = data.read([*list(index)[:axis], safe, *list(index)[axis + 1 :]])
        return element * weights.read(place)

    def read(index: Index) -> tirx.Expr:
        first, *rest = (tap(number, index) for number in range(weights.type.shape[0]))
        return sum(rest, first)

    return Value(type=result, read=read)


def _source_position(
    position: tirx.Expr, sizes: tuple[int, int], scale: float, how: str
) -> tirx.Expr:
    """ONNX Resize's coordinate transformations in double precision; sizes are (input, output)."""

    def number(value: float) -> tirx.Expr:
        return tirx.const(value, "float64")

    before, after = sizes
    x = tirx.Cast("float64", position)
    half_pixel = (x + number(0.5)) / number(scale) - number(0.5)
    if how == "asymmetric":
        return x / number(scale)
    if how == "align_corners":
        return x * number(before - 1) / number(max(after - 1, 1))
    if how == "half_pixel":
        return half_pixel
    if how == "half_pixel_symmetric":
        return half_pixel + number(before / 2 * (1 - after / (scale * before)))
    if how == "pytorch_half_pixel":
        return half_pixel if after > 1 else number(0.0)
    if how == "tf_half_pixel_for_nn":
        return (x + number(0.5)) / number(scale)
    raise InternalError(f"unknown coordinate transformation {how}")


def _rounded(x: tirx.Expr, how: str) -> tirx.Expr:
    half = tirx.const(0.5, "float64")
    rules = {
        "floor": lambda: tirx.floor(x),
        "ceil": lambda: tirx.ceil(x),
        "round_prefer_floor": lambda: tirx.ceil(x - half),
        "round_prefer_ceil": lambda: tirx.floor(x + half),
    }
    return tirx.Cast("int32", rules[how]())


def _nearest(position: tirx.Expr, sizes: tuple[int, int], scale: float, named: Any) -> tirx.Expr:
    """The input position an output position reads; integer arithmetic where that is exact."""
    before, after = sizes
    table = [nearest_index(i, before, after, scale, named) for i in range(after)]
    for factor in range(1, after + 1):
        if table == [i // factor for i in range(after)]:
            return tirx.floordiv(position, factor)
    if table == [i * before // after for i in range(after)]:
        return tirx.floordiv(position * before, after)
    x = _source_position(position, sizes, scale, named["coordinate"])
    nearest = _rounded(x, named["rounding"])
    return tirx.max(tirx.min(nearest, _integer(before - 1)), _integer(0))


def _resize(operands: list[Value], named: Any, result: TensorType, simplify: Simplifier) -> Value:
    source = operands[0]

    def read(index: Index) -> tirx.Expr:
        positions: list[tirx.Expr] = []
        for axis, position in enumerate(index):
            sizes = (source.type.shape[axis], result.shape[axis])
            scale = float(named["scales"][axis])
            same = sizes[0] == sizes[1] and scale == 1
            chosen = position if same else _nearest(position, sizes, scale, named)
            positions.append(simplify(chosen))
        return source.read(positions)

    return Value(type=result, read=read)


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": _expand,
    "gather": _gather,
    "resize_nearest": _resize,
    "interpolate": _interpolate,
}


def moved(step: Step, operands: list[Value], result: TensorType, simplify: Simplifier) -> Value:
    """The step's result as a value that reads its operands."""
    rule = RULES.get(step.operator)
    if rule is None:
        raise InternalError(f"no movement rule for {step.operator}")
    return rule(operands, dict(step.attributes), result, simplify)
