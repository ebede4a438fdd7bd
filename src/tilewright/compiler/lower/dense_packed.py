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

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import (
    extents,
    finish_tile,
    reduction_split,
    register_tile,
)
from tilewright.compiler.lower.program import Program
from tilewright.compiler.prefetch import Panel, mark_ahead
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.kernels.matrix_products import MatrixProduct, product

MINIMUM_LANES = 4
"""Narrower vectors are left to LLVM, which masks."""
STEPS = (16, 8, 4)
"""Depths between two looks ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """Loops of the sums: the parallel one, over tiles of which `row_tiles` share their columns,
    that over steps of the sums, those of the register tile, and that over lanes."""

    parallel: Any
    row_tiles: int
    step: Any
    tile: list[Any]
    lane: Any


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense, lanes = product(program.workload), target.lanes(program.workload.computed_in)
    accumulator = _accumulator(program, dense, program.settings["block"])
    schedule = program.schedule(program.in_blocks(accumulator, -1, program.settings["block"]))
    nest = tiled(schedule, dense, program.settings, lanes)
    first = ahead(schedule, target, dense, nest)
    register_tile(schedule, nest.tile, nest.lane)
    finished(schedule, dense, nest, lanes)
    schedule.decompose_reduction(schedule.get_sblock("accumulator"), first)
    return schedule


def tiled(schedule: Schedule, dense: MatrixProduct, settings: Settings, lanes: int) -> Nest:
    """Bring the loops into their order; what is shared out is parallel then."""
    spatial, (step, *terms) = reduction_split(schedule, schedule.get_sblock("accumulator"))
    *outer, chunk, lane = spatial
    pieces, tile = [*outer, chunk], []
    if dense.row_axis is not None:
        row = outer.pop(dense.row_axis)
        row_outer, *tile = schedule.split(row, [None, settings["tile_rows"]])
        by_rows = settings["order"] == "rows"
        pieces = [*outer, row_outer, chunk] if by_rows else [*outer, chunk, row_outer]
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*pieces, step, *tile, vector, lane, *terms)
    row_tiles = int(schedule.get(pieces[-1]).extent) if pieces[-1] is not chunk else 1
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    return Nest(parallel=parallel, row_tiles=row_tiles, step=step, tile=[*tile, vector], lane=lane)


def ahead(
    schedule: Schedule,
    target: Target,
    dense: MatrixProduct,
    nest: Nest,
    terms: int = 1,
    element_bytes: int = 4,
) -> Any:
    """Fetch the weights of the next chunk, of so many bytes each, during the steps of this one,
    each of `terms` products; the outermost loop over steps."""
    (steps,) = extents(schedule, [nest.step])
    block = prod(extents(schedule, [nest.tile[-1], nest.lane]))
    panel = Panel(
        argument=dense.weight,
        size=dense.columns * steps * terms,
        distance=steps * block * terms,
        run=block * terms,
        tiles=[(nest.parallel, nest.row_tiles)],
        element_bytes=element_bytes,
    )
    inside = next((step for step in STEPS if steps % step == 0), 1)
    split = nest.row_tiles > 1 and inside > 1
    loops = schedule.split(nest.step, [None, inside]) if split else [nest.step]
    mark_ahead(schedule, target, panel, loops)
    return loops[0]


def finished(schedule: Schedule, dense: MatrixProduct, nest: Nest, lanes: int) -> None:
    """The results of a tile behind its sums."""
    anchor = schedule.get_sblock("accumulator")
    last = finish_tile(schedule, anchor, nest.parallel, vectors=False)
    vectorize_columns(schedule, last, dense.columns, lanes)


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
