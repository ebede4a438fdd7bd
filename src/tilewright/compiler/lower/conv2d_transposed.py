"""Schedule of the transposed convolution.

input with its border                           # parallel, a stage of its own
parallel (n, out chunk tile, row position)      # `order` decides which is outside
  column tile
    row phase, column phase
      in chunk, tap, tap, in lane               # reduction
        out chunk, column                       # register tile, unrolled
          out lane                              # vectorised
    epilogue of all phases of the tile
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import finish_tile, register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, bordered, selected
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_transposed import (
    TransposedConvolution,
    input_block,
    transposed_convolution,
)
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = transposed_convolution(program.workload)
    lanes = output_block(program.candidate.forms, program.settings)
    accumulator = _accumulator(program, conv, lanes)

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        split = program.simplify.split
        chunk, lane = split(c, lanes)
        return accumulator(
            n, chunk, *split(y, conv.rows.count), *split(x, conv.columns.count), lane
        )

    schedule, settings = program.schedule(read), program.settings
    *outer, _, vector = schedule.get_loops(schedule.get_sblock("padded"))
    share_out(schedule, outer)
    schedule.vectorize(vector)
    anchor = schedule.get_sblock("accumulator")
    n, o, qy, ry, qx, rx, lane, *reduction = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    x_outer, x_inner = schedule.split(qx, [None, settings["tile_width"]])
    pieces = [n, o_outer, qy] if settings["order"] == "channels" else [n, qy, o_outer]
    schedule.reorder(*pieces, x_outer, ry, rx, *reduction, x_inner, o_inner, lane)
    share_out(schedule, pieces)
    register_tile(schedule, [o_inner, x_inner], lane)
    finish_tile(schedule, anchor, x_outer, vectors=program.result_form != PLAIN)
    schedule.decompose_reduction(anchor, reduction[0])
    return schedule


def _accumulator(program: Program, conv: TransposedConvolution, lanes: int) -> te.Tensor:
    block = input_block(conv, program.candidate.forms)
    weights = program.tensors[conv.weight]
    rows, columns = conv.rows, conv.columns
    tile = program.settings["tile_width"]
    across = -(-columns.positions // tile) * tile
    (top, bottom), (left, right) = rows.border(rows.positions), columns.border(across)
    data = bordered(program.operand(conv.data), (top, left, bottom, right))
    padded = program.stage(data, blocked(block), "padded")
    axes = program.reduce_axes(
        in_chunk=conv.group_in // block, tap_y=rows.taps, tap_x=columns.taps, in_lane=block
    )
    inputs, ty, tx, inner = (axis.var for axis in axes)

    def compute(*position):
        n, o, qy, ry, qx, rx, lane = position
        chunk = inputs
        if conv.groups > 1:
            group = program.simplify(tirx.floordiv(o * lanes, conv.group_out))
            chunk = group * (conv.group_in // block) + inputs
        y = qy + selected(rows.base, ry, "int32") + top - ty * rows.advance
        x = qx + selected(columns.base, rx, "int32") + left - tx * columns.advance
        product = padded(n, chunk, y, x, inner) * weights(o, ry, rx, inputs, ty, tx, inner, lane)
        return te.sum(product, axis=axes)

    plane = (rows.positions, rows.count, across, columns.count)
    shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
    return program.compute(shape, compute, "accumulator")
