"""Dot products of bytes as tensor intrinsics: C[lane] += Σ (A[k] + added) * B[lane, k] over four
bytes. `vpdpbusd` of x86 and `usdot` of ARM take A unsigned, so 128 is added to signed data; `sdot`
of ARM takes it signed, so 128 is taken from unsigned data. Either is a flip of each byte's highest
bit.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce

from tvm import te, tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower.arm_dots import arm_dot_text
from tilewright.compiler.lower.program import Program
from tilewright.core.records import Settings
from tilewright.kernels.codes import QUAD, WIDEN, offset

_KIND = "int32"


_X86 = "vnni"
_ONES = 0x01010101


def byte_dot(settings: Settings, lanes: int, dtype: str, *, words: bool = False) -> str:
    """The registered intrinsic of a setting for 4, 8 or 16 lanes and data of `uint8` or `int8`;
    empty where bytes are widened. B may also be [lane, 1], of `words` with all four."""
    dot = str(settings["dot"])
    return "" if dot == WIDEN else _registered(dot, lanes, dtype, offset(settings, dtype), words)


@cache
def byte_sum(dot: str, lanes: int) -> str:
    """The registered intrinsic that adds up the codes of words, by an instruction that multiplies
    them by one: C[lane] += Σ B[lane, k]."""
    name = f"tilewright_{dot}_sum_{lanes}"
    TensorIntrin.register(name, _added_up(lanes), _added_by(dot, lanes))
    return name


@cache
def pixel_dot(lanes: int) -> str:
    """The registered intrinsic of x86 for data whose four codes of `uint8` are one word:
    C[lane] += Σ code k of A[0] * B[lane, k]."""
    name = f"tilewright_{_X86}_of_pixels_{lanes}"
    TensorIntrin.register(name, _pixel_meaning(lanes), _pixel_instruction(lanes))
    return name


def byte_dot_text(settings: Settings, lanes: int) -> str:
    """LLVM's text of the function that the intrinsic calls; empty where it calls none."""
    dot = str(settings["dot"])
    return "" if dot in (WIDEN, _X86) else arm_dot_text(dot, lanes, _function(dot, lanes))


def _function(dot: str, lanes: int) -> str:
    return f"tilewright_{dot}_{lanes}"


@cache
def _registered(dot: str, lanes: int, dtype: str, added: int, words: bool) -> str:
    name = f"tilewright_{dot}{'_of_words' if words else ''}_{lanes}_{dtype}"
    flip = 0x80808080 - (1 << 32) if added else 0
    TensorIntrin.register(
        name, _meaning(lanes, dtype, added, words), _instruction(dot, lanes, dtype, flip, words)
    )
    return name


def _kept(words: bool) -> tuple[int, str]:
    """How weights of a lane lie: their number and type."""
    return (1, "uint32") if words else (QUAD, "int8")


def _meaning(lanes: int, dtype: str, added: int, words: bool):
    width, kind = _kept(words)

    def weight(B, vi, vk):
        return code_of(B[vi, 0], vk) if words else B[vi, vk]

    # a sum with 0 would not match the sums of a kernel that adds nothing
    def widened(code):
        wide = T.cast(code, "int32")
        return wide + added if added else wide

    @T.prim_func(s_tir=True)
    def sums(
        A: T.Buffer((4,), dtype, offset_factor=1),
        B: T.Buffer((lanes, width), kind, offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:width])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + widened(A[vk]) * T.cast(weight(B, vi, vk), "int32")

    return sums


def _multiplied(instruction: str, lanes: int, sums, word, weights):
    """Sums, and what four codes of data, a word, and the weights of each lane add to them."""
    sums_type = f"int32x{lanes}"
    if instruction != _X86:
        return T.call_extern(sums_type, _function(instruction, lanes), sums, word, weights)
    return T.call_llvm_pure_intrin(
        T.llvm_lookup_intrinsic_id(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"),
        sums,
        T.reinterpret(T.broadcast(word, lanes), dtype=f"int8x{4 * lanes}"),
        weights,
        dtype=sums_type,
    )


def added_bytes(
    instruction: str, lanes: int, sums: tirx.Expr, word: tirx.Expr, words: tirx.Expr
) -> tirx.Expr:
    """Sums, and what four codes of data, a word, and a word of signed ones for each lane add to
    them, as an expression."""
    return _multiplied(
        instruction, lanes, sums, word, T.reinterpret(words, dtype=f"int8x{4 * lanes}")
    )


def _instruction(instruction: str, lanes: int, dtype: str, flip: int, words: bool):
    bytes_type, weights_type, sums_type = f"{dtype}x4", f"int8x{4 * lanes}", f"int32x{lanes}"
    width, kind = _kept(words)
    loaded = f"uint32x{lanes}" if words else weights_type

    def summed(sums, data, weights):
        # flipped before it is broadcast: LLVM does not come to an end over a vector flipped by one
        word = T.bitwise_xor(T.reinterpret(data, dtype="int32"), T.int32(flip))
        codes = T.reinterpret(weights, dtype=weights_type) if words else weights
        return _multiplied(instruction, lanes, sums, word, codes)

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((4,), dtype, offset_factor=1),
        B: T.Buffer((lanes, width), kind, offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:width])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = summed(
                C.vload([0], dtype=sums_type),
                A.vload([0], bytes_type),
                B.vload([0, 0], dtype=loaded),
            )

    return dot


