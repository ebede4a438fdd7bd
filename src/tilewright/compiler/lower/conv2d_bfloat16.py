"""The convolution by dot products of bfloat16, see `dot_convolution`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.dot_convolution import Dots, accumulated, scheduled
from tilewright.compiler.lower.half_dots import half_dot, half_dot_text, half_product
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_bfloat16 import SPEC
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = output_block(program.candidate.forms, program.settings)
    dots = Dots(
        spec=SPEC,
        product=half_product,
        instruction=half_dot(lanes),
        taken=mathematics.half,
        imported=half_dot_text(target, lanes),
    )
    program.set_anchor(program.in_blocks(accumulated(program, dots), 1, lanes))
    return scheduled(program, dots, target, resources)
