"""The kernel of attention.

parallel (batch, heads that share keys, part of the queries)
  keys as columns, in chunks; values in chunks of columns
  head
    tile of queries
      the tile's queries, scaled
      chunk of keys that a query of the tile sees
        depth
          query, vector of keys                  # register tile, unrolled
        mask, scores of the chunk, largest score so far
      query
        exponentials and their sum
      chunk of values
        key that a query of the tile sees
          query, vector of values                # register tile, unrolled
        epilogue of the tile

The loops are written as statements and not as schedules of stages, for what a query sees bounds
them. The last tile may reach past the last query: it then computes that one again and drops the
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, inf, prod
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import masked_score
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import bits, broadcast_index, stored, unravelled
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.kernels.attention import SPEC, extents

Expr = Any
Body = Callable[..., Any]
SERIAL, _PARALLEL, VECTOR = (
    tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED
)  # fmt: skip


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    lanes = target.lanes(program.workload.computed_in)
    kept = SPEC.buffers(program.workload, program.settings, lanes)
    return program.begin(AttentionRows(program, lanes, kept).function(resources.threads))


def _float(value: float) -> Expr:
    return tirx.const(value, "float32")


def one_after_another(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt([*statements])


def accumulate(buffer: Any, at: list[Any], value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The combination of an element of a buffer with a value, put in its place."""
    return tirx.BufferStore(buffer, combine(buffer[tuple(at)], value), at)


NEVER = _float(-inf)


