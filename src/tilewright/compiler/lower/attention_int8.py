"""The kernel of attention on codes: that of `attention_rows` with what rounds scores and shares to
codes between its stages. By dot products of bytes keys and values are copied as words of four
codes; queries and shares lie in bytes, of which four are read as a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import product
from math import ceil
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
from tilewright.compiler.lower.values import broadcast_index, filled
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import CODING
from tilewright.kernels.attention_int8 import SPEC, added
from tilewright.kernels.codes import QUAD, WIDEN, taken_data

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
    return tirx.Cast("float32", value)


def _whole(value: Expr) -> Expr:
    return tirx.Cast("int32", value)


def _nearest(value: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin("float32", "llvm.nearbyint", value)


class _OnCodes(AttentionRows):
    """Codes less their zero points as singles."""

    def __init__(self, program: Program, lanes: int, kept: Mapping[str, TensorType]) -> None:
        super().__init__(program, lanes, kept)
        self.coding, self.zero_points, *self.mask = self.mask
        self.steps = self.coding.type.shape[0]
        self.masked_at = self.step.integer("masked")
        names = (*CODING, "inverse")
        self.codes = [{n: tirx.Var(n, "float32") for n in names} for _ in range(self.steps)]
        self.zeros = [tirx.Var("zero", "int32") for _ in range(3)]

    def work(self, part: Expr) -> Iterator[Any]:
        """Behind the numbers that all of it reads."""
        for place, zero in enumerate(self.zeros):
            yield tirx.Bind(zero, self.zero_points.read([tirx.const(place, "int32")]))
        for row, named in enumerate(self.codes):
            for place, name in enumerate(CODING):
                at = [tirx.const(each, "int32") for each in (row, place)]
                yield tirx.Bind(named[name], self.coding.read(at))
            yield tirx.Bind(named["inverse"], tirx.const(1, "float32") / named["divisor"])
        yield from super().work(part)

    # ----- what is multiplied ------------------------------------------------------------------

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """Less their zero points."""
        zero = self.zeros[1 if into == "columns" else 2]
        return super().copied(
            into, extent, vectors, lambda *at: _single(_whole(value(*at)) - zero)
        )

    def query(self, value: Expr) -> Expr:
        """Less its zero point."""
        return _single(_whole(value) - self.zeros[0])

    # ----- scores and shares -------------------------------------------------------------------

    def total(self, score: Expr, row: int, key: Expr) -> Expr:
        """The sum of products of codes less their zero points."""
        return score

    def masked(self, score: Expr, row: int, key: Expr) -> Expr:
        """What softmax is taken of."""
        found = self.total(score, row, key)
        for place, named in enumerate(self.codes):
            found = found * named["factor"]
            if place == self.masked_at:
                (mask,) = self.mask
                head, query = self.place(row)
                at = broadcast_index([self.image, head, query, key], mask.type.shape)
                found = found + mask.read(at)
            if place < self.steps - 1:
                rounded = _nearest(self.quotient(found, named))
                found = tirx.max(tirx.min(rounded, named["highest"]), named["lowest"])
        return found

    def quotient(self, x: Expr, named: Mapping[str, Expr]) -> Expr:
        """A number by the divisor of a coding, see `elementwise.quotient`."""
        if not self.program.fused:
            return x / named["divisor"]
        fused = partial(tirx.call_llvm_pure_intrin, "float32", "llvm.fma")
        near = x * named["inverse"]
        return fused(fused(-near, named["divisor"], x), named["inverse"], near)

    def powers(self, row: Expr) -> Any:
        """Shares of a row as codes, and their sum in the place of that of the exponentials."""
        total = self.own["total"]
        zero = tirx.const(0, "float32")
        start = self.loop(
            self.lanes, lambda lane: tirx.BufferStore(total, zero, [lane]), VECTOR
        )
        shares = self.every_vector(lambda vector: self.shared(row, vector))
        return one_after_another([super().powers(row), start, shares, *self.rest(row)])

    def shared(self, row: Expr, vector: Expr) -> Any:
        """Codes of a vector of shares, added up."""
        scores, named = self.own["scores"], self.codes[-1]

        def element(lane: Expr) -> Any:
            at = [row, vector * self.lanes + lane]
            share = self.quotient(scores[tuple(at)] * self.own["factor"][row], named)
            code = tirx.min(_nearest(share), named["highest"])
            return one_after_another(
                [
                    tirx.BufferStore(scores, code, at),
                    accumulate(self.own["total"], [lane], scores[tuple(at)], lambda a, b: a + b),
                    *self.coded(at),
                ]
            )

        return self.loop(self.lanes, element, VECTOR)

    def coded(self, at: list[Any]) -> Sequence[Any]:
        """What else becomes of the code of a share."""
        return ()

    def rest(self, row: Expr) -> Sequence[Any]:
        """What else follows from the shares of a row."""
        return ()

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
        if text := byte_dot_text(settings, lanes):
            self.marks = {"pragma_import_llvm": text}
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

        copies = [super(_OnCodes, self).copied(into, extent, vectors, word)]
        more = self.asked_more if columns else self.shares_more
        if columns or more:
            left = self.zeros[0] + more if columns else tirx.const(more, "int32")
            copies.append(self.columns_add(into, left))
        return one_after_another(copies)

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
            lambda chunk: self.loop(
                width // self.lanes, lambda v: vector(chunk, v * self.lanes)
            ),
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

    def total(self, score: Expr, row: int, key: Expr) -> Expr:
        """With what zero points add."""
        chunk, lane = self.program.simplify.split(key, self.key_vectors * self.lanes)
        column = self.own["columns_terms"][chunk, lane]
        return _single(score + column + self.own["query_terms"][row])

    def coded(self, at: list[Any]) -> Sequence[Any]:
        """As the instruction takes it."""
        code = tirx.Cast("uint8", _whole(self.own["scores"][tuple(at)]))
        found = code ^ tirx.const(_MIDDLE, "uint8") if self.shares_more else code
        return (tirx.BufferStore(self.own["weights"], found, at),)

    def rest(self, row: Expr) -> Sequence[Any]:
        """What the zero point of values adds to the sums of a row."""
        total = self.own["total"]
        value = _whole(total[0]) * -self.signed_zero(2)
        return (
            self.folded([], total, lambda a, b: a + b),
            tirx.BufferStore(self.own["share_terms"], value, [row]),
        )

    def divided(self, row: Any, column: Expr, total: Expr) -> Expr:
        """With what zero points add."""
        found = total + self.own["share_terms"][row]
        if not self.shares_more:
            return found
        at = self.program.simplify.split(column, self.value_vectors * self.lanes)
        return found + self.own["lines_terms"][tuple(at)]


def _bits(code: Expr) -> Expr:
    """A code as the lowest byte of a word."""
    return tirx.Cast("uint32", tirx.reinterpret("uint8", code))


def _shifted(code: Expr, place: int) -> Expr:
    return code << tirx.const(8 * place, "uint32")
