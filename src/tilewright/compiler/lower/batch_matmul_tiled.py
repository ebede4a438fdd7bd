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

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.dense_packed import vectorize_columns
from tilewright.compiler.lower.loops import finish_tile, register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, broadcast_index
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.kernels.matrix_products import MatrixProduct, batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    matmul = batch_product(program.workload)
    copied = program.settings["pack"]
    right = copied_right(program, matmul) if copied else read_right(program, matmul)
    accumulator = sums_of_products(program, matmul, right)
    schedule = program.schedule(program.in_blocks(accumulator, -1, program.settings["block"]))
    lanes = target.lanes(program.workload.computed_in)
    _, depth, tile, lane = tiled(schedule, matmul, program.settings, lanes)
    register_tile(schedule, tile, lane)
    placed(schedule, matmul, program.settings, lanes)
    schedule.decompose_reduction(schedule.get_sblock("accumulator"), depth)
    return schedule


def tiled(
    schedule: Schedule, matmul: MatrixProduct, settings: Settings, lanes: int
) -> tuple[Any, Any, list[Any], Any]:
    """The loops of the sums in their order: the parallel one, that over steps of the sums, those of
    the register tile, and that over lanes."""
    anchor = schedule.get_sblock("accumulator")
    *leading, row, chunk, lane, step = schedule.get_loops(anchor)[: len(matmul.leading) + 4]
    group, row_outer, row_inner = row_tiles(schedule, matmul, settings, row)
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*leading, chunk, group, row_outer, step, row_inner, vector, lane)
    return share_out(schedule, [*leading, chunk, group]), step, [row_inner, vector], lane


def row_tiles(
    schedule: Schedule, matmul: MatrixProduct, settings: Settings, row: Any
) -> Sequence[Any]:
    """The loop over rows as loops over groups, tiles and rows of a tile."""
    return schedule.split(row, [None, _tiles(matmul, settings), settings["tile_rows"]])


def placed(
    schedule: Schedule,
    matmul: MatrixProduct,
    settings: Settings,
    lanes: int,
    stages: Sequence[str] = ("accumulator",),
) -> None:
    """The results of a tile within its loops, and the columns of a piece of work, where they are
    `packed`, before them. Of the `stages` between, the last one gives the sums, and the others are
    made before it of what is packed."""
    *before, sums = stages
    anchor = schedule.get_sblock(sums)
    parallel, row_outer, *_ = schedule.get_loops(anchor)
    last = finish_tile(schedule, anchor, row_outer, vectors=False)
    vectorize_columns(schedule, last, matmul.columns, lanes)
    if not settings["pack"]:
        return
    for stage in before:
        schedule.compute_at(schedule.get_sblock(stage), parallel, preserve_unit_loops=True)
    packed = schedule.get_sblock("packed")
    schedule.compute_at(packed, parallel, preserve_unit_loops=True)
    k, column, *unit = schedule.get_loops(packed)[len(matmul.leading) + 2 :]
    if unit:
        column = schedule.fuse(column, *unit)
    if matmul.transposed:
        schedule.reorder(column, k)
    else:
        vectorize_columns(schedule, column, matmul.columns, lanes)


def _tiles(matmul: MatrixProduct, settings: Settings) -> int:
    """Tiles of rows in a group."""
    whole = ceil(matmul.rows / settings["tile_rows"])
    return ceil(whole / settings["row_groups"])


def covered_row(matmul: MatrixProduct, settings: Settings) -> tuple[int, Callable[[Any], Any]]:
    """How many rows all groups have, and the one that is read for one of these."""
    each = _tiles(matmul, settings) * settings["tile_rows"]
    rows = -(-matmul.rows // each) * each
    return rows, lambda row: tirx.min(row, matmul.rows - 1) if rows > matmul.rows else row


def read_right(program: Program, matmul: MatrixProduct) -> Any:
    """A function (leading, depth, chunk, lane) → value of the right matrix, where it is."""
    right, block = program.operand(matmul.weight), program.settings["block"]

    def read(leading: Index, k: tirx.Expr, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        column = program.simplify(chunk * block + lane)
        matrix = [column, k] if matmul.transposed else [k, column]
        return right.read([*broadcast_index(leading, right.type.shape[:-2]), *matrix])

    return read


def within_columns(
    program: Program, matmul: MatrixProduct, value: tirx.Expr, place: Index
) -> tirx.Expr:
    """A value of the right matrix at a place (chunk, lane); zero beyond the last column."""
    block, (chunk, lane) = program.settings["block"], place
    if matmul.columns % block == 0:
        return value
    zero = tirx.const(0, value.ty.dtype)
    return tirx.if_then_else(chunk * block + lane < matmul.columns, value, zero)


def _as_it_is(value: tirx.Expr) -> tirx.Expr:
    return value


def copied_right(
    program: Program, matmul: MatrixProduct, taken: Callable[[Any], tirx.Expr] = _as_it_is
) -> Any:
    """The same function, of columns that are copied as they are `taken`."""
    read, block = read_right(program, matmul), program.settings["block"]

    def compute(*position):
        *leading, chunk, k, lane = position
        value = taken(read(leading, k, chunk, lane))
        return within_columns(program, matmul, value, [chunk, lane])

    shape = (*matmul.leading, -(-matmul.columns // block), matmul.depth, block)
    packed = program.compute(shape, compute, "packed")
    return lambda leading, k, chunk, lane: packed(*leading, chunk, k, lane)


def sums_of_products(
    program: Program,
    matmul: MatrixProduct,
    right: Any,
    taken: Callable[[Any], tirx.Expr] = _as_it_is,
) -> te.Tensor:
    """The stage `accumulator`: sums of products of the left, as it is `taken`, and `right`."""
    left, block = program.operand(matmul.data), program.settings["block"]
    (depth,) = program.reduce_axes(depth=matmul.depth)
    rows, read_row = covered_row(matmul, program.settings)

    def compute(*position):
        *leading, row, chunk, lane = position
        matrix = broadcast_index(leading, left.type.shape[:-2])
        value = left.read([*matrix, read_row(row), depth.var])
        return te.sum(taken(value) * right(leading, depth.var, chunk, lane), axis=[depth])

    shape = (*matmul.leading, rows, -(-matmul.columns // block), block)
    return program.compute(shape, compute, "accumulator")
