"""Schedule of the dense layer in tile registers.

[the data rounded, filled up to whole tiles]
parallel (row tile, column chunk)     # `order` decides which is outside
  the product of the whole depth      # one call, sums in tile registers
  epilogue of the tile
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_tiles import tile_product, tiles_text
from tilewright.compiler.lower.dense_packed import vectorize_columns
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.half_dots import half_product
from tilewright.compiler.lower.loops import finish_tile, spread
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_amx import WIDE, covered
from tilewright.kernels.halves import PAIR
from tilewright.kernels.matrix_products import product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    workload, settings = program.workload, program.settings
    dense, lanes = product(workload), target.lanes(workload.computed_in)
    block, tile_rows = settings["block"], settings["tile_rows"]
    schedule = program.schedule(program.in_blocks(_accumulator(program), -1, block))
    spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    *outer, chunk, lane, pair, term = schedule.get_loops(anchor)
    tiles, row = schedule.split(outer.pop(dense.row_axis or 0), [None, tile_rows])
    by_rows = settings["order"] == "rows"
    pieces = [*outer, tiles, chunk] if by_rows else [*outer, chunk, tiles]
    schedule.reorder(*pieces, row, lane, pair, term)
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    software = not {"amx-tile", "amx-bf16"} <= {*target.features}
    text = tiles_text(tile_rows, block, software=software)
    schedule.annotate(parallel, "pragma_import_llvm", text)
    last = finish_tile(schedule, anchor, parallel, vectors=False)
    vectorize_columns(schedule, last, dense.columns, lanes)
    start = schedule.decompose_reduction(anchor, row)
    schedule.vectorize(schedule.get_loops(start)[-1])
    _, depth, _ = covered(workload, settings)
    schedule.tensorize(row, tile_product(tile_rows, block, depth))
    return schedule


def _accumulator(program: Program) -> te.Tensor:
    dense = product(program.workload)
    data, weights = program.operand(dense.data), program.tensors[dense.weight]
    rows, depth, chunks = covered(program.workload, program.settings)

    *outside, _ = data.type.shape
    axis = dense.row_axis or 0
    outside[axis] = rows

    element = rows_in_slots(program, data, WIDE, mathematics.half, copied=False)

    def rounded(row: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
        position = [tirx.const(0, "int32")] * len(outside)
        position[axis] = tirx.min(row, dense.rows - 1) if rows > dense.rows else row
        return element(*position, at)

    copy = program.compute((rows, depth), rounded, "copy")
    axes = program.reduce_axes(pair=depth // PAIR, term=PAIR)
    pair, term = (axis.var for axis in axes)

    def compute(*position: tirx.Expr) -> tirx.Expr:
        *leading, chunk, lane = position
        value = copy(leading[axis], pair * PAIR + term)
        return te.sum(half_product(value, weights(chunk, pair, lane, term)), axis=axes)

    return program.compute((*outside, chunks, program.settings["block"]), compute, "accumulator")
