"""The dense layer by products of float16.

    [the data copied, in the type that is multiplied]
    parallel (row tile, column chunk)     # `order` decides which is outside
      runs along the depth
        depth within the run
          row, vector of the block        # register tile of halves, unrolled
            column                        # vectorised
        the tile widened, added to singles
      epilogue of the tile

Without runs it is the schedule of `dense_packed`, with factors widened.
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.dense_packed import ahead, finished, tiled
from tilewright.compiler.lower.dot_dense import rows_in_slots
from tilewright.compiler.lower.loops import register_tile, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import added_in_runs, runs_within
from tilewright.core.targets import Resources, Target
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.dense_float16 import copied
from tilewright.kernels.matrix_products import MatrixProduct, product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dense, settings = product(program.workload), program.settings
    run, single = int(settings["run"]), target.lanes(program.workload.computed_in)
    lanes = target.lanes(FLOAT16) if run else single
    copy = copied(program.workload, program.candidate.forms, run)
    accumulator = _accumulator(program, dense, run, copy=copy)
    schedule = program.schedule(program.in_blocks(accumulator, -1, settings["block"]))
    if copy:
        spread(schedule, schedule.get_sblock("copy"), single, resources.threads)
    nest = tiled(schedule, dense, settings, lanes)
    first = ahead(schedule, target, dense, nest, run or 1, element_bytes=2)
    register_tile(schedule, nest.tile, nest.lane)
    if run:
        loops = schedule.get_loops(schedule.get_sblock("accumulator"))
        runs_within(schedule, loops[-len(nest.tile) - 2], lanes)
    finished(schedule, dense, nest, single)
    schedule.decompose_reduction(schedule.get_sblock("accumulator"), first)
    return schedule


def _accumulator(program: Program, dense: MatrixProduct, run: int, *, copy: bool) -> te.Tensor:
    """The stage `accumulator`: sums of products, [rows, column chunk, column]."""
    settings, weights = program.settings, program.tensors[dense.weight]
    data, block = program.operand(dense.data), settings["block"]
    taken = (lambda x: mathematics.in_half(x, FLOAT16)) if run else (lambda x: x)
    source = rows_in_slots(program, data, run or 1, taken, copied=copy)
    rows, axis = list(data.type.shape[:-1]), dense.row_axis
    if axis is not None:
        tile = settings["tile_rows"]
        rows[axis] = -(-dense.rows // tile) * tile

    def factors(position, depth):
        *leading, chunk, lane = position
        if axis is not None and rows[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        return source(*leading, depth), weights(chunk, depth, lane)

    shape = (*rows, -(-dense.columns // block), block)
    if not run:
        (depth,) = program.reduce_axes(depth=dense.depth)

        def widened(*position):
            value, weight = factors(position, depth.var)
            return te.sum(value * mathematics.out_of_half(weight, FLOAT16), axis=[depth])

        return program.compute(shape, widened, "accumulator")
    return added_in_runs(
        program,
        shape,
        {"run": -(-dense.depth // run)},
        {"depth": run},
        lambda position, at: factors(position, at["run"] * run + at["depth"]),
    )
