"""Schedule of the batched matrix products in tile registers.

[the left matrices rounded, filled up to whole tiles]
parallel (batch, column chunk)        # registers are set up once for each
  columns of the right matrix in words along the depth
  row tile
    the product of the whole depth    # one call, sums in tile registers
    epilogue of the tile
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES, TileKind, Tiles
from tilewright.compiler.lower.amx_tiles import dense_tiles, opened, tensorized
from tilewright.compiler.lower.batch_matmul_tiled import read_right, within_columns
from tilewright.compiler.lower.dense_packed import vectorize_columns
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.loops import finish_tile, share_out, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import broadcast_index, filled
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_amx import OF_HALVES, AmxBatchMatmul
from tilewright.kernels.matrix_products import MatrixProduct, batch_product

Taken = Callable[[tirx.Expr], tirx.Expr]


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel of bfloat16."""
    return lowered(program, OF_HALVES, HALVES, mathematics.half, target, resources)


def lowered(
    program: Program,
    spec: AmxBatchMatmul,
    kind: TileKind,
    taken: Taken,
    target: Target,
    resources: Resources,
) -> Schedule:
    """The kernel of a spec, which multiplies values as they are `taken`."""
    matmul, settings = batch_product(program.workload), program.settings
    lanes = target.lanes(program.workload.computed_in)
    block, tile_rows = settings["block"], settings["tile_rows"]
    accumulator = _accumulator(program, matmul, spec, kind, taken)
    schedule = program.schedule(program.in_blocks(accumulator, -1, block))
    if spec.filled(program.workload, program.candidate.forms, settings):
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    *leading, row, chunk, lane, slot, term = schedule.get_loops(anchor)
    tile, row = schedule.split(row, [None, tile_rows])
    schedule.reorder(*leading, chunk, tile, row, lane, slot, term)
    parallel = share_out(schedule, [*leading, chunk], resources.threads)
    _, depth, _ = spec.covered(program.workload, settings)
    lines, down = spec.lines(settings)
    tiles = Tiles(kind=kind, rows=lines, down=down, out=1, lanes=block, depth=spec.line)
    opened(schedule, parallel, tiles, target)
    last = finish_tile(schedule, anchor, tile, vectors=False)
    vectorize_columns(schedule, last, matmul.columns, lanes)
    packed = schedule.get_sblock("packed")
    schedule.compute_at(packed, parallel, preserve_unit_loops=True)
    slot, lane, term = schedule.get_loops(packed)[-3:]
    if matmul.transposed:
        schedule.reorder(lane, slot)
    schedule.unroll(term)
    tensorized(schedule, anchor, row, (tile_rows, block), dense_tiles(tiles, depth))
    return schedule


def _accumulator(
    program: Program, matmul: MatrixProduct, spec: AmxBatchMatmul, kind: TileKind, taken: Taken
) -> te.Tensor:
    left, settings = program.operand(matmul.data), program.settings
    rows, depth, chunks = spec.covered(program.workload, settings)
    block, read, terms = settings["block"], read_right(program, matmul), spec.terms
    element = rows_in_slots(program, left, spec.line, taken, copied=False)

    def whole(*position: tirx.Expr) -> tirx.Expr:
        *matrix, row, at = position
        row = tirx.min(row, matmul.rows - 1) if rows > matmul.rows else row
        return element(*matrix, row, at)

    def word(*position: tirx.Expr) -> tirx.Expr:
        *leading, chunk, slot, lane, term = position

        def value(k: tirx.Expr) -> tirx.Expr:
            return taken(read(leading, k, chunk, lane))

        found = filled(value, slot * terms + term, matmul.depth, spec.line)
        return within_columns(program, matmul, found, [chunk, lane])

    source = whole
    if spec.filled(program.workload, program.candidate.forms, settings):
        source = program.compute((*left.type.shape[:-2], rows, depth), whole, "copy")
    shape = (*matmul.leading, chunks, depth // terms, block, terms)
    packed = program.compute(shape, word, "packed")
    axes = program.reduce_axes(slot=depth // terms, term=terms)
    slot, term = (axis.var for axis in axes)

    def compute(*position: tirx.Expr) -> tirx.Expr:
        *leading, row, chunk, lane = position
        matrix = broadcast_index(leading, left.type.shape[:-2])
        value = source(*matrix, row, slot * terms + term)
        weight = packed(*leading, chunk, slot, lane, term)
        return te.sum(kind.product(value, weight), axis=axes)

    return program.compute((*matmul.leading, rows, chunks, block), compute, "accumulator")
