"""Where products find their factors, and where their results lie: one class per anchor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.lower.anchors import widened
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import (
    Value,
    broadcast_index,
    in_type,
    selected,
    unravelled,
)
from tilewright.kernels.base import anchored
from tilewright.kernels.conv2d_transposed import transposed_convolution
from tilewright.kernels.convolution import convolution
from tilewright.kernels.cuda.product_tiles import Product, Tiles

Expr = Any
Depth = Sequence[Expr]
"""A place along each axis of the depth."""
Factor = tuple[Expr, list[Expr]]
"""A value, and the conditions beside the extents of the product under which it is not zero."""


Operands = tuple[Value, Value]


def factors_of(program: Program, shape: Product, tiles: Tiles, operands: Operands) -> Factors:
    """The factors of a program whose anchor is a product, which is cut into these tiles."""
    kind = _BY_ANCHOR[anchored(program.workload)[0].operator]
    return kind(program, shape, tiles, operands)


def in_singles(program: Program) -> Operands:
    """The operands of a program's product in single precision."""
    left, right, *_ = (
        in_type(widened(program.operand(value)), "float32")
        for value in anchored(program.workload)[0].inputs[:2]
    )
    return left, right


class Factors(ABC):
    """The operands of a product by matrix, row, column and depth."""

    shape: tuple[int, ...]
    """Of the depth: its extent alone, or channels, and taps down and across."""

    def __init__(self, program: Program, shape: Product, tiles: Tiles, operands: Operands) -> None:
        step, _, self.kind = anchored(program.workload)
        self.product, self.tiles = shape, tiles
        self.shape = (shape.depth,)
        self.named, self.simplify = step.named, program.simplify
        self.first, self.second = operands

    def place(self, step: Expr, depth: Expr, lane: Expr = 0) -> Depth:
        """A place in the depth: what lies so deep in a step, of a vector from there on that of a
        lane. Vectors of channels have the tap of their first lane, so that nothing that is asked of
        a tap is asked of each lane."""
        if self.tiles.by_taps:
            chunk, tap = self.simplify.split(step, self.product.taps)
            return [chunk * self.tiles.depth + depth + lane, *self.split(tap, self.shape[1:])]
        first = step * self.tiles.depth + depth
        if not self.product.taps_outside:
            return self.split(first + lane, self.shape)
        *tap, channel = self.split(first, (*self.shape[1:], self.shape[0]))
        return [channel + lane, *tap]

    def inside(self, step: Expr, depth: Expr) -> list[Expr]:
        """Conditions under which the depth has such a place."""
        if not self.tiles.overruns(self.product):
            return []
        if self.tiles.by_taps:
            return [self.place(step, depth)[0] < self.shape[0]]
        return [step * self.tiles.depth + depth < self.product.depth]

    @abstractmethod
    def left(self, matrix: Expr, row: Expr, k: Depth) -> Factor:
        """A factor of the left matrix."""

    @abstractmethod
    def right(self, matrix: Expr, col: Expr, k: Depth) -> Factor:
        """A factor of the right matrix."""

    @abstractmethod
    def index(self, matrix: Expr, row: Expr, col: Expr) -> list[Expr]:
        """Where a result lies."""

    def beyond(self, matrix: Expr, index: Sequence[Expr]) -> list[Expr]:
        """Conditions under which a place is one of the result, beside the extents."""
        return []

    def split(self, position: Expr, sizes: Sequence[int]) -> list[Expr]:
        """The place along each of several axes."""
        return unravelled(position, sizes, self.simplify)


class _Dense(Factors):
    def left(self, matrix: Expr, row: Expr, k: Depth) -> Factor:
        return self.first.read([*self.split(row, self.first.type.shape[:-1]), *k]), []

    def right(self, matrix: Expr, col: Expr, k: Depth) -> Factor:
        return self.second.read([*k, col]), []

    def index(self, matrix: Expr, row: Expr, col: Expr) -> list[Expr]:
        return [*self.split(row, self.kind.shape[:-1]), col]


class _BatchMatmul(Factors):
    def left(self, matrix: Expr, row: Expr, k: Depth) -> Factor:
        return self.first.read([*self._leading(matrix, self.first), row, *k]), []

    def right(self, matrix: Expr, col: Expr, k: Depth) -> Factor:
        inner = [col, *k] if self.named["transpose_b"] else [*k, col]
        return self.second.read([*self._leading(matrix, self.second), *inner]), []

    def index(self, matrix: Expr, row: Expr, col: Expr) -> list[Expr]:
        return [*self.split(matrix, self.kind.shape[:-2]), row, col]

    def _leading(self, matrix: Expr, operand: Any) -> list[Expr]:
        leading = self.split(matrix, self.kind.shape[:-2])
        return broadcast_index(leading, operand.type.shape[:-2])


