"""Schedule of the batched matrix product.

    parallel (batch, column block, group of row tiles)
      columns of the right matrix into a scratch buffer     # pack
      row tile
        depth
          row                                               # register tile, unrolled
            column of the block                             # vectorised
        epilogue of the tile

The last tile may reach past the last row: it then computes that row again and drops the copies,
which is faster than a test per row.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.dense_packed import vectorize_columns
from tilewright.compiler.lower.loops import finish_tile, register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, broadcast_index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.matrix_products import MatrixProduct, batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    matmul, settings = batch_product(program.workload), program.settings
    row_tiles = -(-matmul.rows // settings["tile_rows"])
    tiles = -(-row_tiles // settings["row_groups"])
    accumulator = _accumulator(program, matmul, tiles * settings["tile_rows"])
    schedule = program.schedule(program.in_blocks(accumulator, -1, settings["block"]))
    lanes = target.lanes(program.workload.computed_in)
    anchor = schedule.get_sblock("accumulator")
    *leading, row, chunk, lane, depth = schedule.get_loops(anchor)
    group, row_outer, row_inner = schedule.split(row, [None, tiles, settings["tile_rows"]])
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*leading, chunk, group, row_outer, depth, row_inner, vector, lane)
    parallel = share_out(schedule, [*leading, chunk, group])
    register_tile(schedule, [row_inner, vector], lane)
    last = finish_tile(schedule, anchor, row_outer, vectors=False)
    vectorize_columns(schedule, last, matmul.columns, lanes)
    if settings["pack"]:
        packed = schedule.get_sblock("packed")
        schedule.compute_at(packed, parallel, preserve_unit_loops=True)
        *_, k, column = schedule.get_loops(packed)
        if matmul.transposed:
            schedule.reorder(column, k)
        else:
            vectorize_columns(schedule, column, matmul.columns, lanes)
    schedule.decompose_reduction(anchor, depth)
    return schedule


def _right(program: Program, matmul: MatrixProduct) -> Any:
    """A function (leading, depth, chunk, lane) → value of the right matrix."""
    right, block = program.operand(matmul.weight), program.settings["block"]

    def direct(leading: Index, k: tirx.Expr, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        column = program.simplify(chunk * block + lane)
        matrix = [column, k] if matmul.transposed else [k, column]
        return right.read([*broadcast_index(leading, right.type.shape[:-2]), *matrix])

    if not program.settings["pack"]:
        return direct

    def compute(*position):
        *leading, chunk, k, lane = position
        value = direct(leading, k, chunk, lane)
        if matmul.columns % block == 0:
            return value
        zero = tirx.const(0, right.type.dtype)
        return tirx.if_then_else(chunk * block + lane < matmul.columns, value, zero)

    shape = (*matmul.leading, -(-matmul.columns // block), matmul.depth, block)
    packed = program.compute(shape, compute, "packed")
    return lambda leading, k, chunk, lane: packed(*leading, chunk, k, lane)


def _accumulator(program: Program, matmul: MatrixProduct, group_rows: int) -> te.Tensor:
    left, right = program.operand(matmul.data), _right(program, matmul)
    (depth,) = program.reduce_axes(depth=matmul.depth)
    rows, block = -(-matmul.rows // group_rows) * group_rows, program.settings["block"]

    def compute(*position):
        *leading, row, chunk, lane = position
        if rows > matmul.rows:
            row = tirx.min(row, matmul.rows - 1)
        value = left.read([*broadcast_index(leading, left.type.shape[:-2]), row, depth.var])
        return te.sum(value * right(leading, depth.var, chunk, lane), axis=[depth])

    shape = (*matmul.leading, rows, -(-matmul.columns // block), block)
    return program.compute(shape, compute, "accumulator")
