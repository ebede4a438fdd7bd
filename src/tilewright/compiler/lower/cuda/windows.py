"""Kernels of pooling and depthwise convolution.

block: rectangles of results                       (its input copied to shared memory, which is
                                                    waited for once where copies are asynchronous)
  thread: one of them
    for each row of its input: into registers         (several channels at once where they are last)
      for each row of results and taps that read it: combine
    results
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import pool_divisor, pool_filler
from tilewright.compiler.lower.cuda.copies import awaited, copied, grouped
from tilewright.compiler.lower.cuda.threads import Writer, integer, keep_after_anchor, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, in_type, unravelled
from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.windows import ASYNCHRONOUS, Rectangles, rectangles_of, staged_type

Expr = tirx.Expr
_Tap = Callable[[Expr, Expr, Expr], Expr]
"""The input so many rows and columns from the first one that a thread reads, of one of its
channels."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    writer, workload, forms = Writer(program), program.workload, program.candidate.forms
    with writer.function() as result:
        _Window(writer, rectangles_of(workload, forms, program.settings)).write(result)
    return writer.schedule()


class _Window:
    """One thread's rectangle: where it is, its input, and what becomes of it."""

    def __init__(self, writer: Writer, shape: Rectangles) -> None:
        self.writer, self.program, self.shape = writer, writer.program, shape
        self.window, workload = shape.window, writer.program.workload
        step = workload.anchor
        self.named = dict(step.attributes)
        self.kind = staged_type(workload)
        self.largest = step.operator == "max_pool2d"
        filler = 0 if self.window.weighted else pool_filler(self.named, self.kind)
        self.filler = tirx.const(filler, self.kind)
        data, *weights = [self.program.operand(value) for value in step.inputs]
        self.source = data.type
        self.data = in_type(data, self.kind)
        self.weights = in_type(weights[0], self.kind) if weights else None
        staged = self.program.settings.get("staged")
        self.lanes, self.staged = shape.lanes, bool(staged)
        self.asynchronous = staged == ASYNCHRONOUS
        self.image = self.channel = self.top = self.left = integer(0)

    def write(self, result: tirx.Buffer) -> None:
        """The kernel, which ends with the result."""
        shape, window, writer = self.shape, self.window, self.writer
        simplify = self.program.simplify
        if self.staged:
            with writer.launch(prod(shape.tiles), shape.threads) as (block, thread):
                planes, down, across = unravelled(block, shape.tiles, simplify)
                held = (shape.planes, shape.down, shape.across)
                corner = [planes * shape.planes, down * shape.down, across * shape.across]
                buffer = self._stage(thread, corner)
                own = unravelled(thread, held, simplify)
                plane, self.top, self.left = (a + b for a, b in zip(corner, own, strict=True))
                self.image, self.channel = self._channel(plane)
                used = prod(held)
                idle = True if used == shape.threads else thread < used
                exact = window.planes % shape.planes == 0
                here = True if exact else plane < window.planes
                with writer.when(idle, here):
                    self._rectangle(result, lambda y, x, _: self._staged_tap(buffer, own, y, x))
            return
        total = prod(shape.items)
        with writer.launch(-(-total // shape.threads), shape.threads) as (block, thread):
            item = block * shape.threads + thread
            first, self.top, self.left, *group = unravelled(item, shape.items, simplify)
            if window.last:
                self.image, self.channel = first, group[0] * self.lanes
            else:
                self.image, self.channel = self._channel(first)
            with writer.when(True if total % shape.threads == 0 else item < total):
                self._rectangle(result, self._own_tap)

    # ----- input -----------------------------------------------------------------------------

    def _channel(self, plane: Expr) -> tuple[Expr, Expr]:
        """Image and channel of a plane of results."""
        return self.program.simplify.split(plane, self.program.workload.result.shape[1])

    def _input(self, y: Expr, x: Expr) -> tuple[Expr, Expr]:
        """The row and column of the input that lie so far from the first ones of the thread."""
        shape, window = self.shape, self.window
        down, across = shape.rows * window.strides[0], shape.columns * window.strides[1]
        top, left = window.padding
        return self.top * down + y - top, self.left * across + x - left

    def _own_tap(self, y: Expr, x: Expr, lane: Expr) -> Expr:
        return self._tap((self.image, self.channel + lane), *self._input(y, x))

    def _tap(self, at: tuple[Expr, Expr], row: Expr, column: Expr) -> Expr:
        """The input of an image and a channel at a row and a column, which may lie in the
        border."""
        return tirx.if_then_else(*self._place(at, row, column), self.filler)

    def _place(self, at: tuple[Expr, Expr], row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Whether a place is none in the border, and what is there."""
        window, (image, channel) = self.window, at
        channel = self.program.simplify(tirx.floordiv(channel, window.multiplier))
        inside = tirx.all(row >= 0, row < window.in_height, column >= 0, column < window.in_width)
        return inside, self.data.read([image, channel, row, column])

    def _stage(self, thread: Expr, corner: list[Expr]) -> tirx.Buffer:
        """The input of the block's rectangles in shared memory, whose first one is at `corner`."""
        shape, window, writer = self.shape, self.window, self.writer
        planes, rows, columns = shape.staged
        size = planes * rows * columns
        buffer = writer.shared(size, self.kind, "staged")
        down, across = shape.rows * window.strides[0], shape.columns * window.strides[1]
        with writer.serial(-(-size // shape.threads)) as turn:
            number = turn * shape.threads + thread
            plane, y, x = unravelled(number, (planes, rows, columns), self.program.simplify)
            source = corner[0] + plane
            exact = window.planes % shape.planes == 0
            there = True if exact else source < window.planes
            within = True if size % shape.threads == 0 else number < size
            with writer.when(within, there):
                row = corner[1] * down + y - window.padding[0]
                column = corner[2] * across + x - window.padding[1]
                if self.asynchronous:
                    self._copy(buffer, number, *self._place(self._channel(source), row, column))
                else:
                    writer.store(buffer, self._tap(self._channel(source), row, column), [number])
        if self.asynchronous:
            grouped()
            awaited(0)
        writer.barrier()
        return buffer

    def _copy(self, buffer: tirx.Buffer, number: Expr, inside: Expr, value: Expr) -> None:
        """Begin to copy an element, or write the border."""
        places = tirx.address_of(read(buffer, number)), tirx.address_of(value)
        if self.window.weighted:
            copied(*places, 1, [inside])
            return
        self.writer.either(
            inside,
            lambda: copied(*places, 1, []),
            lambda: self.writer.store(buffer, self.filler, [number]),
        )

    def _staged_tap(self, buffer: tirx.Buffer, own: list[Expr], y: Expr, x: Expr) -> Expr:
        shape, window = self.shape, self.window
        _, rows, columns = shape.staged
        plane, down, across = own
        row = plane * rows + down * (shape.rows * window.strides[0]) + y
        return read(buffer, row * columns + across * (shape.columns * window.strides[1]) + x)

    # ----- results ---------------------------------------------------------------------------

    def _rectangle(self, result: tirx.Buffer, tap: _Tap) -> None:
        """Combine the windows of the rectangle and write it."""
        shape, writer = self.shape, self.writer
        size = shape.rows * shape.columns * self.lanes
        total = writer.local(size, self.kind, "total")
        with writer.unrolled(size) as cell:
            writer.store(total, self.filler, [cell])
        if self.window.spelt_out:
            self._spelt_out(total, tap)
        else:
            self._looped(total, tap)
        self._finish(result, total)

    def _combine(self, total: tirx.Buffer, cell: Expr, value: Expr, weight: Expr | None) -> None:
        before = read(total, cell)
        if weight is not None:
            value = value * weight
        after = tirx.max(before, value) if self.largest else before + value
        self.writer.store(total, after, [cell])

    def _weight(self, ky: Expr, kx: Expr, lane: Expr) -> Expr | None:
        if self.weights is None:
            return None
        return self.weights.read([self.channel + lane, integer(0), ky, kx])

    def _looped(self, total: tirx.Buffer, tap: _Tap) -> None:
        window = self.window
        with self.writer.serial(window.kernel[0]) as ky, self.writer.serial(window.kernel[1]) as kx:
            value = tap(ky * window.dilation[0], kx * window.dilation[1], integer(0))
            self._combine(total, integer(0), value, self._weight(ky, kx, integer(0)))

    def _spelt_out(self, total: tirx.Buffer, tap: _Tap) -> None:
        """Row by row of the input, each of which several rows of results read."""
        shape, window, writer, lanes = self.shape, self.window, self.writer, self.lanes
        (taps_down, taps_across), (apart, aside) = window.kernel, window.dilation
        weights = None
        if self.weights is not None:
            weights = writer.local(window.taps * lanes, self.kind, "weights")
            with (
                writer.unrolled(taps_down) as ky,
                writer.unrolled(taps_across) as kx,
                writer.vector(lanes) as lane,
            ):
                weight = self._weight(ky, kx, lane)
                writer.store(weights, weight, [(ky * taps_across + kx) * lanes + lane])
        columns = range(shape.columns)
        used = {j * window.strides[1] + kx * aside for j in columns for kx in range(taps_across)}
        line = writer.local(window.span(1, shape.columns) * lanes, self.kind, "line")
        for y in range(window.span(0, shape.rows)):
            readers = [
                (row, ky)
                for row in range(shape.rows)
                for ky in range(taps_down)
                if row * window.strides[0] + ky * apart == y
            ]
            for x in sorted(used) if readers else ():
                with writer.vector(lanes) as lane:
                    value = tap(integer(y), integer(x), lane)
                    writer.store(line, value, [integer(x) * lanes + lane])
            for row, ky in readers:
                with (
                    writer.unrolled(taps_across) as kx,
                    writer.unrolled(shape.columns) as j,
                    writer.unrolled(lanes) as lane,
                ):
                    of_tap = (ky * taps_across + kx) * lanes + lane
                    weight = None if weights is None else read(weights, of_tap)
                    value = read(line, (j * window.strides[1] + kx * aside) * lanes + lane)
                    self._combine(total, (row * shape.columns + j) * lanes + lane, value, weight)

    def _finish(self, result: tirx.Buffer, total: tirx.Buffer) -> None:
        """Write what the steps after the anchor make of the rectangle, in vectors where its rows
        are such."""
        shape, window, writer, program = self.shape, self.window, self.writer, self.program
        workload = program.workload
        kind = workload.step_types(workload.anchor_index)[1].dtype
        cell: list[Expr] = [integer(0)]

        def value(at: Index) -> Expr:
            found = read(total, cell[0])
            if not self.largest and not window.weighted:
                found = found / pool_divisor(at, self.named, self.source, self.kind)
            return mathematics.converted(found, kind)

        program.set_anchor(value)
        staged, beside = self.staged, shape.columns in (2, 4) and not window.last
        lanes = shape.columns if beside and self._takes_vectors() else 1
        keep_after_anchor(writer, max(lanes, self.lanes))
        final = program.operand(len(workload.types) - 1)
        with writer.unrolled(shape.rows) as row:
            y = self.top * shape.rows + row
            whole = window.height % (shape.rows * (shape.down if staged else 1)) == 0
            there = writer.when(True if whole else y < window.height)
            with there, writer.unrolled(shape.columns // lanes) as group:
                first = self.left * shape.columns + group * lanes
                whole = window.width % (shape.columns * (shape.across if staged else 1)) == 0
                inside = writer.when(True if whole else first < window.width)
                with inside, writer.vector(max(lanes, self.lanes)) as lane:
                    x, c = (integer(0), lane) if window.last else (lane, integer(0))
                    cell[0] = (row * shape.columns + group * lanes + x) * self.lanes + c
                    at = [self.image, self.channel + c, y, first + x]
                    writer.store(result, final.read(at), at)

    def _takes_vectors(self) -> bool:
        """Whether rows of rectangles lie side by side, in types that TVM prints vectors of."""
        kinds = {kind.dtype for kind in self.program.workload.types} | {self.kind}
        printed = all(kind == "float16" or element_type(kind).bytes == 4 for kind in kinds)
        return printed and self.window.width % self.shape.columns == 0
