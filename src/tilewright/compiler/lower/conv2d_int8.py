"""The integer convolution by dot products of bytes, see `dot_convolution`.

Dot products of bytes are tensor intrinsics: C[lane] += Σ (A[k] + offset) * B[lane, k] over four
bytes. `vpdpbusd` of x86 takes A unsigned, so signed data is offset by 128, a flip of each byte's
highest bit.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from functools import cache, reduce

from tvm import tirx
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower.dot_convolution import Dots, accumulated, scheduled
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.codes import OFFSET
from tilewright.kernels.conv2d_int8 import SPEC, compensated
from tilewright.kernels.convolution import convolution
from tilewright.kernels.ports import output_block


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


_KIND = "int32"


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    workload, settings = program.workload, program.settings
    lanes = output_block(program.candidate.forms, settings)
    offset = compensated(workload, settings)
    kind = program.operand(convolution(workload).data).type.dtype
    dots = Dots(
        spec=SPEC,
        product=lambda value, weight: _product(value, weight, offset=offset),
        instruction=byte_dot(lanes, kind) if SPEC.terms(settings) > 1 else "",
    )
    total = program.in_blocks(accumulated(program, dots), 1, lanes)

    def compensating(position: Index) -> tirx.Expr:
        chunk, lane = program.simplify.split(position[1], lanes)
        return total(position) + _compensation(program, chunk, lane, lanes)

    program.set_anchor(compensating if offset else total)
    return scheduled(program, dots, resources)


def _product(value: tirx.Expr, weight: tirx.Expr, *, offset: bool) -> tirx.Expr:
    wide = tirx.Cast(_KIND, value)
    if offset:
        wide = wide + tirx.const(OFFSET, _KIND)
    return wide * tirx.Cast(_KIND, weight)


def _compensation(program: Program, chunk: tirx.Expr, lane: tirx.Expr, lanes: int) -> tirx.Expr:
    """-128 Σw of a channel, from the weights' last slot: byte 0 of all lanes, then byte 1, …"""
    weights = program.tensors[convolution(program.workload).weight]
    last, width = int(weights.shape[1]) - 1, int(weights.shape[3])
    parts = []
    for byte in range(4):
        place = lane + byte * lanes
        part = weights(chunk, last, tirx.floordiv(place, width), tirx.floormod(place, width))
        low = tirx.Cast(_KIND, part) & tirx.const(255, _KIND)
        parts.append(low << tirx.const(8 * byte, _KIND))
    return reduce(lambda a, b: a | b, parts)
