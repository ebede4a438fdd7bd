"""Dot products of whole numbers of 16 bits as a tensor intrinsic: C[lane] += A[0] * B[lane, 0] +
A[1] * B[lane, 1], of which the lowest 32 bits are kept (`vpdpwssd` of x86)."""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from functools import cache

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T


@cache
def int16_dot(lanes: int) -> str:
    """The registered intrinsic for 4, 8 or 16 lanes."""
    name = f"tilewright_vpdpwssd_{lanes}"
    TensorIntrin.register(name, _meaning(lanes), _instruction(lanes))
    return name


def int16_product(value: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
    """The product of two numbers of 16 bits, in 32."""
    return tirx.Cast("int32", value) * tirx.Cast("int32", weight)


def _meaning(lanes: int):
    @T.prim_func(s_tir=True)
    def sums(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int16", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 2):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + int16_product(A[vk], B[vi, vk])

    return sums


def _instruction(lanes: int):
    sums_type, pairs_type = f"int32x{lanes}", f"int16x{2 * lanes}"
    name = f"llvm.x86.avx512.vpdpwssd.{32 * lanes}"

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((2,), "int16", offset_factor=1),
        B: T.Buffer((lanes, 2), "int16", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name),
                C.vload([0], dtype=sums_type),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], dtype="int16x2"), dtype="int32"), lanes),
                    dtype=pairs_type,
                ),
                B.vload([0, 0], dtype=pairs_type),
                dtype=sums_type,
            )

    return dot
