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

from tilewright.compiler.lower.conv2d_windows import with_border
from tilewright.compiler.lower.loops import finish_tile, register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import in_type
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_depthwise import in_codes
from tilewright.kernels.convolution import Convolution, convolution, reach, whole_tiles
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv, settings = convolution(program.workload), program.settings
    lanes = output_block(program.candidate.forms, settings)
    total = program.in_blocks(_accumulator(program, conv, lanes), 1, lanes)
    codes = in_codes(program.workload)
    schedule = program.schedule(lambda at: tirx.Cast("int32", total(at)) if codes else total(at))
    anchor = schedule.get_sblock("accumulator")
    n, chunk, y, x, lane, ky, kx = schedule.get_loops(anchor)
    y_group, y_outer, y_inner = schedule.split(y, [None, settings["rows"], settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    schedule.reorder(n, chunk, y_group, y_outer, x_outer, ky, kx, y_inner, x_inner, lane)
    parallel = share_out(schedule, [n, chunk, y_group])
    taps = [ky, kx] if settings["unroll"] == "taps" else [kx]
    register_tile(schedule, [y_inner, x_inner, *taps], lane)
    finish_tile(schedule, anchor, x_outer, vectors=program.result_form != PLAIN)
    if settings["padding"] == "tile":
        padded = schedule.get_sblock("padded")
        schedule.compute_at(padded, parallel, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(padded)[-1])
    schedule.decompose_reduction(anchor, ky)
    return schedule


def _accumulator(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    plane = whole_tiles(conv, program.settings)
    data, (rows, columns) = program.operand(conv.data), reach(conv, plane)
    if any(conv.padding[:2]) or rows > conv.in_height or columns > conv.in_width:
        data = with_border(program, conv, plane)
    data = in_type(data, "float32")
    if program.settings["padding"] == "tile":
        data = program.kept(data, blocked(lanes if conv.group_out == 1 else 1), "padded")
    weights = program.tensors[conv.weight]
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    ky, kx = program.reduce_axes(ky=kh, kx=kw)

    def compute(n, chunk, y, x, lane):
        channel = program.simplify(tirx.floordiv(chunk * lanes + lane, conv.group_out))
        value = data.read([n, channel, y * sh + ky.var * dh, x * sw + kx.var * dw])
        return te.sum(value * weights(chunk, ky, kx, lane), axis=[ky, kx])

    shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
    return program.compute(shape, compute, "accumulator")