def _pixel_meaning(lanes: int):
    def code(A, vk):
        return T.cast(code_of(A[0], vk, "uint8"), "int32")

    @T.prim_func(s_tir=True)
    def sums(
        A: T.Buffer((1,), "uint32", offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:1], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + code(A, vk) * T.cast(B[vi, vk], "int32")

    return sums


def _pixel_instruction(lanes: int):
    weights_type, sums_type = f"int8x{4 * lanes}", f"int32x{lanes}"

    def summed(sums, word, weights):
        return _multiplied(_X86, lanes, sums, T.reinterpret(word, dtype="int32"), weights)

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((1,), "uint32", offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:1], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = summed(
                C.vload([0], dtype=sums_type), A[0], B.vload([0, 0], dtype=weights_type)
            )

    return dot


def _added_up(lanes: int):
    @T.prim_func(s_tir=True)
    def sums(
        B: T.Buffer((lanes, 1), "uint32", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], B[0:lanes, 0:1])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(code_of(B[vi, 0], vk), "int32")

    return sums


def _added_by(instruction: str, lanes: int):
    sums_type, words_type, codes_type = f"int32x{lanes}", f"uint32x{lanes}", f"int8x{4 * lanes}"

    def summed(sums, words):
        codes = T.reinterpret(words, dtype=codes_type)
        return _multiplied(instruction, lanes, sums, T.int32(_ONES), codes)

    @T.prim_func(s_tir=True)
    def dot(
        B: T.Buffer((lanes, 1), "uint32", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], B[0:lanes, 0:1])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = summed(
                C.vload([0], dtype=sums_type), B.vload([0, 0], dtype=words_type)
            )

    return dot


def word_of_codes(codes: Sequence[tirx.Expr]) -> tirx.Expr:
    """Up to four codes as one word, the first one lowest."""
    parts = [
        (tirx.Cast("uint32", code) & tirx.const(255, "uint32")) << tirx.const(8 * place, "uint32")
        for place, code in enumerate(codes)
    ]
    return reduce(lambda a, b: a | b, parts)


def code_of(word: tirx.Expr, place: tirx.Expr, kind: str = "int8") -> tirx.Expr:
    """One code of a word."""
    return tirx.Cast(kind, word >> tirx.Cast("uint32", place * 8))


def flipped(value: tirx.Expr, *, kind: str) -> tirx.Expr:
    """A code of the other sign: 128 more as `uint8`, 128 less as `int8`."""
    highest = tirx.const(-128 if kind == "uint8" else 128, str(value.ty.dtype))
    return tirx.reinterpret(kind, value ^ highest)


def byte_product(value: tirx.Expr, weight: tirx.Expr, *, added: int) -> tirx.Expr:
    """The product of two codes, so much `added` to the first one."""
    wide = tirx.Cast(_KIND, value)
    if added:
        wide = wide + tirx.const(added, _KIND)
    return wide * tirx.Cast(_KIND, weight)


def compensation(
    program: Program, weights: te.Tensor, chunk: tirx.Expr, lane: tirx.Expr
) -> tirx.Expr:
    """What to add to the sums of a column, from the last slot of weights [chunks, slots, lanes,
    width]: byte 0 of all lanes, then byte 1, …"""
    _, slots, lanes, width = (int(extent) for extent in weights.shape)
    parts = []
    for byte in range(QUAD):
        at = program.simplify.split(lane + byte * lanes, width)
        low = tirx.Cast(_KIND, weights(chunk, slots - 1, *at)) & tirx.const(255, _KIND)
        parts.append(low << tirx.const(8 * byte, _KIND))
    return reduce(lambda a, b: a | b, parts)
