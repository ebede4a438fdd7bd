"""Movement operators as index maps: position in the result → expression in the operand.

An interpolation reads several positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilewright.compiler.lower.values import Index, Simplifier, Value, broadcast_index, unravelled
from tilewright.graph.network import TensorType
from tilewright.graph.operators.movement import nearest_index
from tilewright.graph.workload import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """One step: what it reads, its attributes by name, and the type of its result."""

    operands: list[Value]
    named: dict[str, Any]
    result: TensorType
    simplify: Simplifier

    @property
    def source(self) -> Value:
        """The first operand."""
        return self.operands[0]


def _integer(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _within(position: tirx.Expr, last: tirx.Expr) -> tirx.Expr:
    """The nearest position from 0 to `last`: nothing must ever read outside a buffer."""
    return tirx.max(tirx.min(position, last), _integer(0))


def _reshape(move: _Move, index: Index) -> tirx.Expr:
    rest: tirx.Expr = _integer(0)
    for position, extent in zip(index, move.result.shape, strict=True):
        rest = rest * extent + position
    return move.source.read(unravelled(rest, move.source.type.shape, move.simplify))


def _transpose(move: _Move, index: Index) -> tirx.Expr:
    permutation: tuple[int, ...] = move.named["permutation"]
    return move.source.read([index[permutation.index(axis)] for axis in range(len(permutation))])


def _slice(move: _Move, index: Index) -> tirx.Expr:
    along = zip(index, move.named["starts"], move.named["steps"], strict=True)
    return move.source.read([start + i * step for i, start, step in along])


def _concat(move: _Move, index: Index) -> tirx.Expr:
    axis: int = move.named["axis"]
    end = move.result.shape[axis]
    expression: tirx.Expr | None = None
    for operand in reversed(move.operands):
        offset = end - operand.type.shape[axis]
        inside = [*index]
        inside[axis] = move.simplify(index[axis] - offset)
        value = operand.read(inside)
        if expression is not None:
            value = tirx.if_then_else(index[axis] < end, value, expression)
        expression, end = value, offset
    return expression


def _pad(move: _Move, index: Index) -> tirx.Expr:
    before, shape, result = move.named["before"], move.source.type.shape, move.result
    if move.named["mode"] != "constant":
        return move.source.read([
            _bounded(position - start, _integer(extent - 1), move.named["mode"])
            for position, start, extent in zip(index, before, shape, strict=True)
        ])  # fmt: skip
    conditions: list[tirx.Expr] = []
    for axis, position in enumerate(index):
        if before[axis]:
            conditions.append(position >= before[axis])
        if result.shape[axis] > before[axis] + shape[axis]:
            conditions.append(position < before[axis] + shape[axis])
    shifted = zip(index, before, strict=True)
    value = move.source.read(
        [position - start if start else position for position, start in shifted]
    )
    if not conditions:
        return value
    filler = float(move.named["value"])
    exact = "int" in result.dtype or result.dtype == "bool"
    outside = tirx.const(int(filler) if exact else filler, result.dtype)
    return tirx.if_then_else(tirx.all(*conditions), value, outside)


def _bounded(position: tirx.Expr, last: tirx.Expr, mode: str) -> tirx.Expr:
    if mode == "reflect":
        return last - tirx.abs(last - tirx.abs(position))
    return _within(position, last)


def _expand(move: _Move, index: Index) -> tirx.Expr:
    return move.source.read(broadcast_index(index, move.source.type.shape))


def _gather(move: _Move, index: Index) -> tirx.Expr:
    axis: int = move.named["axis"]
    data, indices = move.operands
    beyond = axis + len(indices.type.shape)
    extent = data.type.shape[axis]
    chosen = tirx.Cast("int32", indices.read(index[axis:beyond]))
    wrapped = tirx.Select(chosen < 0, chosen + extent, chosen)
    with move.simplify.pausing():
        return data.read([*index[:axis], _within(wrapped, _integer(extent - 1)), *index[beyond:]])


def _cache_write(move: _Move, index: Index) -> tirx.Expr:
    axis: int = move.named["axis"]
    cache, rows, place = move.operands
    asked = place.read([_integer(0)] * len(place.type.shape))
    row, last = index[axis] - tirx.Cast("int32", asked), rows.type.shape[axis] - 1
    place64 = tirx.Cast("int64", asked)
    first, end = (tirx.Cast("int64", at) for at in (index[axis] - last, index[axis]))
    with move.simplify.pausing():
        new = rows.read([*index[:axis], _within(row, _integer(last)), *index[axis + 1 :]])
    return tirx.if_then_else(tirx.all(place64 >= first, place64 <= end), new, cache.read(index))


def _interpolate(move: _Move, index: Index) -> tirx.Expr:
    axis: int = move.named["axis"]
    data, indices, weights = move.operands
    last = _integer(data.type.shape[axis] - 1)

    def tap(number: int) -> tirx.Expr:
        place = [_integer(number), index[axis]]
        near = _within(indices.read(place), last)
        with move.simplify.pausing():
            element = data.read([*index[:axis], near, *index[axis + 1 :]])
        return element * weights.read(place)

    first, *rest = map(tap, range(weights.type.shape[0]))
    return sum(rest, first)


def _double(value: float) -> tirx.Expr:
    return tirx.const(value, "float64")


def _source_position(
    position: tirx.Expr, sizes: tuple[int, int], scale: float, how: str
) -> tirx.Expr:
    """ONNX Resize's coordinate transformations in double precision; sizes are (input, output)."""
    before, after = sizes
    x = tirx.Cast("float64", position)
    centred = (x + _double(0.5)) / _double(scale)
    half_pixel = centred - _double(0.5)
    return {
        "asymmetric": x / _double(scale),
        "align_corners": x * _double(before - 1) / _double(max(after - 1, 1)),
        "half_pixel": half_pixel,
        "half_pixel_symmetric": half_pixel + _double(before / 2 * (1 - after / (scale * before))),
        "pytorch_half_pixel": half_pixel if after > 1 else _double(0.0),
        "tf_half_pixel_for_nn": centred,
    }[how]


def _rounded(x: tirx.Expr, how: str) -> tirx.Expr:
    whole = {
        "floor": tirx.floor(x),
        "ceil": tirx.ceil(x),
        "round_prefer_floor": tirx.ceil(x - _double(0.5)),
        "round_prefer_ceil": tirx.floor(x + _double(0.5)),
    }
    return tirx.Cast("int32", whole[how])


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
    return _within(_rounded(x, named["rounding"]), _integer(before - 1))


def _resize(move: _Move, index: Index) -> tirx.Expr:
    positions: list[tirx.Expr] = []
    for axis, position in enumerate(index):
        sizes = (move.source.type.shape[axis], move.result.shape[axis])
        scale = float(move.named["scales"][axis])
        same = sizes[0] == sizes[1] and scale == 1
        chosen = position if same else _nearest(position, sizes, scale, move.named)
        positions.append(move.simplify(chosen))
    return move.source.read(positions)


RULES: dict[str, Callable[[_Move, Index], tirx.Expr]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": _expand,
    "gather": _gather,
    "cache_write": _cache_write,
    "resize_nearest": _resize,
    "interpolate": _interpolate,
}


def moved(step: Step, operands: list[Value], result: TensorType, simplify: Simplifier) -> Value:
    """The step's result as a value that reads its operands."""
    move = _Move(operands=operands, named=dict(step.attributes), result=result, simplify=simplify)
    rule = RULES[step.operator]
    return Value(result, lambda index: rule(move, list(index)))
