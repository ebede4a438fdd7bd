"""Schedule of the depthwise convolution.

parallel (n, channel chunk, group of `rows` row tiles)
  rows with their border into a scratch buffer     # padding = tile
  row tile, column tile
    ky, kx                                         # unrolled or not
      row, column                                  # register tile, unrolled
        lane                                       # vectorised
    epilogue of the tile
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.blocks import output_block
from tilewright.kernels.convolution import Convolution, convolution


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    settings = dict(program.candidate.settings)
    lanes = output_block(program.candidate.forms, settings)
    accumulator = _accumulate(program, conv, lanes)
    index = program.workload.anchor_index
    assert index is not None

    def read(position: Index) -> tirx.Expr:
        n, c, h, w = position
        chunk = program.simplify(tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        return accumulator(n, chunk, h, w, lane)

    program.set_step(index, Value(type=program.workload.step_types(index)[1], read=read))
    schedule = program.schedule()
    _schedule(schedule, conv, program)
    return schedule


def _tiled_plane(program: Program, conv: Convolution) -> tuple[int, int]:
    """Rows and columns of the result, filled up to whole tiles."""
    settings = dict(program.candidate.settings)
    tiles = int(settings["tile_height"]), int(settings["tile_width"])
    rows, columns = (
        -(-extent // tile) * tile
        for extent, tile in zip((conv.out_height, conv.out_width), tiles, strict=True)
    )
    return rows, columns


def _needed(program: Program, conv: Convolution) -> tuple[int, int]:
    """Rows and columns of the input, its border included, that whole tiles read."""
    rows, columns = (
        (extent - 1) * stride + (kernel - 1) * dilation + 1
        for extent, stride, kernel, dilation in zip(
            _tiled_plane(program, conv), conv.strides, conv.kernel, conv.dilation, strict=True
        )
    )
    return rows, columns


def _with_border(program: Program, conv: Convolution) -> Value:
    """The input at positions that count the padding; zero outside."""
    data = program.operand(conv.data)
    top, left, _, _ = conv.padding
    height, width = _needed(program, conv)
    if not (top or left or height > conv.in_height or width > conv.in_width):
        return data

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        inside = tirx.all(y >= top, y < conv.in_height + top, x >= left, x < conv.in_width + left)
        zero = tirx.const(0, data.type.dtype)
        return tirx.if_then_else(inside, data.read([n, c, y - top, x - left]), zero)

    return Value(type=data.type, read=read)


def _staged(program: Program, conv: Convolution, block: int) -> Value:
    """The input with its border as a stage called `padded`, in channel blocks of `block`."""
    source = _with_border(program, conv)
    physical = (conv.batch, conv.in_channels // block, *_needed(program, conv), block)

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], physical)
        return source.read([n, chunk * block + lane, y, x])

    stage = te.compute(physical, compute, name="padded")

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        chunk = program.simplify(tirx.floordiv(c, block))
        return stage(n, chunk, y, x, program.simplify(tirx.floormod(c, block)))

    return Value(type=source.type, read=read)


def _accumulate(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    if program.candidate.setting("padding") == "tile":
        data = _staged(program, conv, lanes if conv.group_out == 1 else 1)
    else:
        data = _with_border(program, conv)
    weights = program.tensors[conv.weight]
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    ky = te.reduce_axis((0, kh), "ky")
    kx = te.reduce_axis((0, kw), "kx")
    plane = _tiled_plane(program, conv)
    shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
    program.simplify.announce([ky.var, kx.var], (kh, kw))

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], shape)
        channel = program.simplify(tirx.floordiv(chunk * lanes + lane, conv.group_out))
        value = data.read([n, channel, y * sh + ky.var * dh, x * sw + kx.var * dw])
        return te.sum(value * weights(chunk, ky, kx, lane), axis=[ky, kx])

    return te.compute(shape, compute, name="accumulator")


def _schedule(schedule: Schedule, conv: Convolution, program: Program) -> None:
    settings = dict(program.candidate.settings)
    anchor = schedule.get_sblock("accumulator")
    n, chunk, y, x, lane, ky, kx = schedule.get_loops(anchor)
    y_group, y_outer, y_inner = schedule.split(y, [None, settings["rows"], settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    schedule.reorder(n, chunk, y_group, y_outer, x_outer, ky, kx, y_inner, x_inner, lane)
    parallel = schedule.fuse(n, chunk, y_group)
    schedule.parallel(parallel)
    for loop in (y_inner, x_inner):
        schedule.unroll(loop)
    if settings["unroll"] == "taps":
        schedule.unroll(ky)
    schedule.unroll(kx)
    schedule.vectorize(lane)
    schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, x_outer, preserve_unit_loops=True)
    if program.result_form != PLAIN:
        schedule.vectorize(schedule.get_loops(result)[-1])
    if settings["padding"] == "tile":
        padded = schedule.get_sblock("padded")
        schedule.compute_at(padded, parallel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(padded)[-1])
    schedule.decompose_reduction(anchor, ky)
