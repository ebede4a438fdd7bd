"""Schedule of the dense layer by dot products of bfloat16.

    [the data rounded, where it is not there in halves]
    parallel (row tile, column chunk)     # `order` decides which is outside
      pairs along the depth
        row, vector of the block          # register tile, unrolled
          column, value of the pair       # one dot-product instruction
      epilogue of the tile

Rows beyond the last one are computed as in `dense_packed`.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.dense_packed import STEPS, vectorize_columns
from tilewright.compiler.lower.half_dots import half_dot, half_dot_text, half_product
from tilewright.compiler.lower.loops import finish_tile, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.prefetch import Panel, mark_ahead
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_bfloat16 import copied
from tilewright.kernels.halves import PAIR
from tilewright.kernels.matrix_products import MatrixProduct, product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense, settings = product(program.workload), program.settings
    block, lanes = settings["block"], target.lanes(program.workload.computed_in)
    schedule = program.schedule(program.in_blocks(_accumulator(program, dense, block), -1, block))
    if copied(program.workload, program.candidate.forms):
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    *outer, chunk, lane, pair, term = schedule.get_loops(anchor)
    pieces, tile = [*outer, chunk], []
    if dense.row_axis is not None:
        row = outer.pop(dense.row_axis)
        row_outer, *tile = schedule.split(row, [None, settings["tile_rows"]])
        by_rows = settings["order"] == "rows"
        pieces = [*outer, row_outer, chunk] if by_rows else [*outer, chunk, row_outer]
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(*pieces, pair, *tile, vector, lane, term)
    row_tiles = int(schedule.get(pieces[-1]).extent) if pieces[-1] is not chunk else 1
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    schedule.annotate(parallel, "pragma_import_llvm", half_dot_text(lanes))
    pairs = _ahead(schedule, dense, target, pair, (parallel, row_tiles), block)
    for loop in (*tile, vector):
        schedule.unroll(loop)
    last = finish_tile(schedule, anchor, parallel, vectors=False)
    vectorize_columns(schedule, last, dense.columns, lanes)
    start = schedule.decompose_reduction(anchor, pairs[0])
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.tensorize(lane, half_dot(lanes))
    return schedule


def _ahead(
    schedule: Schedule,
    dense: MatrixProduct,
    target: Target,
    pair: Any,
    tiles: tuple[Any, int],
    block: int,
) -> list[Any]:
    """The loops over pairs, which fetch the weights of the next chunk."""
    count = -(-dense.depth // PAIR)
    panel = Panel(
        argument=dense.weight,
        size=dense.columns * count * PAIR,
        distance=count * block * PAIR,
        run=block * PAIR,
        tiles=[tiles],
        element_bytes=2,
    )
    step = next((step for step in STEPS if count % step == 0), 1)
    pairs = schedule.split(pair, [None, step]) if tiles[1] > 1 and step > 1 else [pair]
    mark_ahead(schedule, target, panel, pairs)
    return list(pairs)


def _accumulator(program: Program, dense: MatrixProduct, block: int) -> te.Tensor:
    data, weights = program.operand(dense.data), program.tensors[dense.weight]
    pairs = -(-dense.depth // PAIR)
    *rows, _ = data.type.shape

    def rounded(*position):
        *leading, at = position
        if dense.depth % PAIR == 0:
            return mathematics.half(data.read([*leading, at]))
        value = mathematics.half(data.read([*leading, tirx.min(at, dense.depth - 1)]))
        return tirx.Select(at < dense.depth, value, tirx.const(0, value.ty.dtype))

    source: Any = rounded
    if copied(program.workload, program.candidate.forms):
        source = program.compute((*rows, PAIR * pairs), rounded, "copy")
    axes = program.reduce_axes(pair=pairs, term=PAIR)
    pair, term = (axis.var for axis in axes)
    covered, axis = list(rows), dense.row_axis
    if axis is not None:
        tile = program.settings["tile_rows"]
        covered[axis] = -(-dense.rows // tile) * tile

    def compute(*position):
        *leading, chunk, lane = position
        if axis is not None and covered[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        value = source(*leading, pair * PAIR + term)
        return te.sum(half_product(value, weights(chunk, pair, lane, term)), axis=axes)

    return program.compute((*covered, -(-dense.columns // block), block), compute, "accumulator")