class _Conv2d(Factors):
    def __init__(self, program: Program, shape: Product, tiles: Tiles, operands: Operands) -> None:
        super().__init__(program, shape, tiles, operands)
        self.conv = conv = convolution(program.workload)
        self.shape = (shape.channels, *conv.kernel)

    def left(self, matrix: Expr, row: Expr, k: Depth) -> Factor:
        conv = self.conv
        image, *place = self.split(row, (conv.batch, conv.out_height, conv.out_width))
        channel, *tap = k
        at, inside = list[Expr](), list[Expr]()
        for axis, extent in enumerate((conv.in_height, conv.in_width)):
            before = conv.padding[axis]
            reached = (self.kind.shape[2 + axis] - 1) * conv.strides[axis]
            last = reached + (conv.kernel[axis] - 1) * conv.dilation[axis] - before
            position = place[axis] * conv.strides[axis] + tap[axis] * conv.dilation[axis] - before
            at.append(position)
            inside += [position >= 0] if before else []
            inside += [position < extent] if last >= extent else []
        return self.first.read([image, matrix * conv.group_in + channel, *at]), inside

    def right(self, matrix: Expr, col: Expr, k: Depth) -> Factor:
        conv = self.conv
        return self.second.read([matrix * conv.group_out + col, *k]), []

    def index(self, matrix: Expr, row: Expr, col: Expr) -> list[Expr]:
        conv = self.conv
        image, *place = self.split(row, (conv.batch, conv.out_height, conv.out_width))
        return [image, matrix * conv.group_out + col, *place]


class _Conv2dTranspose(Factors):
    """A matrix is a group and a phase down and across."""

    def __init__(self, program: Program, shape: Product, tiles: Tiles, operands: Operands) -> None:
        super().__init__(program, shape, tiles, operands)
        self.conv = conv = transposed_convolution(program.workload)
        self.axes = (conv.rows, conv.columns)
        self.matrices = (conv.groups, *(axis.count for axis in self.axes))
        self.shape = (conv.group_in, *(axis.taps for axis in self.axes))

    def left(self, matrix: Expr, row: Expr, k: Depth) -> Factor:
        group, *phase = self.split(matrix, self.matrices)
        image, *place = self._place(row)
        channel, *tap = k
        at, inside = list[Expr](), list[Expr]()
        for axis, p, q, t in zip(self.axes, phase, place, tap, strict=True):
            position = q + selected(axis.base, p, "int32") - t * axis.advance
            at.append(position)
            inside += [position >= 0, position < axis.extent]
        return self.first.read([image, group * self.conv.group_in + channel, *at]), inside

    def right(self, matrix: Expr, col: Expr, k: Depth) -> Factor:
        group, *phase = self.split(matrix, self.matrices)
        channel, *tap = k
        at, inside = list[Expr](), list[Expr]()
        for axis, p, t in zip(self.axes, phase, tap, strict=True):
            none = axis.kernel
            first = [none if it is None else it for it in axis.first]
            position = selected(first, p, "int32") + t * axis.period
            at.append(position)
            inside.append(position < axis.kernel)
        return self.second.read([group * self.conv.group_in + channel, col, *at]), inside

    def index(self, matrix: Expr, row: Expr, col: Expr) -> list[Expr]:
        group, *phase = self.split(matrix, self.matrices)
        image, *place = self._place(row)
        at = [q * axis.count + p for axis, p, q in zip(self.axes, phase, place, strict=True)]
        return [image, group * self.conv.group_out + col, *at]

    def beyond(self, matrix: Expr, index: Sequence[Expr]) -> list[Expr]:
        extents = self.kind.shape[2:]
        pairs = zip(self.axes, index[2:], extents, strict=True)
        return [at < extent for axis, at, extent in pairs if extent % axis.count]

    def _place(self, row: Expr) -> list[Expr]:
        return self.split(row, (self.conv.batch, *(axis.positions for axis in self.axes)))


_BY_ANCHOR: dict[str, type[Factors]] = {
    "dense": _Dense,
    "batch_matmul": _BatchMatmul,
    "conv2d": _Conv2d,
    "conv2d_transpose": _Conv2dTranspose,
}
