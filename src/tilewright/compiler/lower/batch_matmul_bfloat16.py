"""Schedule of the batched matrix product by dot products of bfloat16.

[the left matrices rounded, where they are not there in halves]
the loops of `batch_matmul_tiled`, with pairs along the depth; columns of the right matrix are
copied as words of two halves
"""

from __future__ import annotations

from tvm import te
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.batch_matmul_tiled import (
    covered_row,
    placed,
    read_right,
    tiled,
    within_columns,
)
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.half_dots import (
    half_at,
    half_dot,
    half_dot_text,
    half_of,
    half_product,
    word_of,
)
from tilewright.compiler.lower.loops import by_instruction, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import broadcast_index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_bfloat16 import copied
from tilewright.kernels.halves import PAIR
from tilewright.kernels.matrix_products import MatrixProduct, batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    matmul, settings = batch_product(program.workload), program.settings
    lanes = target.lanes(program.workload.computed_in)
    schedule = program.schedule(
        program.in_blocks(_accumulator(program, matmul), -1, settings["block"])
    )
    if copied(program.workload, program.candidate.forms):
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    parallel, pair, tile, lane = tiled(schedule, matmul, settings, lanes)
    schedule.annotate(parallel, "pragma_import_llvm", half_dot_text(target, lanes))
    for loop in tile:
        schedule.unroll(loop)
    placed(schedule, matmul, settings, lanes)
    anchor = schedule.get_sblock("accumulator")
    by_instruction(schedule, anchor, pair, lane, half_dot(lanes, words=True))
    return schedule


def _words(program: Program, matmul: MatrixProduct) -> te.Tensor:
    """The stage `packed`: words of two values of a column, [..., chunk, pair, lane, 1]."""
    read, block = read_right(program, matmul), program.settings["block"]

    def compute(*position):
        *leading, chunk, pair, lane, _ = position
        low, high = (
            half_at(lambda k: read(leading, k, chunk, lane), pair * PAIR + term, matmul.depth)
            for term in range(PAIR)
        )
        return within_columns(program, matmul, word_of(low, high), [chunk, lane])

    pairs = -(-matmul.depth // PAIR)
    shape = (*matmul.leading, -(-matmul.columns // block), pairs, block, 1)
    return program.compute(shape, compute, "packed")


def _accumulator(program: Program, matmul: MatrixProduct) -> te.Tensor:
    left, words = program.operand(matmul.data), _words(program, matmul)
    copy = copied(program.workload, program.candidate.forms)
    source = rows_in_slots(program, left, PAIR, mathematics.half, copied=copy)
    axes = program.reduce_axes(pair=-(-matmul.depth // PAIR), term=PAIR)
    pair, term = (axis.var for axis in axes)
    rows, read_row = covered_row(matmul, program.settings)
    block = program.settings["block"]

    def compute(*position):
        *leading, row, chunk, lane = position
        matrix = broadcast_index(leading, left.type.shape[:-2])
        value = source(*matrix, read_row(row), pair * PAIR + term)
        word = half_of(words(*leading, chunk, pair, lane, 0), term)
        return te.sum(half_product(value, word), axis=axes)

    shape = (*matmul.leading, rows, -(-matmul.columns // block), block)
    return program.compute(shape, compute, "accumulator")
