"""Dot products of bfloat16 as a tensor intrinsic, and the rounding before them.

TVM has no arithmetic on bfloat16 that compiles to the processor's: what is multiplied are the upper
halves of singles, kept as integers, and the instruction is LLVM's text that a kernel imports.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.arm_dots import arm_dot_text
from tilewright.compiler.lower.values import filled
from tilewright.core.targets import Target
from tilewright.hardware.features import is_arm
from tilewright.kernels.halves import PAIR

_TEXT = """
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
  <{lanes} x float>, <{pairs} x bfloat>, <{pairs} x bfloat>)
define <{lanes} x float> @{name}(<{lanes} x float> %sums, i32 %data, <{pairs} x i16> %weights)
    alwaysinline {{
  %first = insertelement <{lanes} x i32> poison, i32 %data, i64 0
  %all = shufflevector <{lanes} x i32> %first, <{lanes} x i32> poison,
    <{lanes} x i32> zeroinitializer
  %left = bitcast <{lanes} x i32> %all to <{pairs} x bfloat>
  %right = bitcast <{pairs} x i16> %weights to <{pairs} x bfloat>
  %added = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{lanes} x float> %sums, <{pairs} x bfloat> %right, <{pairs} x bfloat> %left)
  ret <{lanes} x float> %added
}}
"""


_ROUNDING = """
define <{lanes} x i16> @{name}(<{lanes} x float> %values) alwaysinline {{
  %rounded = fptrunc <{lanes} x float> %values to <{lanes} x bfloat>
  %bits = bitcast <{lanes} x bfloat> %rounded to <{lanes} x i16>
  ret <{lanes} x i16> %bits
}}
"""


def half_dot_text(target: Target, lanes: int) -> str:
    """LLVM's text of the function that the instruction for so many lanes calls."""
    if is_arm(target.architecture):
        return arm_dot_text("bfdot", lanes, _function(lanes))
    return _TEXT.format(lanes=lanes, pairs=2 * lanes, bits=32 * lanes, name=_function(lanes))


def _function(lanes: int) -> str:
    return f"tilewright_dpbf16ps_{lanes}"


@cache
def half_dot(lanes: int, words: bool = False) -> str:
    """The registered intrinsic for 4, 8 or 16 lanes: C[lane] += A[0] * B[lane, 0] + A[1] * B[lane,
    1], A being upper halves of singles. B may also be [lane, 1], of `words` with both."""
    name = f"tilewright_half_dot{'_of_words' if words else ''}_{lanes}"
    TensorIntrin.register(name, _meaning(lanes, words), _instruction(lanes, words))
    return name


def _meaning(lanes: int, words: bool):
    width, kind = (1, "uint32") if words else (2, "uint16")

    def weight(B, vi, vk):
        return half_of(B[vi, 0], vk) if words else B[vi, vk]

    @T.prim_func(s_tir=True)
    def sums(
        A: T.Buffer((2,), "uint16", offset_factor=1),
        B: T.Buffer((lanes, width), kind, offset_factor=1),
        C: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:width])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 2):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + half_product(A[vk], weight(B, vi, vk))

    return sums


def _instruction(lanes: int, words: bool):
    function, sums_type, weights_type = _function(lanes), f"float32x{lanes}", f"uint16x{2 * lanes}"
    width, kind = (1, "uint32") if words else (2, "uint16")
    loaded = f"uint32x{lanes}" if words else weights_type

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((2,), "uint16", offset_factor=1),
        B: T.Buffer((lanes, width), kind, offset_factor=1),
        C: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:width])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_extern(
                sums_type,
                function,
                C.vload([0], dtype=sums_type),
                T.reinterpret(A.vload([0], dtype="uint16x2"), dtype="int32"),
                T.reinterpret(B.vload([0, 0], dtype=loaded), dtype=weights_type),
            )

    return dot


def added_dots(sums: tirx.Expr, word: tirx.Expr, words: tirx.Expr) -> tirx.Expr:
    """A vector of sums and, in each lane, the products of both halves of a word with those of the
    lane's word: one instruction."""
    lanes = int(tvm.DataType(str(words.ty.dtype)).lanes)
    halves = tirx.reinterpret(f"uint16x{2 * lanes}", words)
    return tirx.call_pure_extern(f"float32x{lanes}", _function(lanes), sums, word, halves)


def word_of(low: tirx.Expr, high: tirx.Expr) -> tirx.Expr:
    """Two halves as one word."""
    wide = [tirx.Cast("uint32", half) for half in (low, high)]
    return (wide[1] << tirx.const(16, "uint32")) | wide[0]


def half_of(word: tirx.Expr, term: tirx.Expr) -> tirx.Expr:
    """One half of a word."""
    return tirx.Cast("uint16", word >> tirx.Cast("uint32", term * 16))


def half_at(
    read: Callable[[Any], tirx.Expr], at: tirx.Expr, length: int, slot: int = PAIR
) -> tirx.Expr:
    """What `read` gives at a place along a sum of so many products, as a half; zero behind them,
    where the last slot is not full."""
    return filled(lambda place: mathematics.half(read(place)), at, length, slot)


def half_product(value: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
    """The product of two upper halves of singles, in single precision."""
    return mathematics.of_upper_half(value) * mathematics.of_upper_half(weight)


def rounding_text(lanes: int) -> str:
    """LLVM's text of the function that rounds so many singles by the processor's conversion."""
    return _ROUNDING.format(lanes=lanes, name=rounding_function(lanes))


def rounding_function(lanes: int) -> str:
    """The name of that function."""
    return f"tilewright_halves_{lanes}"


@cache
def half_rounding(lanes: int) -> str:
    """The registered intrinsic that rounds so many singles in registers: C[lane] = A[lane], by the
    processor's own conversion."""
    name = f"tilewright_half_rounding_{lanes}"
    TensorIntrin.register(name, _rounded_each(lanes), _rounded_together(lanes))
    return name


def _rounded_each(lanes: int):
    @T.prim_func(s_tir=True)
    def each(
        A: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
        C: T.Buffer((lanes,), "uint16", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(A[0:lanes])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                with T.sblock("update"):
                    vi = T.axis.remap("S", [i])
                    C[vi] = mathematics.nearest_half(A[vi])

    return each


def _rounded_together(lanes: int):
    function, singles, halves = rounding_function(lanes), f"float32x{lanes}", f"uint16x{lanes}"

    @T.prim_func(s_tir=True)
    def together(
        A: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
        C: T.Buffer((lanes,), "uint16", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(A[0:lanes])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_extern(
                halves, function, A.vload([0], dtype=singles)
            )

    return together
