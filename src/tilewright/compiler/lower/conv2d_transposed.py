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

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.blocks import output_block
from tilewright.kernels.conv2d_transposed import (
    Phases,
    TransposedConvolution,
    input_block,
    transposed_convolution,
)


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = transposed_convolution(program.workload)
    lanes = output_block(program.candidate.forms, dict(program.candidate.settings))
    accumulator = _accumulate(program, conv, lanes)
    index = program.workload.anchor_index
    assert index is not None

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        chunk = program.simplify(tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        return accumulator(
            n, chunk, *_phase(program, y, conv.rows), *_phase(program, x, conv.columns), lane
        )

    program.set_step(index, Value(type=program.workload.step_types(index)[1], read=read))
    schedule = program.schedule()
    _schedule(schedule, program)
    return schedule


def _phase(program: Program, position: tirx.Expr, axis: Phases) -> list[tirx.Expr]:
    return [
        program.simplify(tirx.floordiv(position, axis.count)),
        program.simplify(tirx.floormod(position, axis.count)),
    ]


def _tiled_positions(program: Program, conv: TransposedConvolution) -> int:
    """Positions of a phase along the columns, filled up to whole tiles."""
    tile = int(program.candidate.setting("tile_width"))
    return -(-conv.columns.positions // tile) * tile


def _bordered(program: Program, conv: TransposedConvolution, block: int) -> te.Tensor:
    """The input with zeros around it as a stage, in channel blocks of `block`."""
    data = program.operand(conv.data)
    n, c, h, w = data.type.shape
    top, bottom = conv.rows.border(conv.rows.positions)
    left, right = conv.columns.border(_tiled_positions(program, conv))
    shape = (n, c // block, top + h + bottom, left + w + right, block)

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], shape)
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        value = data.read([n, chunk * block + lane, y - top, x - left])
        return tirx.if_then_else(inside, value, tirx.const(0, data.type.dtype))

    return te.compute(shape, compute, name="padded")


def _offset(phase: tirx.Expr, base: tuple[int, ...]) -> tirx.Expr:
    """`base[phase]` as an expression."""
    result: tirx.Expr = tirx.const(base[-1], "int32")
    for index in range(len(base) - 2, -1, -1):
        result = tirx.Select(phase == index, tirx.const(base[index], "int32"), result)
    return result


def _accumulate(program: Program, conv: TransposedConvolution, lanes: int) -> te.Tensor:
    block = input_block(conv, program.candidate.forms, len(program.workload.arguments))
    padded = _bordered(program, conv, block)
    weights = program.tensors[conv.weight]
    rows, columns = conv.rows, conv.columns
    top = rows.border(rows.positions)[0]
    left = columns.border(_tiled_positions(program, conv))[0]
    extents = (conv.group_in // block, rows.taps, columns.taps, block)
    names = ("in_chunk", "tap_y", "tap_x", "in_lane")
    axes = [te.reduce_axis((0, e), name) for e, name in zip(extents, names, strict=True)]
    inputs, ty, tx, inner = (axis.var for axis in axes)
    shape = (
        conv.batch, conv.out_channels // lanes, rows.positions, rows.count,
        _tiled_positions(program, conv), columns.count, lanes,
    )  # fmt: skip
    program.simplify.announce([inputs, ty, tx, inner], extents)

    def compute(*position):
        program.simplify.announce(position, shape)
        n, o, qy, ry, qx, rx, lane = position
        chunk = inputs
        if conv.groups > 1:
            group = program.simplify(tirx.floordiv(o * lanes, conv.group_out))
            chunk = group * (conv.group_in // block) + inputs
        y = qy + _offset(ry, rows.base) + top - ty * rows.advance
        x = qx + _offset(rx, columns.base) + left - tx * columns.advance
        product = padded(n, chunk, y, x, inner) * weights(o, ry, rx, inputs, ty, tx, inner, lane)
        return te.sum(product, axis=axes)

    return te.compute(shape, compute, name="accumulator")


def _schedule(schedule: Schedule, program: Program) -> None:
    settings = dict(program.candidate.settings)
    padded = schedule.get_sblock("padded")
    schedule.parallel(schedule.fuse(*schedule.get_loops(padded)[:3]))
    schedule.vectorize(schedule.get_loops(padded)[-1])
    anchor = schedule.get_sblock("accumulator")
    n, o, qy, ry, qx, rx, lane, *reduction = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    x_outer, x_inner = schedule.split(qx, [None, settings["tile_width"]])
    pieces = [n, o_outer, qy] if settings["order"] == "channels" else [n, qy, o_outer]
    schedule.reorder(*pieces, x_outer, ry, rx, *reduction, x_inner, o_inner, lane)
    schedule.parallel(schedule.fuse(*pieces))
    schedule.unroll(o_inner)
    schedule.unroll(x_inner)
    schedule.vectorize(lane)
    schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, x_outer, preserve_unit_loops=True)
    if program.result_form != PLAIN:
        schedule.vectorize(schedule.get_loops(result)[-1])
    schedule.decompose_reduction(anchor, reduction[0])
