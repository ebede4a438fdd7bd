"""The transposed convolution by products of float16, see `conv2d_transposed` and `run_sums`.

row phase, column phase
  in block, tap, tap                            # runs
    channels of the block, or a row of taps too # within a run
      column, out chunk                         # register tile of halves, unrolled
        out lane                                # vectorised
    the tile widened, added to singles
"""

from __future__ import annotations

from math import gcd

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.conv2d_transposed import (
    GatheredDots,
    factors,
    finished,
    of_result,
    tiled,
)
from tilewright.compiler.lower.loops import register_tile
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import added_in_runs, runs_within
from tilewright.core.targets import Resources, Target
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.conv2d_transposed import transposed_convolution
from tilewright.kernels.conv2d_transposed_float16 import SPEC

_CHANNELS = -6
"""The loop over chunks of output channels, of those over sums."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv, register = transposed_convolution(program.workload), target.lanes(FLOAT16)
    block = SPEC.input_block(conv, program.candidate.forms, program.settings)
    dots = GatheredDots(spec=SPEC, taken=lambda x: mathematics.in_half(x, FLOAT16))
    shape, steps, product = factors(program, dots)
    within = ("slot", "term") if SPEC.taps_in_run(conv, block) == 1 else ("tap_x", "slot", "term")
    runs = {name: extent for name, extent in steps.items() if name not in within}
    inside = {name: extent for name, extent in steps.items() if name in within}
    accumulator = added_in_runs(program, shape, runs, inside, product)
    schedule = program.schedule(of_result(program, accumulator))
    nest = tiled(program, schedule, SPEC)
    vector, lane = schedule.split(nest.lane, [None, gcd(shape[-1], register)])
    register_tile(schedule, (*nest.tile, vector), lane)
    runs_within(schedule, nest.steps[-1], gcd(shape[-1], register), channels=_CHANNELS)
    finished(program, schedule, nest)
    schedule.decompose_reduction(nest.anchor, nest.steps[0])
    return schedule
