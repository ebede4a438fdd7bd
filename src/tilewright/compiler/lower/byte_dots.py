"""Dot products of bytes as tensor intrinsics: C[lane] += Σ (A[k] + offset) * B[lane, k] over four
bytes. `vpdpbusd` of x86 takes A unsigned, so signed data is offset by 128, a flip of each byte's
highest bit.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from functools import cache, reduce

from tvm import te, tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower.program import Program
from tilewright.kernels.codes import OFFSET, QUAD

_KIND = "int32"


@cache
def byte_dot(lanes: int, dtype: str) -> str:
    """The registered intrinsic for 4, 8 or 16 lanes and data of `uint8` or `int8`."""
    name = f"tilewright_vpdpbusd_{lanes}_{dtype}"
    flip, offset = (0x80808080 - (1 << 32), 128) if dtype == "int8" else (0, 0)
    TensorIntrin.register(name, _meaning(lanes, dtype, offset), _instruction(lanes, dtype, flip))
    return name


def _meaning(lanes: int, dtype: str, offset: int):
    # a sum with 0 would not match the sums of a kernel on unsigned data
    def widened(code):
        wide = T.cast(code, "int32")
        return wide + offset if offset else wide

    @T.prim_func(s_tir=True)
    def sums(
        A: T.Buffer((4,), dtype, offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + widened(A[vk]) * T.cast(B[vi, vk], "int32")

    return sums


def _instruction(lanes: int, dtype: str, flip: int):
    # flipped before it is broadcast: LLVM does not come to an end over a vector flipped by a vector
    intrinsic = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    bytes_type, weights_type, sums_type = f"{dtype}x4", f"int8x{4 * lanes}", f"int32x{lanes}"

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((4,), dtype, offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(intrinsic),
                C.vload([0], dtype=sums_type),
                T.reinterpret(
                    T.broadcast(
                        T.bitwise_xor(
                            T.reinterpret(A.vload([0], bytes_type), dtype="int32"), T.int32(flip)
                        ),
                        lanes,
                    ),
                    dtype=weights_type,
                ),
                B.vload([0, 0], dtype=weights_type),
                dtype=sums_type,
            )

    return dot


def byte_product(value: tirx.Expr, weight: tirx.Expr, *, offset: bool) -> tirx.Expr:
    """The product of two codes, 128 added to the first where that is signed (`offset`)."""
    wide = tirx.Cast(_KIND, value)
    if offset:
        wide = wide + tirx.const(OFFSET, _KIND)
    return wide * tirx.Cast(_KIND, weight)


def compensation(
    program: Program, weights: te.Tensor, chunk: tirx.Expr, lane: tirx.Expr
) -> tirx.Expr:
    """-128 Σw of a column, from the last slot of weights [chunks, slots, lanes, width]: byte 0 of
    all lanes, then byte 1, …"""
    _, slots, lanes, width = (int(extent) for extent in weights.shape)
    parts = []
    for byte in range(QUAD):
        at = program.simplify.split(lane + byte * lanes, width)
        low = tirx.Cast(_KIND, weights(chunk, slots - 1, *at)) & tirx.const(255, _KIND)
        parts.append(low << tirx.const(8 * byte, _KIND))
    return reduce(lambda a, b: a | b, parts)
