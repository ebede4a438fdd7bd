"""Values inside a kernel: something that can be read at logical indices, wherever it is stored."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.ir import Range
from tvm.sym import Analyzer

from tilewright.compiler.lower import mathematics
from tilewright.core.forms import Form, number_layout
from tilewright.core.layouts import Layout
from tilewright.graph.network import TensorType
from tilewright.kernels.base import HALF

Index = Sequence[tirx.Expr]
Read = Callable[[Index], tirx.Expr]


@dataclass(frozen=True, slots=True)
class Value:
    """A logical tensor; `read` gives the expression at logical indices."""

    type: TensorType
    read: Read


class Simplifier:
    """Simplifies index expressions over variables whose ranges were announced."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._paused = False

    def announce(self, variables: Index, shape: Sequence[int]) -> None:
        """Tell the extent of each variable."""
        for variable, extent in zip(variables, shape, strict=True):
            self._analyzer.bind(variable, Range(0, extent))

    @contextmanager
    def pausing(self) -> Generator[None]:
        """Leave expressions as they are meanwhile: TVM cannot simplify what reads a tensor."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __call__(self, expression: tirx.Expr | int) -> tirx.Expr:
        if isinstance(expression, int):
            return tirx.const(expression, "int32")
        return expression if self._paused else self._analyzer.simplify(expression)

    def split(self, position: tirx.Expr, size: int) -> tuple[tirx.Expr, tirx.Expr]:
        """position → (position // size, position % size)"""
        return self(tirx.floordiv(position, size)), self(tirx.floormod(position, size))


def physical_index(
    layout: Layout, index: Index, shape: tuple[int, ...], simplify: Simplifier
) -> list[tirx.Expr]:
    """(n, c, h, w) → (n, c // 16, h, w, c % 16) in blocks of sixteen channels."""
    parts = layout.parts(shape)
    found: list[tirx.Expr] = []
    for axis, part in layout.places(len(shape)):
        place, cut = index[axis], parts[axis]
        inner = prod(cut[part + 1 :])
        if len(cut) > 1:
            whole = place if inner == 1 else tirx.floordiv(place, inner)
            place = simplify(tirx.floormod(whole, cut[part]) if part > 0 else whole)
        found.append(place)
    return found


def logical_index(layout: Layout, position: Index, shape: tuple[int, ...]) -> list[tirx.Expr]:
    """(n, chunk, h, w, lane) → (n, chunk * 16 + lane, h, w): the inverse of `physical_index`."""
    parts = layout.parts(shape)
    found: dict[int, tirx.Expr] = {}
    for (axis, part), place in zip(layout.places(len(shape)), position, strict=True):
        inner = prod(parts[axis][part + 1 :])
        term = place if part == len(parts[axis]) - 1 else place * inner
        found[axis] = found[axis] + term if axis in found else term
    return [found[axis] for axis in range(len(shape))]


HALF_BITS = "uint16"
"""What numbers in bfloat16 are for TVM, which makes singles of bfloat16 wherever it can."""


def bits(form: Form, own: str) -> str:
    """The element type in memory, as kernels declare it, of a tensor whose own type is `own`."""
    return HALF_BITS if form.dtype == HALF else form.element(own)


def stored(tensor: te.Tensor, kind: TensorType, form: Form, simplify: Simplifier) -> Value:
    """A tensor in memory, read through its layout; halves are widened."""
    layout = number_layout(form)

    def read(index: Index) -> tirx.Expr:
        found = tensor(*physical_index(layout, index, kind.shape, simplify))
        return mathematics.out_of_half(found, form.dtype)

    return Value(kind, read)


def pointwise(rule: Callable[..., tirx.Expr], *values: Value) -> Value:
    """`rule` of the elements of values of one shape at the same place."""
    return Value(values[0].type, lambda index: rule(*(value.read(index) for value in values)))


def in_type(value: Value, dtype: str) -> Value:
    """The value in another element type."""
    if value.type.dtype == dtype:
        return value
    return Value(
        TensorType(value.type.shape, dtype),
        lambda index: mathematics.converted(value.read(index), dtype),
    )


def broadcast(value: Value, kind: TensorType) -> Value:
    """The value repeated along the axes of `kind` that it lacks or has once."""
    return Value(kind, lambda index: value.read(broadcast_index(index, value.type.shape)))


def bordered(data: Value, padding: tuple[int, ...], filler: float = 0) -> Value:
    """The data at positions that count a border of `filler` around its last two axes; `padding` is
    top, left, bottom, right."""
    top, left, bottom, right = padding
    *lead, height, width = data.type.shape

    def read(index: Index) -> tirx.Expr:
        *front, y, x = index
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        value = data.read([*front, y - top, x - left])
        return tirx.if_then_else(inside, value, tirx.const(filler, data.type.dtype))

    shape = (*lead, height + top + bottom, width + left + right)
    return Value(TensorType(shape, data.type.dtype), read)


def selected(values: Sequence[Any], position: tirx.Expr, dtype: str) -> tirx.Expr:
    """values[position] as selections; a constant once `position` is unrolled."""
    *others, result = (tirx.const(float(value), dtype) for value in values)
    for number, value in reversed(list(enumerate(others))):
        result = tirx.Select(position == number, value, result)
    return result


def stepped(values: Sequence[int], position: tirx.Expr) -> tirx.Expr:
    """values[position] as a sum of steps, which TVM knows to be one number at each position, as it
    does not of selections: what is read there may be given to an instruction."""
    result = tirx.const(values[0], "int32")
    for number, (before, value) in enumerate(pairwise(values), 1):
        step = tirx.min(tirx.max(position - (number - 1), 0), 1)
        result = result + step * (value - before)
    return result


def unravelled(position: tirx.Expr, sizes: Sequence[int], simplify: Simplifier) -> list[tirx.Expr]:
    """Row by row, the place along each axis of what lies at a flat position."""
    found: list[tirx.Expr] = []
    for extent in reversed(sizes):
        found.append(simplify(tirx.floormod(position, extent) if extent > 1 else 0))
        position = simplify(tirx.floordiv(position, extent))
    return found[::-1]


def broadcast_index(index: Index, shape: tuple[int, ...]) -> list[tirx.Expr]:
    """Indices into an operand of `shape` for a position of the (larger) broadcast result."""
    zero = tirx.const(0, "int32")
    trailing = list(index)[len(index) - len(shape) :]
    return [
        zero if extent == 1 else position for position, extent in zip(trailing, shape, strict=True)
    ]


def filled(
    read: Callable[[tirx.Expr], tirx.Expr], at: tirx.Expr, length: int, terms: int
) -> tirx.Expr:
    """What `read` gives at a place along an axis of a length; zero behind it, where the last of
    slots of so many terms is not full."""
    if length % terms == 0:
        return read(at)
    value = read(tirx.min(at, length - 1))
    return tirx.Select(at < length, value, tirx.const(0, value.ty.dtype))
