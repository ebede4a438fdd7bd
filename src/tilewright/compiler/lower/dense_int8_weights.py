"""The dense layer of singles with weights on codes: the schedule of `dense_packed`, with codes that
are widened, and a scale for each column behind the sums."""

from __future__ import annotations

from functools import reduce

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.dense_packed import ahead, finished, tiled
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.loops import register_tile, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.compiler.prefetch import mark_stream
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_int8_weights import SCALE_BYTES, copied
from tilewright.kernels.matrix_products import MatrixProduct, product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense, block = product(program.workload), program.settings["block"]
    lanes = target.lanes(program.workload.computed_in)
    copy = copied(program.workload, program.candidate.forms)
    total = program.in_blocks(_accumulator(program, dense, copy=copy), -1, block)

    def scaled(position: Index) -> tirx.Expr:
        at = program.simplify.split(position[-1], block)
        return total(position) * _scale(program.tensors[dense.weight], *at)

    schedule = program.schedule(scaled)
    if copy:
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    nest = tiled(schedule, dense, program.settings, lanes)
    first = ahead(schedule, target, dense, nest, element_bytes=1)
    if nest.row_tiles == 1:
        mark_stream(schedule, target, first, dense.weight, dense.depth * dense.columns)
    register_tile(schedule, nest.tile, nest.lane)
    finished(schedule, dense, nest, lanes)
    schedule.decompose_reduction(schedule.get_sblock("accumulator"), first)
    return schedule


def _scale(weights: te.Tensor, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
    """The scale of a column, whose bytes lie behind the codes."""
    depth = int(weights.shape[1]) - SCALE_BYTES
    parts = [
        (tirx.Cast("int32", weights(chunk, depth + byte, lane)) & tirx.const(255, "int32"))
        << tirx.const(8 * byte, "int32")
        for byte in range(SCALE_BYTES)
    ]
    return tirx.reinterpret("float32", reduce(lambda a, b: a | b, parts))


def _accumulator(program: Program, dense: MatrixProduct, *, copy: bool) -> te.Tensor:
    """The stage `accumulator`: sums of data times codes, [rows, column chunk, column]."""
    data, weights = program.operand(dense.data), program.tensors[dense.weight]
    block, axis = program.settings["block"], dense.row_axis
    source = rows_in_slots(program, data, 1, lambda value: value, copied=copy)
    rows = list(data.type.shape[:-1])
    if axis is not None:
        tile = program.settings["tile_rows"]
        rows[axis] = -(-dense.rows // tile) * tile
    (depth,) = program.reduce_axes(depth=dense.depth)

    def compute(*position):
        *leading, chunk, lane = position
        if axis is not None and rows[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        code = tirx.Cast("float32", tirx.Cast("int32", weights(chunk, depth.var, lane)))
        return te.sum(source(*leading, depth.var) * code, axis=[depth])

    return program.compute((*rows, -(-dense.columns // block), block), compute, "accumulator")
