"""Schedule of the direct convolution.

parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  column tile
    in chunk, kh, kw, in lane                   # reduction
      out chunk, row, column                    # register tile, unrolled
        out lane                                # vectorised
    epilogue of the tile
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.core.records import Device
from tilewright.kernels.conv2d_direct import input_block, output_block
from tilewright.kernels.convolution import Convolution, convolution


def lower(program: Program, device: Device) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    settings = dict(program.candidate.settings)
    lanes = output_block(conv, program.candidate.layouts, settings)
    accumulator = _accumulate(program, conv, lanes)
    index = program.workload.anchor_index
    assert index is not None
    result_type = program.workload.step_types(index)[1]

    def read(position: Index) -> tirx.Expr:
        n, c, h, w = position
        chunk = program.simplify(tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        return accumulator(n, chunk, h, w, lane)

    program.set_step(index, Value(type=result_type, read=read))
    schedule = program.schedule()
    _schedule(schedule, conv, program, device)
    return schedule


def _rounded(program: Program, conv: Convolution) -> tuple[int, int]:
    """Rows and columns that whole tiles cover; the surplus is computed and dropped."""
    settings = dict(program.candidate.settings)
    height, width = int(settings["tile_height"]), int(settings["tile_width"])
    return -(-conv.out_height // height) * height, -(-conv.out_width // width) * width


def _source(program: Program, conv: Convolution, plane: tuple[int, int]) -> Value:
    """The input as whole tiles read it: with its border of zeros as a stage of its own, or with
    the surplus clamped to the last row and column."""
    data = program.operand(conv.data)
    reach = [
        (extent - 1) * stride + (kernel - 1) * dilation + 1
        for extent, stride, kernel, dilation in zip(
            plane, conv.strides, conv.kernel, conv.dilation, strict=True
        )
    ]
    if conv.padded:
        return _padded(program, conv, (reach[0], reach[1]))
    last = (conv.in_height - 1, conv.in_width - 1)
    if all(extent - 1 <= end for extent, end in zip(reach, last, strict=True)):
        return data

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        if reach[0] - 1 > last[0]:
            y = tirx.min(y, tirx.const(last[0], "int32"))
        if reach[1] - 1 > last[1]:
            x = tirx.min(x, tirx.const(last[1], "int32"))
        return data.read([n, c, y, x])

    return Value(type=data.type, read=read)


def _padded(program: Program, conv: Convolution, reach: tuple[int, int]) -> Value:
    data = program.operand(conv.data)
    top, left = conv.padding[:2]
    n, c, h, w = data.type.shape
    block = input_block(conv, program.candidate.layouts, len(program.workload.arguments))
    physical = (n, c // block, *reach, block)

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], physical)
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        value = data.read([n, chunk * block + lane, y - top, x - left])
        return tirx.if_then_else(inside, value, tirx.const(0, "float32"))

    stage = te.compute(physical, compute, name="padded")

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        chunk = program.simplify(tirx.floordiv(c, block))
        return stage(n, chunk, y, x, program.simplify(tirx.floormod(c, block)))

    return Value(type=data.type, read=read)


def _accumulate(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    plane = _rounded(program, conv)
    data = _source(program, conv, plane)
    weights = program.tensors[conv.weight]
    block = input_block(conv, program.candidate.layouts, len(program.workload.arguments))
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    chunk = te.reduce_axis((0, conv.group_in // block), "in_chunk")
    ky = te.reduce_axis((0, kh), "ky")
    kx = te.reduce_axis((0, kw), "kx")
    inner = te.reduce_axis((0, block), "in_lane")
    chunks = conv.out_channels // lanes
    program.simplify.announce(
        [a.var for a in (chunk, ky, kx, inner)], (conv.group_in // block, kh, kw, block)
    )

    def compute(n, o, y, x, lane):
        program.simplify.announce([n, o, y, x, lane], (conv.batch, chunks, *plane, lanes))
        channel = chunk.var * block + inner.var
        if conv.groups > 1:
            group = tirx.floordiv(o * lanes, conv.group_out)
            channel = group * conv.group_in + channel
        product = data.read([n, channel, y * sh + ky.var * dh, x * sw + kx.var * dw])
        return te.sum(product * weights(o, chunk, ky, kx, inner, lane), axis=[chunk, ky, kx, inner])

    return te.compute((conv.batch, chunks, *plane, lanes), compute, name="accumulator")


def _schedule(schedule: Schedule, conv: Convolution, program: Program, device: Device) -> None:
    settings = dict(program.candidate.settings)
    if conv.padded:
        _spread_padding(schedule, device)
    anchor = schedule.get_sblock("accumulator")
    n, o, y, x, lane, chunk, ky, kx, inner = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    y_outer, y_inner = schedule.split(y, [None, settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    serial = [x_outer] if conv.out_height > 1 else []
    pixels = [y_outer] if serial else [y_outer, x_outer]
    pieces = [n, o_outer, *pixels] if settings["order"] == "channels" else [n, *pixels, o_outer]
    schedule.reorder(*pieces, *serial, chunk, ky, kx, inner, o_inner, y_inner, x_inner, lane)
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    for loop in (o_inner, y_inner, x_inner):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, serial[0] if serial else parallel, preserve_unit_loops=True)
    if program.result_layout != "plain":
        schedule.vectorize(schedule.get_loops(result)[-1])
    schedule.decompose_reduction(anchor, chunk)


def _spread_padding(schedule: Schedule, device: Device) -> None:
    block = schedule.get_sblock("padded")
    loops = schedule.get_loops(block)
    lanes = int(schedule.get(loops[-1]).extent)
    rows = schedule.fuse(*loops[:3])
    if device.threads > 1:
        schedule.parallel(rows)
    if lanes > 1:
        schedule.vectorize(schedule.get_loops(block)[-1])
