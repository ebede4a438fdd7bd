"""The kernel of attention of few queries.

parallel (batch, head of keys, tile of its rows)
  the tile's queries, scaled
  chunk of keys
    key
      depth
        row, vector of the key                     # unrolled
      row: sum over lanes
    mask, scores of the chunk, largest score so far
  row
    exponentials and their sum
  chunk of values
    key
      row, vector of values                        # register tile, unrolled
    epilogue of the tile

What follows the products is that of `attention_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from operator import add
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.attention_rows import AttentionRows, Body, Expr, accumulate
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.attention_in_place import SPEC, rows_of_keys


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    lanes = target.lanes(program.workload.computed_in)
    kept = SPEC.buffers(program.workload, program.settings, lanes)
    return program.begin(_AttentionInPlace(program, lanes, kept).function(resources.threads))


class _AttentionInPlace(AttentionRows):
    """Rows of a tile are queries of all heads that share keys."""

    @property
    def pieces(self) -> tuple[int, ...]:
        """Batch, heads of keys, and tiles of the rows that read them."""
        tiles = ceil(rows_of_keys(self.program.workload) / self.rows)
        return self.heads.batch, self.heads.key_heads, tiles

    def work(self, part: Expr) -> Iterator[Any]:
        """A tile of rows."""
        self.first = part * self.rows
        yield from self.attend()

    def seen(self, body: Body) -> Any:
        """`body` of all chunks of keys: few queries see nearly the same ones."""
        return self.chunks(self.heads.keys, self.key_vectors, body)

    def place(self, row: Any) -> tuple[Expr, Expr]:
        """The head of a row of the tile, and its query."""
        rows, queries = rows_of_keys(self.program.workload), self.heads.queries
        at = self.within(row, rows)
        head = tirx.floordiv(at, queries)
        return self.source * (rows // queries) + head, tirx.floormod(at, queries)

    kept = place

    def inside(self, row: int) -> None:
        """Every row: past the last one it is that again, with the same results."""

    def compared(self, chunk: Expr, vectors: int, last: int) -> list[Any]:
        """Products of the tile's rows with the keys of a vector, one key after the other."""
        heads, lanes, sums = self.heads, self.own["lanes"], self.own["sums"]

        def one(key: Expr) -> Any:
            def multiplied(step: Expr, _: int, width: int) -> Any:
                def element(r: int, _: int, lane: Expr) -> Any:
                    k = step * self.lanes + lane
                    at = [self.image, chunk * self.lanes + key, self.source * heads.depth + k]
                    value = self.own["scaled"][r, k] * self.keys.read(at)
                    return accumulate(lanes, [r, lane], value, add)

                return self.tile(1, element, width)

            return tirx.SeqStmt(
                [
                    self.tile(1, lambda r, _, lane: tirx.BufferStore(lanes, 0.0, [r, lane])),
                    self.chunks(heads.depth, 1, multiplied),
                    *(self.folded([r], lanes, add) for r in range(self.rows)),
                    *(tirx.BufferStore(sums, lanes[r, 0], [r, 0, key]) for r in range(self.rows)),
                ]
            )

        return [self.loop((vectors - 1) * self.lanes + last, one)]

    def value(self, chunk: Expr, key: Expr, column: Expr) -> Expr:
        """The value of a key in a column of a chunk of columns, where it lies."""
        first = chunk * (self.value_vectors * self.lanes)
        return self.values.read([self.image, key, self.source * self.heads.width + first + column])
