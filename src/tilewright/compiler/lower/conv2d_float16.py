"""The convolution by products of float16.

[the input in halves, in blocks, with its border of zeros]
parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  column tile
    in chunk, kh, kw                            # runs
      lanes of the chunk, or kw too             # within a run
        row, column, out chunk                  # register tile of halves, unrolled
          out lane                              # vectorised
      the tile widened, added to singles
    epilogue of the tile, in vectors
"""

from __future__ import annotations

from math import gcd

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.conv2d_windows import shared_tiles
from tilewright.compiler.lower.dot_convolution import (
    Dots,
    factors,
    filled,
    finished,
    with_epilogue,
)
from tilewright.compiler.lower.loops import register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import added_in_runs, runs_within
from tilewright.core.targets import Resources, Target
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.conv2d_float16 import SPEC
from tilewright.kernels.convolution import convolution
from tilewright.kernels.ports import output_block

_CHANNELS = -4
"""The loop over chunks of output channels, of [n, chunk, row, column, lane]."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv, settings = convolution(program.workload), program.settings
    block = SPEC.input_block(conv, program.candidate.forms, settings)
    lanes = output_block(program.candidate.forms, settings)
    dots = Dots(spec=SPEC, taken=lambda x: mathematics.in_half(x, FLOAT16))
    shape, steps, product = factors(program, dots)
    within = ("kx", "slot", "term") if SPEC.taps_in_run(conv, block) > 1 else ("slot", "term")
    accumulator = added_in_runs(
        program,
        shape,
        {name: extent for name, extent in steps.items() if name not in within},
        {name: extent for name, extent in steps.items() if name in within},
        product,
    )
    program.set_anchor(program.in_blocks(accumulator, 1, lanes))
    with_epilogue(program, lanes)
    schedule = program.schedule()
    if SPEC.copied(conv, program.candidate.forms, settings):
        filled(schedule, conv.in_channels, block, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    n, *plane, lane = schedule.get_loops(anchor)[:5]
    sums = schedule.get_loops(anchor)[5:]
    knobs = ("tile_out", "tile_height", "tile_width")
    (outer, down, across), (channels, row, column) = zip(
        *(
            schedule.split(loop, [None, settings[knob]])
            for loop, knob in zip(plane, knobs, strict=True)
        ),
        strict=True,
    )
    pieces, serial = shared_tiles(conv, settings, n, (outer, down, across))
    vector, lane = schedule.split(lane, [None, gcd(lanes, target.lanes(FLOAT16))])
    tile = (row, column, channels, vector)
    schedule.reorder(*pieces, *serial, *sums, *tile, lane)
    parallel = share_out(schedule, pieces)
    register_tile(schedule, tile, lane)
    runs_within(schedule, sums[-1], gcd(lanes, target.lanes(FLOAT16)), channels=_CHANNELS)
    finished(program, schedule, serial[0] if serial else parallel)
    schedule.decompose_reduction(anchor, sums[0])
    return schedule
