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

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.compiler.prefetch import Panel, mark_ahead
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_packed import Product, product

MINIMUM_LANES = 4
"""Narrower vectors are left to LLVM, which masks."""
_STEPS = (16, 8, 4)
"""Depths between two looks ahead."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense = product(program.workload)
    settings = dict(program.candidate.settings)
    block = int(settings["block"])
    accumulator = _accumulate(program, dense, block)
    index = program.workload.anchor_index
    assert index is not None
    result_type = program.workload.step_types(index)[1]

    def read(position: Index) -> tirx.Expr:
        *leading, column = position
        chunk = program.simplify(tirx.floordiv(column, block))
        lane = program.simplify(tirx.floormod(column, block))
        return accumulator(*leading, chunk, lane)

    program.set_step(index, Value(type=result_type, read=read))
    schedule = program.schedule()
    _schedule(schedule, dense, program, target)
    return schedule


def _accumulate(program: Program, dense: Product, block: int) -> te.Tensor:
    data = program.operand(dense.data)
    weights = program.tensors[dense.weight]
    depth = te.reduce_axis((0, dense.depth), "depth")
    program.simplify.announce([depth.var], (dense.depth,))
    rows = list(data.type.shape[:-1])
    axis = dense.row_axis
    if axis is not None:
        tile = int(dict(program.candidate.settings)["tile_rows"])
        rows[axis] = -(-dense.rows // tile) * tile
    shape = (*rows, -(-dense.columns // block), block)

    def compute(*position):
        program.simplify.announce(position, shape)
        *leading, chunk, lane = position
        k = depth.var
        if axis is not None and rows[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        return te.sum(data.read([*leading, k]) * weights(chunk, k, lane), axis=[depth])

    return te.compute(shape, compute, name="accumulator")


def _schedule(schedule: Schedule, dense: Product, program: Program, target: Target) -> None:
    settings, lanes = dict(program.candidate.settings), target.lanes(program.workload.computed_in)
    anchor = schedule.get_sblock("accumulator")
    *outer, chunk, lane, depth = schedule.get_loops(anchor)
    pieces, tile = [*outer, chunk], []
    if dense.row_axis is not None:
        row_outer, row_inner = schedule.split(
            outer.pop(dense.row_axis), [None, settings["tile_rows"]]
        )
        by_rows = settings["order"] == "rows"
        pieces = [*outer, row_outer, chunk] if by_rows else [*outer, chunk, row_outer]
        tile = [row_inner]
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*pieces, depth, *tile, vector, lane)
    row_tiles = int(schedule.get(pieces[-1]).extent) if pieces[-1] is not chunk else 1
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    panel = Panel(
        argument=dense.weight,
        size=dense.columns * dense.depth,
        distance=dense.depth * int(settings["block"]),
        run=int(settings["block"]),
        tiles=[(parallel, row_tiles)],
    )
    step = next((step for step in _STEPS if dense.depth % step == 0), 1)
    depths = schedule.split(depth, [None, step]) if row_tiles > 1 and step > 1 else [depth]
    mark_ahead(schedule, target, panel, depths)
    for loop in (*tile, vector):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, parallel, preserve_unit_loops=True)
    vectorize_columns(schedule, schedule.get_loops(result)[-1], dense.columns, lanes)
    schedule.decompose_reduction(anchor, depths[0])


def vectorize_columns(schedule: Schedule, loop: Any, columns: int, lanes: int) -> None:
    """Vectorise by the widest power of two up to `lanes` that never crosses the last column."""
    width = gcd(columns, lanes)
    if width >= MINIMUM_LANES:
        _, lane = schedule.split(loop, [None, width])
        schedule.vectorize(lane)
