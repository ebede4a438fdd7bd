"""Schedule of the integer convolution.

parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  column tile
    in chunk, kh, kw, four lanes of it          # reduction
      out chunk, row, column                    # register tile, unrolled
        out lane, input channel                 # one dot-product instruction, or vectorised
    epilogue of the tile, in vectors
    plain results only: the tile is written channel by channel

Dot products of bytes are tensor intrinsics: C[lane] += Σ (A[k] + offset) * B[lane, k] over four
bytes. `vpdpbusd` of x86 takes A unsigned, so signed data is offset by 128, a flip of each byte's
highest bit.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from functools import cache, reduce

from tvm import te, tirx
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower.conv2d_windows import (
    clamped,
    shared_tiles,
)
from tilewright.compiler.lower.loops import fill_ahead, finish_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_int8 import OFFSET, compensated, copied, input_block, quad
from tilewright.kernels.convolution import (
    Convolution,
    Plane,
    convolution,
    reach,
    whole_tiles,
)
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
    conv, workload = convolution(program.workload), program.workload
    lanes = output_block(program.candidate.forms, program.settings)
    total = program.in_blocks(_accumulator(program, conv, lanes), 1, lanes)

    def compensating(position: Index) -> tirx.Expr:
        chunk, lane = program.simplify.split(position[1], lanes)
        return total(position) + _compensation(program, chunk, lane, lanes)

    program.set_anchor(compensating if compensated(workload, program.settings) else total)
    if program.result_form == PLAIN:  # which would be computed lane by lane
        last = len(workload.types) - 1
        program.values[last] = program.kept(program.operand(last), blocked(lanes), "epilogue")
    schedule = program.schedule()
    _schedule(schedule, conv, program, resources)
    return schedule


def _source(program: Program, conv: Convolution, plane: Plane, block: int):
    """A function from (n, chunk, row, column, lane) to a byte: of a copy with its border of zeros,
    or of the data itself with the surplus clamped to the last row and column."""
    if not copied(conv, program.candidate.forms, program.settings):
        data = clamped(program, conv, plane)
        return lambda n, chunk, y, x, lane: data.read([n, chunk * block + lane, y, x])
    data = program.operand(conv.data)
    rows, columns = reach(conv, plane)
    top, left = conv.padding[:2]
    n, c, h, w = data.type.shape

    def compute(n, chunk, y, x, lane):
        channel = chunk * block + lane
        guards = []
        if conv.padded or rows > h or columns > w:
            guards += [y >= top, y < h + top, x >= left, x < w + left]
        if c % block:
            guards.append(channel < c)
        value = data.read([n, channel, y - top, x - left])
        if not guards:
            return value
        return tirx.if_then_else(tirx.all(*guards), value, tirx.const(0, data.type.dtype))

    return program.compute((n, -(-c // block), rows, columns, block), compute, "copy")


def _accumulator(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    settings, plane = program.settings, whole_tiles(conv, program.settings)
    weights, width = program.tensors[conv.weight], quad(settings)
    block = input_block(conv, program.candidate.forms, settings)
    source = _source(program, conv, plane, block)
    inside, quads = -(-conv.group_in // block), block // width
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    axes = program.reduce_axes(in_chunk=inside, ky=kh, kx=kw, quad=quads, byte=width)
    chunk, ky, kx, quarter, byte = (axis.var for axis in axes)

    def compute(n, o, y, x, lane):
        first = chunk
        if conv.groups > 1:
            first = tirx.floordiv(o * lanes, conv.group_out) * inside + chunk
        value = source(n, first, y * sh + ky * dh, x * sw + kx * dw, quarter * width + byte)
        wide = tirx.Cast(_KIND, value)
        if compensated(program.workload, settings):
            wide = wide + tirx.const(OFFSET, _KIND)
        slot = ((chunk * kh + ky) * kw + kx) * quads + quarter
        return te.sum(wide * tirx.Cast(_KIND, weights(o, slot, lane, byte)), axis=axes)

    shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
    return program.compute(shape, compute, "accumulator")


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


def _schedule(
    schedule: Schedule, conv: Convolution, program: Program, resources: Resources
) -> None:
    settings = program.settings
    if copied(conv, program.candidate.forms, settings):
        fill_ahead(schedule, "copy", resources.threads)
    anchor = schedule.get_sblock("accumulator")
    n, o, y, x, lane, chunk, ky, kx, quarter, byte = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    y_outer, y_inner = schedule.split(y, [None, settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    pieces, serial = shared_tiles(conv, settings, n, (o_outer, y_outer, x_outer))
    tile = (y_inner, x_inner, o_inner)
    inside = (lane, byte) if quad(settings) > 1 else (byte, lane)
    schedule.reorder(*pieces, *serial, chunk, ky, kx, quarter, *tile, *inside)
    parallel = share_out(schedule, pieces)
    for loop in tile:
        schedule.unroll(loop)
    home = serial[0] if serial else parallel
    if program.result_form == PLAIN:
        epilogue = schedule.get_sblock("epilogue")
        schedule.reverse_compute_at(epilogue, home, preserve_unit_loops=True)
        schedule.set_scope(epilogue, 0, "local")
        schedule.vectorize(schedule.get_loops(epilogue)[-1])
    finish_tile(schedule, anchor, home, vectors=program.result_form != PLAIN)
    if quad(settings) == 1:
        schedule.vectorize(lane)
        schedule.decompose_reduction(anchor, chunk)
        return
    start = schedule.decompose_reduction(anchor, chunk)
    schedule.vectorize(schedule.get_loops(start)[-1])
    lanes = output_block(program.candidate.forms, settings)
    schedule.tensorize(lane, byte_dot(lanes, program.operand(conv.data).type.dtype))