class AttentionRows:
    """The statements of one kernel, with these buffers. Products are added up `terms` at a time;
    the parallel loop has `marks`, such as LLVM's text of the instructions that do so."""

    terms = 1
    marks: Mapping[str, str] | None = None

    def __init__(self, program: Program, lanes: int, kept: Mapping[str, TensorType]) -> None:
        workload = program.workload
        self.program, self.lanes = program, lanes
        self.heads, self.step = extents(workload), workload.anchor
        named = program.settings
        self.rows, self.parts = named["tile_rows"], named.get("row_groups", 1)
        self.key_vectors, self.value_vectors = (
            named.get("key_vectors", 1),
            named.get("value_vectors", 1),
        )
        self.arguments = [
            tirx.decl_buffer(tensor.shape, tensor.dtype, f"argument{index}")
            for index, tensor in enumerate(program.tensors)
        ]
        written = bits(program.candidate.forms[-1], workload.result.dtype)
        self.result = tirx.decl_buffer(workload.result.shape, written, "result")
        for index, (buffer, form) in enumerate(
            zip(self.arguments, program.candidate.forms, strict=False)
        ):
            program.values[index] = stored(
                lambda *at, buffer=buffer: buffer[at], workload.types[index], form, program.simplify
            )
        self.queries, self.keys, self.values, *self.mask = map(program.operand, self.step.inputs)
        program.set_anchor(lambda _: self.reached)
        self.reached: Expr = None
        self.own = {n: tirx.decl_buffer(kind.shape, kind.dtype, n) for n, kind in kept.items()}
        self.causal = bool(self.step.named.get("causal"))

    # ----- loops -----------------------------------------------------------------------------

    def loop(
        self, extent: int, body: Body, kind: Any = SERIAL, marks: Mapping[str, str] | None = None
    ) -> Any:
        """`body` of a variable from zero to below the extent."""
        variable = tirx.Var("i", "int32")
        self.program.simplify.announce([variable], [extent])
        limits = tirx.const(0, "int32"), tirx.const(extent, "int32")
        return tirx.For(variable, *limits, kind, body(variable), annotations=marks)

    def tile(self, vectors: int, body: Body, width: int = 0, where: Body | None = None) -> Any:
        """`body` of each query of a tile and of the place of each vector of it, spelled out, and of
        a lane in a vector; the last vector has `width` lanes."""
        found = list[Any]()
        for r, v in product(range(self.rows), range(vectors)):
            lanes = width if width and v == vectors - 1 else self.lanes
            vector = self.loop(lanes, lambda lane, r=r, v=v: body(r, v, lane), VECTOR)
            condition = None if where is None else where(r)
            found.append(vector if condition is None else tirx.IfThenElse(condition, vector, None))
        return one_after_another(found)

    def chunks(self, extent: int, vectors: int, body: Body) -> Any:
        """`body` of each chunk of an axis: of its number, its vectors, and the elements of the last
        of these."""
        whole, rest = divmod(extent, vectors * self.lanes)
        found = [self.loop(whole, lambda chunk: body(chunk, vectors, self.lanes))] if whole else []
        if rest:
            number = ceil(rest / self.lanes)
            last = rest - (number - 1) * self.lanes
            found.append(body(tirx.const(whole, "int32"), number, last))
        return one_after_another(found)

    def seen(self, body: Body) -> Any:
        """`body` of the chunks of keys that a query of the tile sees."""

        def guarded(chunk: Expr, vectors: int, last: int) -> Any:
            inner = body(chunk, vectors, last)
            if not self.causal:
                return inner
            first = chunk * (self.key_vectors * self.lanes)
            return tirx.IfThenElse(first <= self.limit(self.rows - 1), inner, None)

        return self.chunks(self.heads.keys, self.key_vectors, guarded)

    def limit(self, row: Any) -> Expr:
        """The last key that a query of the tile sees."""
        return self.first + row + (self.heads.keys - self.heads.queries)

    def strips(self, extent: int, body: Body) -> Any:
        """`body` of every position, in vectors."""
        return self.chunks(
            extent, 1,
            lambda chunk, _, last: self.loop(
                last, lambda lane: body(chunk * self.lanes + lane), VECTOR
            ),
        )  # fmt: skip

    # ----- stages ----------------------------------------------------------------------------

    def function(self, threads: int) -> tirx.PrimFunc:
        """The whole kernel."""
        kind = _PARALLEL if threads > 1 else SERIAL
        body = self.loop(prod(self.pieces), self.piece, kind, self.marks)
        root = SBlock([], [], [], "root", body)
        function = tirx.PrimFunc(
            [*self.arguments, self.result], SBlockRealize([], tirx.const(True, "bool"), root)
        )
        return function.with_attr({"global_symbol": "main", "s_tir": True, "tirx.noalias": True})

    @property
    def pieces(self) -> tuple[int, ...]:
        """Batch, heads of keys, and parts of the queries that read them."""
        return self.heads.batch, self.heads.key_heads, self.parts

    def piece(self, number: Expr) -> Any:
        """The work on a part of the queries that read a head of keys and values."""
        self.image, self.source, part = unravelled(number, self.pieces, self.program.simplify)
        body = one_after_another([*self.work(part)])
        block = SBlock([], [], [], "piece", body, alloc_buffers=[*self.own.values()])
        return SBlockRealize([], tirx.const(True, "bool"), block)

    def work(self, part: Expr) -> Iterator[Any]:
        """Copies of keys and values, and every tile of a part of the queries."""
        heads = self.heads
        tiles = ceil(heads.queries / self.rows)
        each = ceil(tiles / self.parts)

        def one(head: Expr, tile: Expr) -> Any:
            self.head = self.source * (heads.heads // heads.key_heads) + head
            self.first = (part * each + tile) * self.rows
            body = one_after_another([*self.attend()])
            spare = each * self.parts > tiles
            return tirx.IfThenElse(part * each + tile < tiles, body, None) if spare else body

        def every(head: Expr) -> Any:
            return self.loop(each, lambda tile: one(head, tile))

        def key(at: Expr, k: Expr) -> Expr:
            return self.keys.read([self.image, at, self.source * heads.depth + k])

        def value(column: Expr, at: Expr) -> Expr:
            return self.values.read([self.image, at, self.source * heads.width + column])

        yield self.copied("columns", heads.keys, self.key_vectors, key)
        yield self.copied("lines", heads.width, self.value_vectors, value)
        yield self.loop(heads.heads // heads.key_heads, every)

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """A buffer filled with `value`, of a place along the axis that it has in chunks of vectors
        and of one along the other. Keys, which become columns, are read across: vectors of one
        element each of as many keys. What is left of the last vector is zero: it is multiplied,
        too, and what memory holds by chance may be denormal, which is slow."""
        buffer, at_once = self.own[into], vectors * self.lanes
        zero = tirx.const(0, buffer.dtype)

        def filled(chunk: Expr, step: Expr, elements: int) -> Any:
            def store(lane: Expr, element: Expr) -> Any:
                return tirx.BufferStore(buffer, element, [chunk, step, lane])

            copies = self.strips(
                elements, lambda lane: store(lane, value(chunk * at_once + lane, step))
            )
            rest = -elements % self.lanes
            zeros = self.loop(rest, lambda lane: store(elements + lane, zero), VECTOR)
            return one_after_another([copies, zeros]) if rest else copies

        return self.chunks(
            extent,
            vectors,
            lambda chunk, count, last: self.loop(
                int(buffer.shape[1]),
                lambda step: filled(chunk, step, (count - 1) * self.lanes + last),
            ),
        )

    def attend(self) -> Iterator[Any]:
        """A tile: its queries, scores, exponentials and results."""
        largest, scaled = self.own["largest"], self.own["scaled"]

        def query(row: Expr) -> Any:
            return self.strips(
                self.heads.depth,
                lambda k: tirx.BufferStore(scaled, self.asked(row, k), [row, k]),
            )

        yield self.loop(self.rows, query)
        yield self.tile(1, lambda r, _, lane: tirx.BufferStore(largest, NEVER, [r, lane]))
        yield self.seen(self.scored)
        yield self.loop(self.rows, self.powers)
        yield self.chunks(self.heads.width, self.value_vectors, self.summed)

    def asked(self, row: Expr, k: Expr) -> Expr:
        """An element of the query of a row."""
        head, number = self.place(row)
        at = [self.image, number, head * self.heads.depth + k]
        return self.query(self.queries.read(at))

    def query(self, value: Expr) -> Expr:
        """What products are taken of, of an element of a query."""
        return value * self.scale

    @property
    def scale(self) -> Expr:
        """What products are multiplied by."""
        return _float(self.step.number("scale"))

    def within(self, row: Any, rows: int) -> Expr:
        """The number of a row of the tile among so many: past the last one, that again."""
        at = self.first + row
        return tirx.min(at, rows - 1) if rows % self.rows else at

    def place(self, row: Any) -> tuple[Expr, Expr]:
        """The head of a row of the tile, and its query."""
        return self.head, self.within(row, self.heads.queries)

    def product(self, vectors: int, over: Any, left: str, right: Body) -> list[Any]:
        """Sums of products for a tile, of what lies in the buffer `left` of its rows; `over` gives
        the loop around its steps."""
        sums = self.own["sums"]

        def begun(r: int, v: int, lane: Expr) -> Any:
            return tirx.BufferStore(sums, self.first_sum(left, r, v, lane), [r, v, lane])

        start = self.tile(vectors, begun)
        return [start, over(lambda *at: self.multiplied(vectors, left, right, at))]

    def first_sum(self, left: str, row: int, vector: int, lane: Expr) -> Expr:
        """What products of a row and a column are added to."""
        return _float(0)

    def multiplied(self, vectors: int, left: str, right: Body, at: Sequence[Expr]) -> Any:
        """A step of a product."""
        sums = self.own["sums"]

        def element(r: int, v: int, lane: Expr) -> Any:
            value = self.own[left][(r, *at)] * right(*at, v * self.lanes + lane)
            return accumulate(sums, [r, v, lane], value, lambda a, b: a + b)

        return self.tile(vectors, element)

    def compared(self, chunk: Expr, vectors: int, _last: int) -> list[Any]:
        """Products of the tile's queries with a chunk of keys, into the sums."""
        own = self.own
        return self.product(
            vectors,
            lambda step: self.loop(ceil(self.heads.depth / self.terms), step),
            "scaled",
            lambda k, column: own["columns"][chunk, k, column],
        )

    def scored(self, chunk: Expr, vectors: int, last: int) -> Any:
        """Scores of a chunk of keys, and the largest of each lane."""
        own, first = self.own, chunk * (self.key_vectors * self.lanes)
        sums = self.compared(chunk, vectors, last)

        def kept(r: int, v: int, lane: Expr) -> Any:
            key = first + v * self.lanes + lane
            value = self.masked(own["sums"][r, v, lane], r, key)
            return tirx.BufferStore(own["scores"], value, [r, key])

        def larger(r: int, v: int, lane: Expr) -> Any:
            value = own["scores"][r, first + v * self.lanes + lane]
            return accumulate(own["largest"], [r, lane], value, tirx.max)

        beyond = [
            self.loop(
                self.lanes - last,
                lambda lane, r=r: tirx.BufferStore(
                    own["scores"], NEVER,
                    [r, first + (vectors - 1) * self.lanes + last + lane],
                ),
                VECTOR,
            )
            for r in range(self.rows if last < self.lanes else 0)
        ]  # fmt: skip
        return one_after_another(
            [*sums, self.tile(vectors, kept, last), *beyond, self.tile(vectors, larger, last)]
        )

    def masked(self, score: Expr, row: int, key: Expr) -> Expr:
        """A score with what the mask and the order of the keys make of it."""
        head, query = self.place(row)
        place = [self.image, head, query, key]
        read = [mask.read(broadcast_index(place, mask.type.shape)) for mask in self.mask]
        return masked_score(score, read, self.step.named, key - query, self.heads)

    def folded(self, at: list[Any], buffer: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """The lanes of a vector as one, in the first of them."""
        left, found = self.lanes, list[Any]()
        while left > 1:
            left //= 2
            found.append(
                self.loop(
                    left,
                    lambda lane, left=left: accumulate(
                        buffer, [*at, lane], buffer[(*at, lane + left)], combine
                    ),
                    VECTOR,
                )
            )
        return one_after_another(found)

    def powers(self, row: Expr) -> Any:
        """Exponentials of the scores of a query, and one by their sum."""
        largest, total = self.own["largest"], self.own["total"]
        return one_after_another(
            [
                self.folded([row], largest, tirx.max),
                self.loop(
                    self.lanes, lambda lane: tirx.BufferStore(total, _float(0), [lane]), VECTOR
                ),
                self.every_vector(lambda vector: self.power(row, vector)),
                self.folded([], total, lambda a, b: a + b),
                tirx.BufferStore(self.own["factor"], _float(1) / total[0], [row]),
            ]
        )

    def every_vector(self, body: Body) -> Any:
        """`body` of each vector of the keys that a query of the tile sees."""
        return self.seen(
            lambda chunk, vectors, _: self.loop(
                vectors, lambda v: body(chunk * self.key_vectors + v)
            )
        )

    def power(self, row: Expr, vector: Expr) -> Any:
        """Exponentials of a vector of scores, added up."""
        scores, largest, total = (self.own[n] for n in ("scores", "largest", "total"))

        def element(lane: Expr) -> Any:
            at = [row, vector * self.lanes + lane]
            power = mathematics.exp_below_one(scores[tuple(at)] - largest[row, 0])
            return one_after_another(
                [
                    tirx.BufferStore(scores, power, at),
                    accumulate(total, [lane], scores[tuple(at)], lambda a, b: a + b),
                    *self.weights(at),
                ]
            )

        return self.loop(self.lanes, element, VECTOR)

    def weights(self, at: list[Any]) -> Sequence[Any]:
        """What else makes a weight of the exponential of a score."""
        return ()

    def summed(self, chunk: Expr, vectors: int, last: int) -> Any:
        """The results of a tile in a chunk of columns."""
        own = self.own

        def over(step: Body) -> Any:
            def keys(number: Expr, found: int, rest: int) -> Any:
                first = number * (self.key_vectors * self.lanes // self.terms)
                steps = ceil(((found - 1) * self.lanes + rest) / self.terms)
                return self.loop(steps, lambda key: step(first + key))

            return self.seen(keys)

        sums = self.product(
            vectors,
            over,
            "scores",
            lambda key, column: self.value(chunk, key, column),
        )

        def stored(r: int, v: int, lane: Expr) -> Any:
            return self.written(r, chunk, v * self.lanes + lane, own["sums"][r, v, lane])

        return one_after_another([*sums, self.tile(vectors, stored, last, self.inside)])

    def divided(self, row: Any, column: Expr, total: Expr) -> Expr:
        """The result of a row in a column, of its sum of weighted values."""
        return total * self.own["factor"][row]

    def written(self, row: Any, chunk: Expr, lane: Expr, total: Expr) -> Any:
        """The result of a row in a column of a chunk, of its sum of weighted values."""
        column = chunk * (self.value_vectors * self.lanes) + lane
        head, query = self.kept(row)
        at = [self.image, query, head * self.heads.width + column]
        self.reached = self.divided(row, column, total)
        found = self.program.operand(len(self.program.workload.types) - 1).read(at)
        found = mathematics.in_half(found, self.program.candidate.forms[-1].dtype)
        return tirx.BufferStore(self.result, found, at)

    def kept(self, row: Any) -> tuple[Expr, Expr]:
        """The head and the query of a row that is `inside`."""
        return self.head, self.first + row

    def inside(self, row: int) -> Expr | None:
        """Whether a row of the tile is a query; None where all of them are."""
        return self.first + row < self.heads.queries if self.heads.queries % self.rows else None

    def value(self, chunk: Expr, key: Expr, column: Expr) -> Expr:
        """The value of a key in a column of a chunk of columns."""
        return self.own["lines"][chunk, key, column]
