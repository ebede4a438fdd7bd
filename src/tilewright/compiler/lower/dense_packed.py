"""Schedule of the packed dense layer.

    parallel (row tile, column chunk)     # `order` decides which is outside
      depth
        row                  # register tile, unrolled
          column of the block             # vectorised
      epilogue of the tile

The last tile may reach past the last row: it then computes that row again and drops the copies,
which is faster than a test per row.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import finish_tile, register_tile
from tilewright.compiler.lower.program import Program
from tilewright.compiler.prefetch import Panel, mark_ahead
from tilewright.core.targets import Resources, Target
from tilewright.kernels.matrix_products import MatrixProduct, product

MINIMUM_LANES = 4
"""Narrower vectors are left to LLVM, which masks."""
STEPS = (16, 8, 4)
"""Depths between two looks ahead."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense, settings = product(program.workload), program.settings
    block, lanes = settings["block"], target.lanes(program.workload.computed_in)
    schedule = program.schedule(program.in_blocks(_accumulator(program, dense, block), -1, block))
    anchor = schedule.get_sblock("accumulator")
    *outer, chunk, lane, depth = schedule.get_loops(anchor)
    pieces, tile = [*outer, chunk], []
    if dense.row_axis is not None:
        row = outer.pop(dense.row_axis)
        row_outer, *tile = schedule.split(row, [None, settings["tile_rows"]])
        by_rows = settings["order"] == "rows"
        pieces = [*outer, row_outer, chunk] if by_rows else [*outer, chunk, row_outer]
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*pieces, depth, *tile, vector, lane)
    row_tiles = int(schedule.get(pieces[-1]).extent) if pieces[-1] is not chunk else 1
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    panel = Panel(
        argument=dense.weight,
        size=dense.columns * dense.depth,
        distance=dense.depth * block,
        run=block,
        tiles=[(parallel, row_tiles)],
    )
    step = next((step for step in STEPS if dense.depth % step == 0), 1)
    depths = schedule.split(depth, [None, step]) if row_tiles > 1 and step > 1 else [depth]
    mark_ahead(schedule, target, panel, depths)
    register_tile(schedule, [*tile, vector], lane)
    last = finish_tile(schedule, anchor, parallel, vectors=False)
    vectorize_columns(schedule, last, dense.columns, lanes)
    schedule.decompose_reduction(anchor, depths[0])
    return schedule


def _accumulator(program: Program, dense: MatrixProduct, block: int) -> te.Tensor:
    data = program.operand(dense.data)
    weights = program.tensors[dense.weight]
    (depth,) = program.reduce_axes(depth=dense.depth)
    rows = list(data.type.shape[:-1])
    axis = dense.row_axis
    if axis is not None:
        tile = program.settings["tile_rows"]
        rows[axis] = -(-dense.rows // tile) * tile

    def compute(*position):
        *leading, chunk, lane = position
        if axis is not None and rows[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        value = data.read([*leading, depth.var])
        return te.sum(value * weights(chunk, depth.var, lane), axis=[depth])

    return program.compute((*rows, -(-dense.columns // block), block), compute, "accumulator")


def vectorize_columns(schedule: Schedule, loop: Any, columns: int, lanes: int) -> None:
    """Vectorise by the widest power of two up to `lanes` that never crosses the last column."""
    width = gcd(columns, lanes)
    if width >= MINIMUM_LANES:
        schedule.vectorize(schedule.split(loop, [None, width])[1])
