"""The kernel of products of codes: that of `cuda_product`, whose elements are words of four codes.

element of the thread's tile
  dp4a                                          # a sum with four products, one instruction

Words that lie in memory are loaded as such: the int8 array of an argument is declared once more, as
one of whole numbers. Words of a column are turned: a thread loads four words of four neighbouring
columns, from four rows, and exchanges their bytes before it writes them to shared memory. All other
words are put together from four codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.cuda.factors import Depth, Factor, Factors, factors_of
from tilewright.compiler.lower.cuda.products import Axis, Lane, ProductKernel, lowered
from tilewright.compiler.lower.cuda.statements import buffer, elements, unrolled
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.core.forms import own_layout
from tilewright.core.targets import Resources, Target
from tilewright.kernels.base import anchored
from tilewright.kernels.codes import QUAD
from tilewright.kernels.cuda.code_products import SPEC, SUMS, in_words, is_turned, packed
from tilewright.kernels.cuda.product_tiles import Operand

Expr = Any
_BITS, _BYTE = 8, 255
_PTX = {"int8": "s32", "uint8": "u32"}
_DOT = """
__device__ __forceinline__ int dp4a_{a}_{b}(int a, int b, int sum) {{
  int found;
  asm("dp4a.{a}.{b} %0, %1, %2, %3;" : "=r"(found) : "r"(a), "r"(b), "r"(sum));
  return found;
}}
"""
_TURN = """
__device__ __forceinline__ void codes_turned(int* words) {
  int low = __byte_perm(words[0], words[1], 0x5140), high = __byte_perm(words[2], words[3], 0x5140);
  int low2 = __byte_perm(words[0], words[1], 0x7362);
  int high2 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low, high, 0x5410);
  words[1] = __byte_perm(low, high, 0x7632);
  words[2] = __byte_perm(low2, high2, 0x5410);
  words[3] = __byte_perm(low2, high2, 0x7632);
}
"""
"""Byte j of word i becomes byte i of word j."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    return lowered(_Kernel, program, SPEC, target)


class _Kernel(ProductKernel):
    """The statements of one kernel."""

    element = SUMS

    def _factors(self) -> Factors:
        program, shape = self.program, self.product
        step, kinds, _ = anchored(program.workload)
        self.extent = kinds[1].shape[1] if step.operator == "conv2d" else kinds[0].shape[-1]
        self.kinds = {"left": kinds[0].dtype, "right": kinds[1].dtype}
        weight = packed(program.workload)
        left = self._value(shape.left)
        right = self._packed(shape.right) if weight is not None else self._value(shape.right)
        return factors_of(program, shape, self.tiles, (left, right))

    def _value(self, operand: Operand) -> Value:
        """An operand, by codes; where words lie in memory, the word of a code."""
        program, value = self.program, operand.value
        if not (in_words(operand) or is_turned(operand)):
            return program.operand(value)
        kind, form = program.workload.types[value], program.candidate.forms[value]
        words = self._declared(value, (kind.elements // QUAD,))
        strides = own_layout(form).strides(kind.shape)

        def read(index: Index) -> Expr:
            at = sum(place * stride for place, (stride,) in zip(index, strides, strict=True))
            return words[program.simplify(tirx.floordiv(at, QUAD))]

        return Value(kind, read)

    def _packed(self, operand: Operand) -> Value:
        """The words of a packed constant."""
        program, array = self.program, self.program.arrays[operand.value]
        words = self._declared(operand.value, [int(extent) for extent in array.shape[:-1]])
        kind = program.workload.types[operand.value]
        is_image = program.workload.anchor_name == "conv2d"

        def read(index: Index) -> Expr:
            column, channel, *tap = index if is_image else (index[1], index[0])
            word = program.simplify(tirx.floordiv(channel, QUAD))
            return words[(*tap, word, column)]

        return Value(kind, read)

    def _declared(self, argument: int, shape: Sequence[int]) -> Any:
        """The array of an argument once more, as words, under the name by which launches give
        it."""
        words = build.decl_buffer(shape, SUMS, data=self.program.arrays[argument].data)
        IRBuilder.name(f"argument{argument}", words)
        return build.buffer_proxy(words)

    # ----- copies ----------------------------------------------------------------------------

    def _lanes(self, axis: Axis) -> AbstractContextManager[Expr]:
        return elements(axis.vector, spelled=is_turned(axis.operand))

    def _read(self, axis: Axis, at: Expr, depth: tuple[Expr, Expr], lane: Expr) -> Factor:
        """One word of an access, or of the words that are turned one of a row."""
        operand = axis.operand
        if in_words(operand):
            along = operand.along_depth
            k = self.factors.place(*depth, lane if along else 0)
            return axis.read(self.matrix, at + (0 if along else lane), self._code(k, 0))
        k = self.factors.place(*depth)
        if is_turned(operand):
            value, conditions = axis.read(self.matrix, at, self._code(k, lane))
            return value, conditions + self._beyond(k, lane)
        codes = [axis.read(self.matrix, at, self._code(k, place)) for place in range(QUAD)]
        return self._word(axis, k, [code for code, _ in codes]), codes[0][1]

    def _code(self, k: Depth, place: Expr) -> Depth:
        """The place in the depth of a code of a word."""
        word, *tap = k
        return [word * QUAD + place, *tap]

    def _beyond(self, k: Depth, place: Expr) -> list[Expr]:
        """Conditions under which a word has a code there."""
        return [self._code(k, place)[0] < self.extent] if self.extent % QUAD else []

    def _word(self, axis: Axis, k: Depth, codes: list[Expr]) -> Expr:
        found: Expr = None
        for place, code in enumerate(codes):
            whole = tirx.bitwise_and(code.astype(SUMS), _BYTE)
            if place and (asked := self._beyond(k, place)):
                whole = tirx.if_then_else(tirx.all(*asked), whole, self._zero())
            moved = tirx.shift_left(whole, tirx.const(_BITS * place, SUMS)) if place else whole
            found = moved if found is None else tirx.bitwise_or(found, moved)
        return found

    def _put(self, stage: int) -> None:
        """What was fetched, words of columns turned, into shared memory."""
        for axis, fetched in zip(self.axes, self.fetched, strict=True):
            if is_turned(axis.operand):
                with unrolled(axis.accesses, "access") as access:
                    first = tirx.address_of(fetched[access * QUAD])
                    build.evaluate(cuda_func_call("codes_turned", first, source_code=_TURN))
        super()._put(stage)

    # ----- sums and results ------------------------------------------------------------------

    def _added_to(self, total: Expr, slow: Expr, fast: Expr) -> Expr:
        b, a = (_PTX[self.kinds[axis.name]] for axis in self.axes)
        return cuda_func_call(
            f"dp4a_{a}_{b}", slow, fast, total, source_code=_DOT.format(a=a, b=b), return_type=SUMS
        )

    def _stored(self, count: int, total: Lane, index: Lane) -> None:
        """Computed one by one, written as a vector."""
        if count == 1:
            super()._stored(count, total, index)
            return
        found = buffer((count,), "found", "local", self.program.workload.result.dtype)
        with elements(count, spelled=True) as lane:
            self.reached, self.lane = total(lane), lane
            found[lane] = self.final.read(index(lane))
        with elements(count) as lane:
            self.result[tuple(index(lane))] = found[lane]
