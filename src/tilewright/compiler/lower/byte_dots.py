"""Dot products of bytes as tensor intrinsics: C[lane] += Σ (A[k] + added) * B[lane, k] over four
bytes. `vpdpbusd` of x86 and `usdot` of ARM take A unsigned, so 128 is added to signed data; `sdot`
of ARM takes it signed, so 128 is taken from unsigned data. Either is a flip of each byte's highest
bit.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

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


def byte_dot(settings: Settings, lanes: int, dtype: str) -> str:
    """The registered intrinsic of a setting for 4, 8 or 16 lanes and data of `uint8` or `int8`;
    empty where bytes are widened."""
    dot = str(settings["dot"])
    return "" if dot == WIDEN else _registered(dot, lanes, dtype, offset(settings, dtype))


def byte_dot_text(settings: Settings, lanes: int) -> str:
    """LLVM's text of the function that the intrinsic calls; empty where it calls none."""
    dot = str(settings["dot"])
    return "" if dot in (WIDEN, _X86) else arm_dot_text(dot, lanes, _function(dot, lanes))


def _function(dot: str, lanes: int) -> str:
    return f"tilewright_{dot}_{lanes}"


@cache
def _registered(dot: str, lanes: int, dtype: str, added: int) -> str:
    name = f"tilewright_{dot}_{lanes}_{dtype}"
    flip = 0x80808080 - (1 << 32) if added else 0
    TensorIntrin.register(
        name, _meaning(lanes, dtype, added), _instruction(dot, lanes, dtype, flip)
    )
    return name


def _meaning(lanes: int, dtype: str, added: int):
    # a sum with 0 would not match the sums of a kernel that adds nothing
    def widened(code):
        wide = T.cast(code, "int32")
        return wide + added if added else wide

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


def _instruction(instruction: str, lanes: int, dtype: str, flip: int):
    bytes_type, weights_type, sums_type = f"{dtype}x4", f"int8x{4 * lanes}", f"int32x{lanes}"

    def summed(sums, data, weights):
        # flipped before it is broadcast: LLVM does not come to an end over a vector flipped by one
        word = T.bitwise_xor(T.reinterpret(data, dtype="int32"), T.int32(flip))
        if instruction != _X86:
            return T.call_extern(sums_type, _function(instruction, lanes), sums, word, weights)
        return T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"),
            sums,
            T.reinterpret(T.broadcast(word, lanes), dtype=weights_type),
            weights,
            dtype=sums_type,
        )

    @T.prim_func(s_tir=True)
    def dot(
        A: T.Buffer((4,), dtype, offset_factor=1),
        B: T.Buffer((lanes, 4), "int8", offset_factor=1),
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:4], B[0:lanes, 0:4])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = summed(
                C.vload([0], dtype=sums_type),
                A.vload([0], bytes_type),
                B.vload([0, 0], dtype=weights_type),
            )

    return dot


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
