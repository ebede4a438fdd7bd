"""The transposed convolution by dot products of bfloat16, see `conv2d_transposed`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.conv2d_transposed import GatheredDots, tiled
from tilewright.compiler.lower.half_dots import half_dot, half_dot_text, half_product
from tilewright.compiler.lower.loops import by_instruction
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_transposed_bfloat16 import SPEC
from tilewright.kernels.halves import PAIR
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = output_block(program.candidate.forms, program.settings)
    dots = GatheredDots(SPEC, PAIR, "uint16", mathematics.half, half_product)
    schedule, anchor, first, lane = tiled(program, dots)
    parallel, *_ = schedule.get_loops(anchor)
    schedule.annotate(parallel, "pragma_import_llvm", half_dot_text(target, lanes))
    by_instruction(schedule, anchor, first, lane, half_dot(lanes))
    return schedule
