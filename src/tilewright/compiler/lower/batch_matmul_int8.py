"""Schedule of the batched matrix product of 8-bit integers, see `byte_dots`.

[the left matrices copied, filled up to whole quads]
the loops of `batch_matmul_tiled`, with quads along the depth; columns of the right matrix are
copied as words of four codes and, where the instruction takes the data with an offset, added up
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.batch_matmul_tiled import (
    copied_right,
    covered_row,
    placed,
    read_right,
    row_tiles,
    sums_of_products,
    tiled,
    within_columns,
)
from tilewright.compiler.lower.byte_dots import (
    byte_dot,
    byte_dot_text,
    byte_product,
    byte_sum,
    code_of,
    word_of_codes,
)
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.loops import by_instruction, register_tile, share_out, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import broadcast_index, filled
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_int8 import added, copied
from tilewright.kernels.codes import QUAD, WIDEN, widened_to
from tilewright.kernels.matrix_products import MatrixProduct, batch_product

_SUMS = "int32"
_ALONE, _BEHIND = ("accumulator",), ("column_sums", "compensated")
"""Stages that give the sums, alone or behind what was added to the data."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    matmul, lanes = batch_product(program.workload), target.lanes(program.workload.computed_in)
    if program.settings["dot"] == WIDEN:
        return _widened(program, matmul, lanes)
    return _by_dots(program, matmul, lanes, resources)


def _widened(program: Program, matmul: MatrixProduct, lanes: int) -> Schedule:
    """Products in a wider type."""
    settings = program.settings
    wide = partial(tirx.Cast, widened_to(matmul.depth))
    sums = sums_of_products(program, matmul, copied_right(program, matmul, wide), wide)
    total = program.in_blocks(sums, -1, settings["block"])
    schedule = program.schedule(lambda position: tirx.Cast(_SUMS, total(position)))
    _, depth, tile, lane = tiled(schedule, matmul, settings, lanes)
    register_tile(schedule, tile, lane)
    placed(schedule, matmul, settings, lanes)
    schedule.decompose_reduction(schedule.get_sblock("accumulator"), depth)
    return schedule


def _by_dots(program: Program, matmul: MatrixProduct, lanes: int, resources: Resources) -> Schedule:
    """Products by instructions that add up four."""
    settings, extra = program.settings, added(program.workload, program.settings)
    words = _words(program, matmul)
    sums = _accumulator(program, matmul, words, extra)
    if extra:
        sums = _compensated(program, sums, _column_sums(program, matmul, words), extra)
    schedule = program.schedule(program.in_blocks(sums, -1, settings["block"]))
    if copied(program.workload, settings):
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    tiles = _tiled_behind if extra else tiled
    parallel, slot, tile, lane = tiles(schedule, matmul, settings, lanes)
    if text := byte_dot_text(settings, lanes):
        schedule.annotate(parallel, "pragma_import_llvm", text)
    for loop in tile:
        schedule.unroll(loop)
    placed(schedule, matmul, settings, lanes, _BEHIND if extra else _ALONE)
    kind = program.operand(matmul.data).type.dtype
    anchor = schedule.get_sblock("accumulator")
    by_instruction(schedule, anchor, slot, lane, byte_dot(settings, lanes, kind, words=True))
    if extra:
        _added_up(schedule, byte_sum(str(settings["dot"]), lanes), lanes)
    return schedule


def _tiled_behind(
    schedule: Schedule, matmul: MatrixProduct, settings: Settings, lanes: int
) -> tuple[Any, Any, list[Any], Any]:
    """As `tiled`, by the loops of the stage that is made of the sums."""
    *leading, row, chunk, lane = schedule.get_loops(schedule.get_sblock("compensated"))
    group, row_outer, row_inner = row_tiles(schedule, matmul, settings, row)
    schedule.reorder(*leading, chunk, group, row_outer, row_inner, lane)
    parallel = share_out(schedule, [*leading, chunk, group])
    vector, lane = schedule.split(lane, [None, lanes])
    register_tile(schedule, [row_inner, vector], lane)
    anchor = schedule.get_sblock("accumulator")
    schedule.compute_at(anchor, row_outer, preserve_unit_loops=True)
    schedule.set_scope(anchor, 0, "local")
    *_, row, _, lane, slot, term = schedule.get_loops(anchor)
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(slot, row, vector, lane, term)
    return parallel, slot, [row, vector], lane


