"""The kernel of attention on codes: that of `attention_rows` with what rounds scores and shares to
codes between its stages. By dot products of bytes keys and values are copied as words of four
codes; queries and shares lie in bytes, of which four are read as a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.attention_rows import (
    VECTOR,
    AttentionRows,
    Body,
    Expr,
    accumulate,
    one_after_another,
)
from tilewright.compiler.lower.byte_dots import added_bytes, byte_dot_text, flipped
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.quick_powers import LANES as POWERS_AT_ONCE
from tilewright.compiler.lower.quick_powers import SINGLE_POWER, power_text
from tilewright.compiler.lower.values import broadcast_index, filled
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import CODING
from tilewright.kernels.attention_int8 import SPEC, added
from tilewright.kernels.base import SINGLE
from tilewright.kernels.codes import QUAD, WIDEN, taken_data

(_SINGLE,) = SINGLE
_MIDDLE = 128
_ONES = 0x01010101
_FLIP = 0x80808080


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    lanes = target.lanes(program.workload.computed_in)
    kept = SPEC.buffers(program.workload, program.settings, lanes)
    dots = program.settings["dot"] != WIDEN
    kernel = (_ByDots if dots else _OnCodes)(program, lanes, kept)
    return program.begin(kernel.function(resources.threads))


def _single(value: Expr) -> Expr:
    return tirx.Cast(_SINGLE, value)


def _whole(value: Expr) -> Expr:
    return tirx.Cast("int32", value)


def _nearest(value: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin(_SINGLE, "llvm.nearbyint", value)


class _OnCodes(AttentionRows):
    """Codes less their zero points as singles."""

    def __init__(self, program: Program, lanes: int, kept: Mapping[str, TensorType]) -> None:
        super().__init__(program, lanes, kept)
        self.coding, self.zero_points, *self.mask = self.mask
        self.steps = self.coding.type.shape[0]
        self.masked_at = self.step.integer("masked")
        names = (*CODING, "inverse")
        self.codes = [{n: tirx.Var(n, _SINGLE) for n in names} for _ in range(self.steps)]
        self.zeros = [tirx.Var("zero", "int32") for _ in range(3)]

    def work(self, part: Expr) -> Iterator[Any]:
        """Behind the numbers that all of it reads."""
        for place, zero in enumerate(self.zeros):
            yield tirx.Bind(zero, self.zero_points.read([tirx.const(place, "int32")]))
        for row, named in enumerate(self.codes):
            for place, name in enumerate(CODING):
                at = [tirx.const(each, "int32") for each in (row, place)]
                yield tirx.Bind(named[name], self.coding.read(at))
            yield tirx.Bind(named["inverse"], tirx.const(1, _SINGLE) / named["divisor"])
        yield from super().work(part)

    # ----- what is multiplied ------------------------------------------------------------------

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """Less their zero points."""
        zero = self.zeros[1 if into == "columns" else 2]
        return super().copied(into, extent, vectors, lambda *at: _single(_whole(value(*at)) - zero))

    def query(self, value: Expr) -> Expr:
        """Less its zero point."""
        return _single(_whole(value) - self.zeros[0])

    # ----- scores and shares -------------------------------------------------------------------

    def masked(self, score: Expr, row: int, key: Expr) -> Expr:
        """What softmax is taken of."""
        found = _single(score)
        for place, named in enumerate(self.codes):
            found = found * named["factor"]
            if place == self.masked_at:
                (mask,) = self.mask
                head, query = self.place(row)
                at = broadcast_index([self.image, head, query, key], mask.type.shape)
                found = found + mask.read(at)
            if place < self.steps - 1:
                masked = place == self.masked_at
                rounded = _nearest(self.quotient(found, named) if masked else found)
                found = tirx.max(tirx.min(rounded, named["highest"]), named["lowest"])
        return found

    def quotient(self, x: Expr, named: Mapping[str, Expr]) -> Expr:
        """A number by the divisor of a coding, see `elementwise.quotient`. A mask may be infinite:
        what is beyond the limits by a code becomes finite first."""
        if not self.program.fused:
            return x / named["divisor"]
        least, most = (
            (named[name] + beyond) * named["divisor"]
            for name, beyond in (("lowest", -1.0), ("highest", 1.0))
        )
        x = tirx.max(tirx.min(x, most), least)
        fused = partial(tirx.call_llvm_pure_intrin, _SINGLE, "llvm.fma")
        near = x * named["inverse"]
        return fused(fused(-near, named["divisor"], x), named["inverse"], near)

    def powers(self, row: Expr) -> Any:
        """Shares of a row as codes, by one factor for all."""
        own, named = self.own, self.codes[-1]
        factor = own["factor"][row] * named["inverse"]
        return one_after_another(
            [
                super().powers(row),
                tirx.BufferStore(own["factor"], factor, [row]),
                *self.shares(row),
            ]
        )

    def share(self, at: list[Any]) -> Expr:
        """The code of a share, less its zero point, as a whole number."""
        share = self.own["scores"][tuple(at)] * self.own["factor"][at[0]]
        nearest = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", share)
        return tirx.min(nearest, _whole(self.codes[-1]["highest"]))

    def shares(self, row: Expr) -> Iterator[Any]:
        """Codes of the shares of a row in the place of its exponentials."""

        def stored(at: list[Any]) -> Any:
            return tirx.BufferStore(self.own["scores"], _single(self.share(at)), at)

        yield self.every_score(row, stored)

    def every_score(self, row: Expr, body: Body) -> Any:
        """`body` of the place of every score of a row."""
        return self.every_vector(
            lambda vector: self.loop(
                self.lanes, lambda lane: body([row, vector * self.lanes + lane]), VECTOR
            )
        )

    def divided(self, row: Any, column: Expr, total: Expr) -> Expr:
        """Sums of codes of shares times values, which are whole."""
        return _whole(total)


class _ByDots(_OnCodes):
    """Four products at a time. A dot product takes what is `added` to the left codes, and signed
    right ones."""

    terms = QUAD

    def __init__(self, program: Program, lanes: int, kept: Mapping[str, TensorType]) -> None:
        super().__init__(program, lanes, kept)
        self.dot, settings = str(program.settings["dot"]), program.settings
        self.quick = self.dot == "vnni" and lanes == POWERS_AT_ONCE
        texts = byte_dot_text(settings, lanes), power_text(SINGLE_POWER) if self.quick else ""
        if any(texts):
            self.marks = {"pragma_import_llvm": "".join(texts)}
        self.taken = taken_data(settings)
        self.asked_more = added(settings, self.queries.type.dtype)
        self.shares_more = added(settings, "uint8")

    # ----- what is multiplied ------------------------------------------------------------------

    def signed_zero(self, place: int) -> Expr:
        """The zero point of keys or values that became signed."""
        unsigned = (self.keys, self.values)[place - 1].type.dtype == "uint8"
        return self.zeros[place] - _MIDDLE if unsigned else self.zeros[place]

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """Words, of four places along the axis that is not in chunks, and what columns add."""
        columns = into == "columns"
        length = self.heads.depth if columns else self.heads.keys
        kind = (self.keys if columns else self.values).type.dtype

        def word(at: Expr, quad: Expr) -> Expr:
            codes = [
                filled(lambda place: _bits(value(at, place)), quad * QUAD + term, length, QUAD)
                for term in range(QUAD)
            ]
            found = reduce(lambda a, b: a | b, map(_shifted, codes, range(QUAD)))
            flips = [
                filled(lambda _: tirx.const(_MIDDLE, "uint32"), quad * QUAD + term, length, QUAD)
                for term in range(QUAD)
            ]
            if kind == "int8":
                return found
            if length % QUAD == 0:
                return found ^ tirx.const(_FLIP, "uint32")
            return found ^ reduce(lambda a, b: a | b, map(_shifted, flips, range(QUAD)))

        each = self.word_by_word if columns else super(_OnCodes, self).copied
        copies = [each(into, extent, vectors, word)]
        more = self.asked_more if columns else self.shares_more
        if columns or more:
            left = self.zeros[0] + more if columns else tirx.const(more, "int32")
            copies.append(self.columns_add(into, left))
        return one_after_another(copies)

    def word_by_word(self, into: str, extent: int, vectors: int, word: Body) -> Any:
        """Keys, whose codes lie beside each other, in loads of whole words; zeros behind them."""
        buffer, width = self.own[into], vectors * self.lanes
        zero = tirx.const(0, "uint32")

        def key(at: Expr, value: Body) -> Any:
            chunk, lane = self.program.simplify.split(at, width)
            return self.loop(
                int(buffer.shape[1]),
                lambda quad: tirx.BufferStore(buffer, value(at, quad), [chunk, quad, lane]),
            )

        missing = -extent % width
        found = [self.loop(extent, lambda at: key(at, word))]
        found += (
            [self.loop(missing, lambda at: key(extent + at, lambda *_: zero))] if missing else []
        )
        return one_after_another(found)

    def columns_add(self, into: str, left_zero: Expr) -> Any:
        """What the zero point of the left adds to the sums of each column."""
        words, found = self.own[into], self.own[f"{into}_terms"]
        chunks, slots, width = (int(extent) for extent in words.shape)

        def vector(chunk: Expr, first: Expr) -> Any:
            at = [chunk, tirx.Ramp(first, 1, self.lanes)]

            def step(slot: Expr) -> Any:
                word = words[chunk, slot, at[1]]
                value = self.dotted(found[tuple(at)], tirx.const(_ONES, "int32"), word)
                return tirx.BufferStore(found, value, at)

            zero = tirx.Broadcast(tirx.const(0, "int32"), self.lanes)
            times = tirx.Broadcast(-left_zero, self.lanes)
            return one_after_another(
                [
                    tirx.BufferStore(found, zero, at),
                    self.loop(slots, step),
                    tirx.BufferStore(found, found[tuple(at)] * times, at),
                ]
            )

        return self.loop(
            chunks,
            lambda chunk: self.loop(width // self.lanes, lambda v: vector(chunk, v * self.lanes)),
        )

    def dotted(self, sums: Expr, word: Expr, words: Expr) -> Expr:
        """Sums and what a word of the left adds to them, with a word of each column."""
        return added_bytes(self.dot, self.lanes, sums, word, words)

    def attend(self) -> Iterator[Any]:
        """A tile, and first what zero points add to its rows."""
        terms, zeros = self.own["query_terms"], self.zeros
        start = zeros[0] * self.heads.depth

        def row(row: Expr) -> Any:
            head, number = self.place(row)

            def less(k: Expr) -> Any:
                at = [self.image, number, head * self.heads.depth + k]
                return accumulate(terms, [row], _whole(self.queries.read(at)), lambda a, b: a - b)

            return one_after_another(
                [
                    tirx.BufferStore(terms, start, [row]),
                    self.loop(self.heads.depth, less),
                    tirx.BufferStore(terms, terms[row] * self.signed_zero(1), [row]),
                ]
            )

        yield self.loop(self.rows, row)
        yield from super().attend()

    def query(self, value: Expr) -> Expr:
        """As the instruction takes it."""
        found = flipped(value, kind=self.taken) if self.asked_more else value
        return tirx.reinterpret("uint8", found) if self.taken == "int8" else found

    def multiplied(self, vectors: int, left: str, right: Body, at: Sequence[Expr]) -> Any:
        """Four products at a time."""
        sums, codes = self.own["sums"], self.own["weights" if left == "scores" else left]
        found, (quad,) = list[Any](), at
        for r, v in product(range(self.rows), range(vectors)):
            four = codes.vload([r, quad * QUAD], f"uint8x{QUAD}")
            words = right(quad, tirx.Ramp(tirx.const(v * self.lanes, "int32"), 1, self.lanes))
            place = [r, v, tirx.Ramp(tirx.const(0, "int32"), 1, self.lanes)]
            value = self.dotted(sums[tuple(place)], tirx.reinterpret("int32", four), words)
            found.append(tirx.BufferStore(sums, value, place))
        return one_after_another(found)

    # ----- scores and shares -------------------------------------------------------------------

    def compared(self, chunk: Expr, vectors: int, _last: int) -> list[Any]:
        """The chunk is known to the first sums."""
        self.chunk = chunk
        return super().compared(chunk, vectors, _last)

    def summed(self, chunk: Expr, vectors: int, last: int) -> Any:
        """The chunk is known to the first sums."""
        self.chunk = chunk
        return super().summed(chunk, vectors, last)

    def first_sum(self, left: str, row: int, vector: int, lane: Expr) -> Expr:
        """What zero points add."""
        own, scores = self.own, left == "scaled"
        rows, columns = ("query", "columns") if scores else ("share", "lines")
        found = own[f"{rows}_terms"][row]
        if not scores and not self.shares_more:
            return found
        return found + own[f"{columns}_terms"][self.chunk, vector * self.lanes + lane]

    def power(self, row: Expr, vector: Expr) -> Any:
        """Exponentials of a vector of scores, where that is quick by instructions of their own."""
        if not self.quick:
            return super().power(row, vector)
        scores, largest, total = (self.own[n] for n in ("scores", "largest", "total"))
        at, each = (tirx.Ramp(first, 1, self.lanes) for first in (vector * self.lanes, 0))
        beside = scores[row, at] - tirx.Broadcast(largest[row, 0], self.lanes)
        power = tirx.call_pure_extern(f"{_SINGLE}x{self.lanes}", SINGLE_POWER, beside)
        return one_after_another(
            [
                tirx.BufferStore(scores, power, [row, at]),
                accumulate(total, [each], scores[row, at], lambda a, b: a + b),
            ]
        )

    def shares(self, row: Expr) -> Iterator[Any]:
        """Codes as the instruction takes them, and what the zero point of values adds to the sums
        of the row."""
        own, sums = self.own, self.own["shares"]
        zero = tirx.const(0, "int32")

        def stored(at: list[Any]) -> Any:
            lane = tirx.floormod(at[1], self.lanes)
            code = tirx.Cast("uint8", self.share(at))
            found = code ^ tirx.const(_MIDDLE, "uint8") if self.shares_more else code
            return one_after_another(
                [
                    tirx.BufferStore(own["weights"], found, at),
                    accumulate(sums, [lane], self.share(at), lambda a, b: a + b),
                ]
            )

        yield self.loop(self.lanes, lambda lane: tirx.BufferStore(sums, zero, [lane]), VECTOR)
        yield self.every_score(row, stored)
        yield self.folded([], sums, lambda a, b: a + b)
        yield tirx.BufferStore(own["share_terms"], sums[0] * -self.signed_zero(2), [row])

    def divided(self, row: Any, column: Expr, total: Expr) -> Expr:
        """They are whole."""
        return total


def _bits(code: Expr) -> Expr:
    """A code as the lowest byte of a word."""
    return tirx.Cast("uint32", tirx.reinterpret("uint8", code))


def _shifted(code: Expr, place: int) -> Expr:
    return code << tirx.const(8 * place, "uint32")
