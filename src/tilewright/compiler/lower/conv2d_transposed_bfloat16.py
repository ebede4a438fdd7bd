"""The transposed convolution by dot products of bfloat16, see `conv2d_transposed`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.conv2d_transposed import (
    GatheredDots,
    accumulated,
    of_result,
    scheduled,
)
from tilewright.compiler.lower.half_dots import half_dot, half_dot_text, half_product
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_transposed_bfloat16 import SPEC
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = output_block(program.candidate.forms, program.settings)
    dots = GatheredDots(
        spec=SPEC,
        taken=mathematics.half,
        product=half_product,
        instruction=half_dot(lanes),
        imported=half_dot_text(target, lanes),
    )
    return scheduled(program, dots, of_result(program, accumulated(program, dots)))