def _words(program: Program, matmul: MatrixProduct) -> te.Tensor:
    """The stage `packed`: words of four values of a column, [..., chunk, slot, lane, 1]."""
    read, block = read_right(program, matmul), program.settings["block"]

    def compute(*position):
        *leading, chunk, slot, lane, _ = position
        codes = [
            filled(lambda k: read(leading, k, chunk, lane), slot * QUAD + term, matmul.depth, QUAD)
            for term in range(QUAD)
        ]
        return within_columns(program, matmul, word_of_codes(codes), [chunk, lane])

    slots = -(-matmul.depth // QUAD)
    shape = (*matmul.leading, -(-matmul.columns // block), slots, block, 1)
    return program.compute(shape, compute, "packed")


def _accumulator(
    program: Program, matmul: MatrixProduct, words: te.Tensor, extra: int
) -> te.Tensor:
    left = program.operand(matmul.data)
    copy = copied(program.workload, program.settings)
    source = rows_in_slots(program, left, QUAD, lambda value: value, copied=copy)
    axes = program.reduce_axes(slot=-(-matmul.depth // QUAD), term=QUAD)
    slot, term = (axis.var for axis in axes)
    rows, read_row = covered_row(matmul, program.settings)
    block = program.settings["block"]

    def compute(*position):
        *leading, row, chunk, lane = position
        matrix = broadcast_index(leading, left.type.shape[:-2])
        value = source(*matrix, read_row(row), slot * QUAD + term)
        code = code_of(words(*leading, chunk, slot, lane, 0), term)
        return te.sum(byte_product(value, code, added=extra), axis=axes)

    shape = (*matmul.leading, rows, -(-matmul.columns // block), block)
    return program.compute(shape, compute, "accumulator")


def _compensated(program: Program, sums: te.Tensor, columns: te.Tensor, extra: int) -> te.Tensor:
    """The stage `compensated`: sums without what was added to the data."""

    def compute(*position):
        *leading, row, chunk, lane = position
        return sums(*leading, row, chunk, lane) - columns(*leading, chunk, lane) * extra

    return program.compute(tuple(map(int, sums.shape)), compute, "compensated")


def _column_sums(program: Program, matmul: MatrixProduct, words: te.Tensor) -> te.Tensor:
    """The stage `column_sums`: sums of the codes of each column, [..., chunk, lane]."""
    axes = program.reduce_axes(column_slot=-(-matmul.depth // QUAD), column_term=QUAD)
    slot, term = (axis.var for axis in axes)

    def compute(*position):
        *leading, chunk, lane = position
        code = code_of(words(*leading, chunk, slot, lane, 0), term)
        return te.sum(tirx.Cast(_SUMS, code), axis=axes)

    block = program.settings["block"]
    shape = (*matmul.leading, -(-matmul.columns // block), block)
    return program.compute(shape, compute, "column_sums")


def _added_up(schedule: Schedule, intrinsic: str, lanes: int) -> None:
    """The sums of columns by an instruction for so many lanes."""
    block = schedule.get_sblock("column_sums")
    schedule.set_scope(block, 0, "local")
    *_, lane, slot, term = schedule.get_loops(block)
    vector, lane = schedule.split(lane, [None, lanes])
    schedule.reorder(slot, vector, lane, term)
    schedule.unroll(vector)
    by_instruction(schedule, block, slot, lane, intrinsic)
