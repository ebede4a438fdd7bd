"""The kernel of attention in tile registers.

parallel (batch, heads that share keys, part of the queries)   # registers are set up once
  keys rounded, in chunks of columns; values as words of two, in chunks of columns
  head
    tile of queries
      the tile's queries, rounded
      chunk of keys that a query of the tile sees
        the product of the whole depth                         # one call, sums in tile registers
      query
        mask, largest score
        exponentials and their sum
      chunk of values
        the product of all keys that a query of the tile sees  # one call
        epilogue of the tile

Queries beyond the last one are in registers, but what follows the products passes them over.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from operator import add
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES, Tiles, tiles_text
from tilewright.compiler.lower.attention_bfloat16 import AttentionInHalves
from tilewright.compiler.lower.attention_rows import (
    NEVER,
    SERIAL,
    VECTOR,
    Body,
    Expr,
    accumulate,
    one_after_another,
)
from tilewright.compiler.lower.half_dots import rounding_function, rounding_text
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.quick_powers import LANES as POWERS_AT_ONCE
from tilewright.compiler.lower.quick_powers import POWER, power_text
from tilewright.compiler.lower.values import HALF_BITS
from tilewright.compiler.lower.word_squares import TURNED, turning_text
from tilewright.compiler.tile_setup import SET_UP
from tilewright.core.targets import Resources, Target
from tilewright.kernels.amx import LINE_BYTES, ROWS
from tilewright.kernels.attention_amx import DEPTH, LANES, SPEC
from tilewright.kernels.halves import PAIR, half_lanes

_ZERO = tirx.const(0, "int32")


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    lanes, rows = target.lanes(program.workload.computed_in), program.settings["tile_rows"]
    tiles = Tiles(kind=HALVES, rows=ROWS, down=rows // ROWS, out=1, lanes=LANES, depth=DEPTH)
    quick = lanes == POWERS_AT_ONCE and lanes in half_lanes(target)
    texts = [tiles_text(tiles, target), turning_text()]
    texts += [power_text(), rounding_text(lanes)] if quick else []
    marks = {"pragma_import_llvm": "".join(texts), SET_UP: tiles.function}
    kept = SPEC.buffers(program.workload, program.settings, lanes)
    kernel = _AttentionInTiles(program, lanes, kept, marks)
    kernel.multiplied_by, kernel.quick = tiles.function, quick
    return program.begin(kernel.function(resources.threads))


class _AttentionInTiles(AttentionInHalves):
    """Products are calls of the function `multiplied_by`; what is done to scores and results is
    done row by row, powers by instructions of their own where it is `quick`."""

    multiplied_by: str
    quick: bool
    slot = LANES

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.key_vectors = self.value_vectors = LANES // self.lanes

    # ----- loops -----------------------------------------------------------------------------

    def queries_there(self, body: Body) -> Any:
        """`body` of each row of the tile that is a query."""
        queries, row = self.heads.queries, tirx.Var("row", "int32")
        self.program.simplify.announce([row], [self.rows])
        rows = tirx.const(self.rows, "int32")
        there = tirx.min(rows, queries - self.first) if queries % self.rows else rows
        return tirx.For(row, _ZERO, there, SERIAL, body(row))

    def within(self, row: Any, rows: int) -> Expr:
        """The number of a row, of those that are queries."""
        return self.first + row

    def limit(self, row: Any) -> Expr:
        """The last key that a query sees. One that sees none has the first one, hidden."""
        return tirx.max(super().limit(row), 0)

    def chunks_seen(self) -> Expr:
        """How many chunks of keys the tile sees."""
        chunks = tirx.const(ceil(self.heads.keys / LANES), "int32")
        if not self.causal:
            return chunks
        return tirx.min(tirx.floordiv(self.limit(self.rows - 1), LANES) + 1, chunks)

    def seen(self, body: Body) -> Any:
        """`body` of the chunks of keys that the tile sees, all of them whole."""
        chunk = tirx.Var("chunk", "int32")
        self.program.simplify.announce([chunk], [ceil(self.heads.keys / LANES)])
        inner = body(chunk, self.key_vectors, self.lanes)
        return tirx.For(chunk, _ZERO, self.chunks_seen(), SERIAL, inner)

    # ----- calls -----------------------------------------------------------------------------

    def address(self, name: str, *place: Any) -> Expr:
        """Where an element of a buffer lies."""
        buffer, offset = self.own[name], _ZERO
        for extent, index in zip(buffer.shape, place, strict=True):
            offset = offset * extent + index
        return tirx.handle_add_byte_offset(buffer.data, offset * element_bytes(buffer))

    def line_bytes(self, name: str) -> int:
        """From one line of a buffer to the next."""
        return int(self.own[name].shape[-1]) * element_bytes(self.own[name])

    def sums_of(self, left: str, right: str, chunk: Expr, into: str, at: Expr) -> Any:
        """Sums of the tile, put there from a column on: its rows by a chunk of the right matrix."""
        a_line, c_line = self.line_bytes(left), self.line_bytes(into)
        steps = self.chunks_seen() if left == "weights" else a_line // LINE_BYTES
        return called(
            self.multiplied_by,
            *(self.address(left, 0, 0), a_line, a_line * ROWS),
            *(self.address(right, chunk, 0, 0), 0),
            *(self.address(into, 0, at), c_line, c_line * ROWS, 0),
            *(1, 0, 1, 0, steps, LINE_BYTES, 0, 0),
        )

    # ----- stages ----------------------------------------------------------------------------

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """Keys are rounded in rows, and squares of those turned; values are words of two rows."""
        if into == "lines":
            return super().copied(into, extent, vectors, value)
        line = self.line_bytes("rounded")

        def square(number: Expr, rows: int) -> Any:
            def turned(step: Expr) -> Any:
                chunk, half = tirx.floordiv(number, 2), tirx.floormod(number, 2)
                to = self.address(into, chunk, step * ROWS, half * (ROWS * PAIR))
                start = self.address("rounded", 0, step * DEPTH)
                return called(TURNED, start, line, to, self.line_bytes(into))

            def row(at: Expr) -> Any:
                key = number * ROWS + at
                return self.halves("rounded", at, lambda k: mathematics.half(value(key, k)))

            return one_after_another([self.loop(rows, row), self.loop(line // LINE_BYTES, turned)])

        squares, rest = divmod(extent, ROWS)
        found = [self.loop(squares, lambda at: square(at, ROWS))] if squares else []
        found += [square(tirx.const(squares, "int32"), rest)] if rest else []
        return one_after_another(found)

    def halves(self, into: str, row: Expr, value: Body) -> Any:
        """A row of a buffer: halves along the depth, zeros behind them."""
        buffer, depth = self.own[into], self.heads.depth
        zero, missing = tirx.const(0, HALF_BITS), int(buffer.shape[1]) - depth

        def store(k: Expr, half: Expr) -> Any:
            return tirx.BufferStore(buffer, half, [row, k])

        found = [self.strips(depth, lambda k: store(k, value(k)))]
        found += [self.strips(missing, lambda k: store(depth + k, zero))] if missing else []
        return one_after_another(found)

    def attend(self) -> Iterator[Any]:
        """A tile: its queries, scores, exponentials and results."""
        yield self.queries_there(
            lambda row: self.halves("scaled", row, lambda k: self.asked(row, k))
        )
        yield self.seen(self.scored)
        yield self.queries_there(self.hidden)
        yield self.queries_there(self.weighed)
        yield self.chunks(self.heads.width, self.value_vectors, self.summed)

    def scored(self, chunk: Expr, vectors: int, last: int) -> Any:
        """Scores of a chunk of keys."""
        return self.sums_of("scaled", "columns", chunk, "scores", chunk * LANES)

    def hidden(self, row: Expr) -> Any:
        """Scores of a query as masks make them, none beyond the last key."""
        scores = self.own["scores"]

        def chunk(number: Expr, vectors: int, last: int) -> Any:
            first, keys = number * LANES, (vectors - 1) * self.lanes + last

            def masked(lane: Expr) -> Any:
                at = [row, first + lane]
                return tirx.BufferStore(scores, self.masked(scores[tuple(at)], row, at[1]), at)

            def beyond(lane: Expr) -> Any:
                return tirx.BufferStore(scores, NEVER, [row, first + keys + lane])

            found = [self.strips(keys, masked)]
            found += [self.strips(LANES - keys, beyond)] if keys < LANES else []
            return one_after_another(found)

        return super().seen(chunk)

    def weighed(self, row: Expr) -> Any:
        """The largest score of a query, and exponentials."""
        scores, largest = self.own["scores"], self.own["largest"]

        def larger(vector: Expr, lane: Expr) -> Any:
            value = scores[row, vector * self.lanes + lane]
            return accumulate(largest, [row, lane], value, tirx.max)

        start = self.loop(
            self.lanes, lambda lane: tirx.BufferStore(largest, NEVER, [row, lane]), VECTOR
        )
        found = self.every_vector(
            lambda vector: self.loop(self.lanes, lambda lane: larger(vector, lane), VECTOR)
        )
        return one_after_another([start, found, self.powers(row)])

    def power(self, row: Expr, vector: Expr) -> Any:
        """Exponentials of a vector of scores, as exact as halves are where that is quick."""
        if not self.quick:
            return super().power(row, vector)
        scores, weights, largest, total = (
            self.own[n] for n in ("scores", "weights", "largest", "total")
        )
        at, each = (tirx.Ramp(first, 1, self.lanes) for first in (vector * self.lanes, _ZERO))
        beside = scores[row, at] - tirx.Broadcast(largest[row, 0], self.lanes)
        kinds, found = [f"{kind}x{self.lanes}" for kind in ("float32", HALF_BITS)], scores[row, at]
        half = tirx.call_pure_extern(kinds[1], rounding_function(self.lanes), found)
        return tirx.SeqStmt(
            [
                tirx.BufferStore(scores, tirx.call_pure_extern(kinds[0], POWER, beside), [row, at]),
                accumulate(total, [each], found, add),
                tirx.BufferStore(weights, half, [row, at]),
            ]
        )

    def summed(self, chunk: Expr, vectors: int, last: int) -> Any:
        """The results of a tile in a chunk of columns."""
        sums = self.own["sums"]

        def row(at: Expr) -> Any:
            return self.strips(
                (vectors - 1) * self.lanes + last,
                lambda lane: self.written(at, chunk, lane, sums[at, lane]),
            )

        product = self.sums_of("weights", "lines", chunk, "sums", _ZERO)
        return one_after_another([product, self.queries_there(row)])


def called(name: str, *arguments: Any) -> Any:
    """A call of a function of imported text, of addresses and numbers."""
    given = [
        each if isinstance(each, Call) else tirx.Cast("int64", tirx.convert(each))
        for each in arguments
    ]
    return tirx.Evaluate(tirx.call_extern("int32", name, *given))


def element_bytes(buffer: Any) -> int:
    """Of an element of a buffer."""
    return tvm.DataType(str(buffer.dtype)).bits // 8
