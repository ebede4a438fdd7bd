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
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, broadcast_index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_tiled import BatchProduct, batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    matmul = batch_product(program.workload)
    block = int(dict(program.candidate.settings)["block"])
    accumulator = _accumulate(program, matmul, block)
    index = program.workload.anchor_index
    assert index is not None

    def read(position: Index) -> tirx.Expr:
        *leading, row, column = position
        chunk = program.simplify(tirx.floordiv(column, block))
        lane = program.simplify(tirx.floormod(column, block))
        return accumulator(*leading, row, chunk, lane)

    program.set_step(index, Value(type=program.workload.step_types(index)[1], read=read))
    schedule = program.schedule()
    _schedule(schedule, matmul, program, target)
    return schedule


def _right(program: Program, matmul: BatchProduct, block: int) -> Any:
    """A function (leading, depth, chunk, lane) → value of the right matrix."""
    right = program.operand(matmul.right)
    leading_shape = right.type.shape[:-2]
    chunks = -(-matmul.columns // block)

    def direct(leading: Index, k: tirx.Expr, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        column = program.simplify(chunk * block + lane)
        matrix = [column, k] if matmul.transposed else [k, column]
        return right.read([*broadcast_index(leading, leading_shape), *matrix])

    if not dict(program.candidate.settings)["pack"]:
        return direct
    shape = (*matmul.leading, chunks, matmul.depth, block)

    def compute(*position):
        program.simplify.announce(position, shape)
        *leading, chunk, k, lane = position
        value = direct(leading, k, chunk, lane)
        if matmul.columns % block == 0:
            return value
        zero = tirx.const(0, right.type.dtype)
        return tirx.if_then_else(chunk * block + lane < matmul.columns, value, zero)

    packed = te.compute(shape, compute, name="packed")
    return lambda leading, k, chunk, lane: packed(*leading, chunk, k, lane)


def _tiles_per_group(matmul: BatchProduct, program: Program) -> int:
    settings = dict(program.candidate.settings)
    tiles = -(-matmul.rows // int(settings["tile_rows"]))
    return -(-tiles // int(settings["row_groups"]))


def _padded_rows(matmul: BatchProduct, program: Program) -> int:
    tile = int(program.candidate.setting("tile_rows"))
    step = tile * _tiles_per_group(matmul, program)
    return -(-matmul.rows // step) * step


def _accumulate(program: Program, matmul: BatchProduct, block: int) -> te.Tensor:
    left = program.operand(matmul.left)
    right = _right(program, matmul, block)
    depth = te.reduce_axis((0, matmul.depth), "depth")
    program.simplify.announce([depth.var], (matmul.depth,))
    rows = _padded_rows(matmul, program)
    shape = (*matmul.leading, rows, -(-matmul.columns // block), block)

    def compute(*position):
        program.simplify.announce(position, shape)
        *leading, row, chunk, lane = position
        k = depth.var
        if rows > matmul.rows:
            row = tirx.min(row, matmul.rows - 1)
        value = left.read([*broadcast_index(leading, left.type.shape[:-2]), row, k])
        return te.sum(value * right(leading, k, chunk, lane), axis=[depth])

    return te.compute(shape, compute, name="accumulator")


def _schedule(schedule: Schedule, matmul: BatchProduct, program: Program, target: Target) -> None:
    settings, lanes = dict(program.candidate.settings), target.lanes(program.workload.computed_in)
    tiles = _tiles_per_group(matmul, program)
    anchor = schedule.get_sblock("accumulator")
    *leading, row, chunk, lane, depth = schedule.get_loops(anchor)
    group, row_outer, row_inner = schedule.split(row, [None, tiles, settings["tile_rows"]])
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*leading, chunk, group, row_outer, depth, row_inner, vector, lane)
    parallel = schedule.fuse(*leading, chunk, group)
    schedule.parallel(parallel)
    schedule.unroll(row_inner)
    schedule.unroll(vector)
    schedule.vectorize(lane)
    schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, row_outer, preserve_unit_loops=True)
    vectorize_columns(schedule, schedule.get_loops(result)[-1], matmul.columns, lanes)
    if settings["pack"]:
        _schedule_copy(schedule, parallel, matmul, lanes)
    schedule.decompose_reduction(anchor, depth)


def _schedule_copy(schedule: Schedule, parallel: Any, matmul: BatchProduct, lanes: int) -> None:
    packed = schedule.get_sblock("packed")
    schedule.compute_at(packed, parallel, preserve_unit_loops=True)
    *_, k, lane = schedule.get_loops(packed)
    if matmul.transposed:
        schedule.reorder(lane, k)
    else:
        vectorize_columns(schedule, lane, matmul.columns, lanes)
