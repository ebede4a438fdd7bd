"""The kernel of attention by dot products of bfloat16: that of `attention_rows` with two products
in each step. Keys and values are copied as words of two halves; queries and the exponentials of
scores lie in halves, of which two are read as a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import frexp
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.attention_rows import AttentionRows, Body, Expr, one_after_another
from tilewright.compiler.lower.half_dots import added_dots, half_at, half_dot_text, word_of
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import HALF_BITS
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.kernels.attention_bfloat16 import SPEC
from tilewright.kernels.halves import PAIR


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    lanes = target.lanes(program.workload.computed_in)
    kept = SPEC.buffers(program.workload, program.settings, lanes)
    marks = {"pragma_import_llvm": half_dot_text(target, lanes)}
    kernel = AttentionInHalves(program, lanes, kept, marks)
    return program.begin(kernel.function(resources.threads))


class AttentionInHalves(AttentionRows):
    """Products of halves, keys filled up with zeros to a whole `slot`. A scale that is no power of
    two would round queries once more: scores are multiplied by it."""

    terms = PAIR
    slot = PAIR

    def __init__(
        self, program: Program, lanes: int, kept: Mapping[str, TensorType], marks: Mapping[str, str]
    ) -> None:
        super().__init__(program, lanes, kept)
        self.marks = marks
        self.exact = abs(frexp(self.step.number("scale"))[0]) == 0.5

    def copied(self, into: str, extent: int, vectors: int, value: Body) -> Any:
        """Words, of two places along the axis that is not in chunks."""
        length = self.heads.depth if into == "columns" else self.heads.keys

        def word(at: Expr, pair: Expr) -> Expr:
            low, high = (
                half_at(lambda place: value(at, place), pair * PAIR + term, length, self.slot)
                for term in range(PAIR)
            )
            return word_of(low, high)

        return super().copied(into, extent, vectors, word)

    def attend(self) -> Iterator[Any]:
        """A tile; queries of an odd depth get one more element."""
        scaled, depth = self.own["scaled"], self.heads.depth
        zero = tirx.const(0, HALF_BITS)
        for row in range(self.rows if depth % PAIR else 0):
            yield tirx.BufferStore(scaled, zero, [row, depth])
        yield from super().attend()

    def query(self, value: Expr) -> Expr:
        """Rounded, and scaled before where that loses nothing."""
        return mathematics.half(super().query(value) if self.exact else value)

    def masked(self, score: Expr, row: int, key: Expr) -> Expr:
        """A score, scaled where queries are not."""
        return super().masked(score if self.exact else score * self.scale, row, key)

    def weights(self, at: list[Any]) -> Sequence[Any]:
        """The exponential, rounded."""
        own = self.own
        return (tirx.BufferStore(own["weights"], mathematics.half(own["scores"][tuple(at)]), at),)

    def multiplied(self, vectors: int, left: str, right: Body, at: Sequence[Expr]) -> Any:
        """Two products at a time."""
        sums, halves = self.own["sums"], self.own["weights" if left == "scores" else left]
        found, (pair,) = list[Any](), at
        for r, v in product(range(self.rows), range(vectors)):
            first = halves.vload([r, pair * PAIR], f"{HALF_BITS}x{PAIR}")
            words = right(pair, tirx.Ramp(tirx.const(v * self.lanes, "int32"), 1, self.lanes))
            place = [r, v, tirx.Ramp(tirx.const(0, "int32"), 1, self.lanes)]
            value = added_dots(sums[tuple(place)], tirx.reinterpret("int32", first), words)
            found.append(tirx.BufferStore(sums, value, place))
        return one_after_another(found)
