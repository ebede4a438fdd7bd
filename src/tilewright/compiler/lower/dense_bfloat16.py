"""The dense layer by dot products of bfloat16, see `dot_dense`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.dot_dense import DenseDots, accumulated, scheduled
from tilewright.compiler.lower.half_dots import half_dot, half_dot_text, half_product
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.dense_bfloat16 import copied
from tilewright.kernels.halves import PAIR


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = target.lanes(program.workload.computed_in)
    dots = DenseDots(
        terms=PAIR,
        product=half_product,
        instruction=half_dot(lanes),
        copied=copied(program.workload, program.candidate.forms),
        weight_bytes=2,
        taken=mathematics.half,
        imported=half_dot_text(target, lanes),
    )
    block = program.settings["block"]
    program.set_anchor(program.in_blocks(accumulated(program, dots), -1, block))
    return scheduled(program, dots, target, resources)
