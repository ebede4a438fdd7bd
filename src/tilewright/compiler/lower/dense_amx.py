"""Schedule of the dense layers in tile registers.

[the data rounded, filled up to whole tiles]
parallel pieces, each of several      # registers are set up once for each
  (row tile, column chunk)            # `order` decides which is outside
    the product of the whole depth    # one call, sums in tile registers
    epilogue of the tile
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES, TileKind, Tiles
from tilewright.compiler.lower.amx_tiles import (
    dense_tiles,
    fetching,
    opened,
    shared_out,
    tensorized,
)
from tilewright.compiler.lower.dense_packed import vectorize_columns
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.loops import finish_tile, spread
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_amx import OF_HALVES, AmxDense
from tilewright.kernels.matrix_products import product

Taken = Callable[[tirx.Expr], tirx.Expr]


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel of bfloat16."""
    return lowered(program, OF_HALVES, HALVES, mathematics.half, target, resources)


def lowered(
    program: Program,
    spec: AmxDense,
    kind: TileKind,
    taken: Taken,
    target: Target,
    resources: Resources,
) -> Schedule:
    """The kernel of a spec, whose data is `taken` so."""
    workload, settings = program.workload, program.settings
    dense, lanes = product(workload), target.lanes(workload.computed_in)
    block, tile_rows = settings["block"], settings["tile_rows"]
    accumulator = _accumulator(program, spec, kind, taken)
    schedule = program.schedule(program.in_blocks(accumulator, -1, block))
    if spec.copied(workload, program.candidate.forms, settings):
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    *outer, chunk, lane, slot, term = schedule.get_loops(anchor)
    tiles_of_rows, row = schedule.split(outer.pop(dense.row_axis or 0), [None, tile_rows])
    by_rows = settings["order"] == "rows"
    pieces = [*outer, tiles_of_rows, chunk] if by_rows else [*outer, chunk, tiles_of_rows]
    schedule.reorder(*pieces, row, lane, slot, term)
    inner = [] if by_rows else [tiles_of_rows]
    parallel, home, loops = shared_out(schedule, pieces, [], inner, resources.threads)
    _, depth, chunks = spec.covered(workload, settings)
    lines, down = spec.lines(settings)
    tiles = Tiles(kind=kind, rows=lines, down=down, out=1, lanes=block, depth=spec.line)
    tiles = fetching(target, tiles, chunks * depth * block * spec.width, loops)
    opened(schedule, parallel, tiles, target)
    last = finish_tile(schedule, anchor, home, vectors=False)
    vectorize_columns(schedule, last, dense.columns, lanes)
    tensorized(schedule, anchor, row, (tile_rows, block), dense_tiles(tiles, depth))
    return schedule


def _accumulator(program: Program, spec: AmxDense, kind: TileKind, taken: Taken) -> te.Tensor:
    dense, terms = product(program.workload), kind.terms
    data, weights = program.operand(dense.data), program.tensors[dense.weight]
    rows, depth, chunks = spec.covered(program.workload, program.settings)

    *outside, _ = data.type.shape
    axis = dense.row_axis or 0
    outside[axis] = rows
    element = rows_in_slots(program, data, spec.line, taken, copied=False)

    def whole(row: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
        position = [tirx.const(0, "int32")] * len(outside)
        position[axis] = tirx.min(row, dense.rows - 1) if rows > dense.rows else row
        return element(*position, at)

    copy = spec.copied(program.workload, program.candidate.forms, program.settings)
    source = program.compute((rows, depth), whole, "copy") if copy else whole
    axes = program.reduce_axes(slot=depth // terms, term=terms)
    slot, term = (axis.var for axis in axes)

    def compute(*position: tirx.Expr) -> tirx.Expr:
        *leading, chunk, lane = position
        value = source(leading[axis], slot * terms + term)
        return te.sum(kind.product(value, weights(chunk, slot, lane, term)), axis=axes)

    return program.compute((*outside, chunks, program.settings["block"]), compute, "accumulator")
