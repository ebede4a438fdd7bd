"""Kernels of direct convolution for few input channels.

block: rectangle of results, some output channels
  its part of the image and its filters            → shared memory, zero beyond the image
  input channel, row of taps
    rows of the image                              → registers, where columns lie beside each other
    tap
      columns of the image                         → registers, where they lie apart
      weights of the thread's channels             → registers
      rows × columns × channels: add up
  exchange of columns among lanes                  where that is chosen
  epilogue and results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as script

from tilewright.compiler.lower.cuda.exchanges import exchange
from tilewright.compiler.lower.cuda.statements import SINGLE, named, unrolled
from tilewright.compiler.lower.cuda.threads import Writer, integer, keep_after_anchor, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import unravelled
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.direct import AT_ONCE, spelt_out
from tilewright.kernels.cuda.direct_tiles import VECTOR, dealt, tiles_of

Expr = tirx.Expr
_Element = Callable[[Expr, Expr, Expr], tuple[Expr, Expr]]
"""Value and place in shared memory of an element, by its plane, its line and its place there."""
_Copied = tuple[Expr, Expr, list[Expr]]
"""Value and place of an element, and when there is one."""
_ZERO = tirx.const(0.0, SINGLE)


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    writer = Writer(program)
    with writer.function() as result:
        _Direct(writer).write(result)
    return writer.schedule()


class _Direct:
    """The statements of one kernel."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.program = writer, writer.program
        workload, forms = self.program.workload, self.program.candidate.forms
        self.tiles = tiles_of(workload, forms, self.program.settings)
        self.of, self.conv = self.tiles.of, self.tiles.of.conv
        self.image = self.program.operand(self.conv.data)
        self.filters = self.program.operand(self.conv.weight)
        self.vector = int(self.tiles.vector)
        self.total: Expr = _ZERO

    def write(self, result: tirx.Buffer) -> None:
        """The kernel, which ends with the result."""
        tiles, writer, simplify = self.tiles, self.writer, self.program.simplify
        with writer.launch(tiles.blocks, tiles.threads) as (block, thread):
            self.thread = thread
            self.number, self.group, *corner = unravelled(block, tiles.counts, simplify)
            self.corner = [place * size for place, size in zip(corner, tiles.tile, strict=True)]
            self.deep, self.down, self.across = (simplify(e) for e in tiles.place(thread))
            self.staged = writer.shared(tiles.image_elements, SINGLE, "image")
            self.weights = writer.shared(tiles.filter_elements, SINGLE, "filters")
            length, lines, planes = tiles.image_lines
            elements = self._elements(thread, length, lines, planes, self._of_image)
            self._copy(self.staged, elements)
            elements = self._elements(thread, *tiles.filter_lines, 1, self._of_filters)
            self._copy(self.weights, elements)
            writer.barrier()
            self._add_up()
            self._finish(result)

    # ----- copies ----------------------------------------------------------------------------

    def _elements(
        self, thread: Expr, length: int, lines: int, planes: int, element: _Element
    ) -> Iterator[_Copied]:
        """What a thread copies."""
        simplify, way = self.program.simplify, dealt(length, lines, self.tiles.threads)
        line, place = simplify.split(thread, way.width)
        for part in range(way.parts):
            along = place + part * way.width
            for plane in range(planes):
                for turn in range(way.turns):
                    down = line + turn * way.lines
                    last = (turn + 1) * way.lines > lines
                    asked = [
                        *([line < way.lines] if way.lines * way.width < self.tiles.threads else []),
                        *([along < length] if (part + 1) * way.width > length else []),
                        *([down < lines] if last else []),
                    ]
                    yield *element(integer(plane), down, along), asked

    def _copy(self, into: tirx.Buffer, elements: Iterator[_Copied]) -> None:
        """Copy elements, several of which are under way together."""
        writer, every = self.writer, list(elements)
        for first in range(0, len(every), AT_ONCE):
            several = every[first : first + AT_ONCE]
            fetched = writer.local(len(several), SINGLE, "fetched")
            for turn, (value, _, _) in enumerate(several):
                writer.store(fetched, value, [integer(turn)])
            for turn, (_, at, asked) in enumerate(several):
                with writer.when(*asked):
                    writer.store(into, read(fetched, integer(turn)), [at])

    def _of_image(self, c: Expr, y: Expr, along: Expr) -> tuple[Expr, Expr]:
        """An element of the block's part of the image; where channels are last, they lie along its
        lines."""
        tiles, conv, simplify = self.tiles, self.conv, self.program.simplify
        rows, _ = tiles.staged
        x = along
        if self.of.read_last:
            x, c = simplify.split(along, conv.group_in)
        _, top, left = self.corner
        row, on_rows = self._within(top * conv.strides[0] + y - conv.padding[0], conv.in_height)
        column, on_columns = self._within(
            left * conv.strides[1] + x - conv.padding[1], conv.in_width
        )
        value = self.image.read([self.number, self.group * conv.group_in + c, row, column])
        value = tirx.Select(tirx.all(on_rows, on_columns), value, _ZERO)
        place, phase = simplify.split(x, conv.strides[1])
        line = (c * rows + y) * tiles.line
        return value, simplify(line + phase * tiles.pitch + place)

    def _within(self, place: Expr, extent: int) -> tuple[Expr, Expr]:
        """The nearest place of an extent, and whether it is the one that was asked for: what is
        always read needs no branch."""
        simplify = self.program.simplify
        place = simplify(place)
        nearest = tirx.max(tirx.min(place, extent - 1), 0)
        return simplify(nearest), simplify(tirx.all(place >= 0, place < extent))

    def _of_filters(self, _: Expr, line: Expr, along: Expr) -> tuple[Expr, Expr]:
        """A weight of the block's filters: lines of output channels where they are packed, else
        lines of an output channel's weights."""
        tiles, conv, simplify = self.tiles, self.conv, self.program.simplify
        taps_down, taps_across = conv.kernel
        if self.of.packed:
            channel, weight = along, line
            ky, kx, c = unravelled(line, (taps_down, taps_across, conv.group_in), simplify)
        else:
            channel, weight = line, along
            c, ky, kx = unravelled(along, (conv.group_in, taps_down, taps_across), simplify)
        own, there = self._within(self.corner[0] + channel, conv.group_out)
        value = self.filters.read([self.group * conv.group_out + own, c, ky, kx])
        value = tirx.Select(there, value, _ZERO)
        return value, simplify(weight * tiles.filter_pitch + channel)

    def _weight(self, c: Expr, ky: Expr, kx: Any) -> Expr:
        """Where the weights of a tap for the channels of a block begin."""
        conv = self.conv
        if self.of.packed:
            place = (ky * conv.kernel[1] + kx) * conv.group_in + c
        else:
            place = (c * conv.kernel[0] + ky) * conv.kernel[1] + kx
        return self.program.simplify(place * self.tiles.filter_pitch)

    # ----- sums ------------------------------------------------------------------------------

    def _add_up(self) -> None:
        tiles, writer, conv = self.tiles, self.writer, self.conv
        self.sums = writer.local(tiles.sums, SINGLE, "sums")
        self.held = writer.local(int(tiles.held), SINGLE, "held")
        self.factors = writer.local(tiles.channels, SINGLE, "factors")
        with unrolled(tiles.sums, "i") as i:
            writer.store(self.sums, _ZERO, [i])
        rows = unrolled if spelt_out(tiles) else _looped
        with _looped(conv.group_in, "c") as c, rows(conv.kernel[0], "ky") as ky:
            writer.announce(c, conv.group_in)
            writer.announce(ky, conv.kernel[0])
            first = c * tiles.staged[0] + self.down * (tiles.rows * conv.strides[0])
            self._row(c, ky, (first + ky * conv.dilation[0]) * tiles.line)

    def _row(self, c: Expr, ky: Expr, line: Expr) -> None:
        """A channel's row of taps, for all rows of the thread; `line` is where that of its first
        one begins."""
        tiles, writer, of = self.tiles, self.writer, self.of
        below = tiles.line * self.conv.strides[0]
        begins: dict[int, int] = {}
        if tiles.beside:
            own = line + self.across * tiles.columns
            width = int(tiles.held) // tiles.rows
            begun = 0
            for phase, low, high in of.phases:
                low = low // self.vector * self.vector
                vectors = -(-(high + tiles.columns - low) // self.vector)
                begins[phase] = begun - low
                with (
                    unrolled(tiles.rows, "row") as row,
                    unrolled(vectors, "vector") as vector,
                    writer.vector(self.vector) as lane,
                ):
                    at = vector * self.vector + lane
                    source = own + row * below + phase * tiles.pitch + low + at
                    writer.store(self.held, read(self.staged, source), [row * width + begun + at])
                begun += vectors * self.vector
        for tap, (phase, shift) in enumerate(of.tap_places):
            self._fetch_weights(self._weight(c, ky, tap))
            if tiles.beside:
                self._multiply(lambda row, j, at=begins[phase] + shift: row * width + at + j)
                continue
            with (
                unrolled(tiles.rows, "row") as row,
                unrolled(tiles.columns, "j") as j,
            ):
                place = phase * tiles.pitch + shift + self.across + j * tiles.across
                value = read(self.staged, line + row * below + place)
                writer.store(self.held, value, [row * tiles.columns + j])
            self._multiply(lambda row, j: row * tiles.columns + j)

    def _fetch_weights(self, first: Expr) -> None:
        tiles, writer = self.tiles, self.writer
        with (
            unrolled(tiles.channels // VECTOR, "vector") as vector,
            writer.vector(VECTOR) as lane,
        ):
            value = read(self.weights, first + self._channel(self.deep, vector) + lane)
            writer.store(self.factors, value, [vector * VECTOR + lane])

    def _channel(self, deep: Expr, vector: Expr) -> Expr:
        """Where a vector of a thread's channels begins in those of its block."""
        return (vector * self.tiles.deep + deep) * VECTOR

    def _multiply(self, place: Callable[[Expr, Expr], Expr]) -> None:
        tiles, writer = self.tiles, self.writer
        with (
            unrolled(tiles.channels, "f") as f,
            unrolled(tiles.rows, "row") as row,
            unrolled(tiles.columns, "j") as j,
        ):
            at = self._sum(f, row, j)
            value = read(self.factors, f) * read(self.held, place(row, j))
            writer.store(self.sums, read(self.sums, at) + value, [at])

    def _sum(self, f: Expr, row: Expr, j: Expr) -> Expr:
        return (f * self.tiles.rows + row) * self.tiles.columns + j

    # ----- results ---------------------------------------------------------------------------

    def _finish(self, result: tirx.Buffer) -> None:
        """Write what the steps after the anchor make of the sums, in vectors where they lie side by
        side."""
        tiles, writer, program = self.tiles, self.writer, self.program
        program.set_anchor(lambda _: self.total)
        together = int(tiles.together)
        keep_after_anchor(writer, together)
        if tiles.turned > 1:
            self._exchanged(result, int(tiles.turned))
            return
        of_channels, of_columns = (together, 1) if self.of.written_last else (1, together)
        with (
            unrolled(tiles.channels // of_channels, "f") as f,
            unrolled(tiles.rows, "row") as row,
            unrolled(tiles.columns // of_columns, "j") as j,
        ):
            at = self._result(self.deep, self.down, f * of_channels, row, j * of_columns)
            with writer.when(*self._inside(*at)), writer.vector(together) as lane:
                c, w = (lane, integer(0)) if self.of.written_last else (integer(0), lane)
                place = self._sum(f * of_channels + c, row, j * of_columns + w)
                self._write(result, read(self.sums, place), at, c, w)

    def _exchanged(self, result: tirx.Buffer, width: int) -> None:
        """The same after lanes of the same columns, each of other rows or channels, have exchanged
        neighbours: each lane has one column of all of them then."""
        tiles, writer = self.tiles, self.writer
        given = script.buffer_proxy(writer.local(width, SINGLE, "given"))
        sent = script.buffer_proxy(writer.local(1, SINGLE, "sent"))
        line = tirx.floordiv(self.thread, tiles.across)
        own = tirx.floormod(line, width)
        with (
            unrolled(tiles.channels, "f") as f,
            unrolled(tiles.rows, "row") as row,
            unrolled(tiles.columns // width, "vector") as vector,
        ):
            for place in range(width):
                given[place] = read(self.sums, self._sum(f, row, vector * width + place))
            exchange(given, sent, line, int(tiles.across))
            with unrolled(width, "other") as other:
                deep, down = unravelled(
                    line - own + other, (tiles.deep, tiles.down), self.program.simplify
                )
                at = self._result(deep, down, f, row, vector * width + own)
                with writer.when(*self._inside(*at)):
                    self._write(result, given[other], at, integer(0), integer(0))

    def _result(self, deep: Expr, down: Expr, f: Expr, row: Expr, j: Expr) -> list[Expr]:
        """Channel of the group, row and column of a result of a thread that lies there."""
        tiles = self.tiles
        channel = self._channel(deep, tirx.floordiv(f, VECTOR)) + tirx.floormod(f, VECTOR)
        beside, apart = self.across * tiles.columns + j, self.across + j * tiles.across
        within = (channel, down * tiles.rows + row, beside if tiles.beside else apart)
        return [corner + place for corner, place in zip(self.corner, within, strict=True)]

    def _write(self, result: tirx.Buffer, total: Expr, at: list[Expr], c: Expr, w: Expr) -> None:
        """One result of a sum, some channels and columns beside a place."""
        self.total = total
        channel, y, x = at
        channel = self.group * self.conv.group_out + channel + c
        place = [self.number, channel, y, x + w]
        final = self.program.operand(len(self.program.workload.types) - 1)
        self.writer.store(result, final.read(place), place)

    def _inside(self, *at: Expr) -> list[Expr | bool]:
        conv = self.conv
        extents = (conv.group_out, conv.out_height, conv.out_width)
        return [
            place < extent if extent % size else True
            for place, extent, size in zip(at, extents, self.tiles.tile, strict=True)
        ]


def _looped(extent: int, name: str) -> AbstractContextManager[Expr]:
    return named(script.serial(0, extent), name)
