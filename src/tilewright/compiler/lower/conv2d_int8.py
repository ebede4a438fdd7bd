"""The convolution of 8-bit integers, see `dot_convolution` and `byte_dots`."""

from __future__ import annotations

from functools import partial

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.byte_dots import (
    byte_dot,
    byte_dot_text,
    byte_product,
    compensation,
)
from tilewright.compiler.lower.dot_convolution import Dots, accumulated, scheduled
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_int8 import SPEC, added
from tilewright.kernels.convolution import convolution
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    workload, settings = program.workload, program.settings
    lanes = output_block(program.candidate.forms, settings)
    extra, conv = added(workload, settings), convolution(workload)
    kind = program.operand(conv.data).type.dtype
    dots = Dots(
        spec=SPEC,
        product=partial(byte_product, added=extra),
        instruction=byte_dot(settings, lanes, kind),
        imported=byte_dot_text(settings, lanes),
    )
    total = program.in_blocks(accumulated(program, dots), 1, lanes)

    def compensating(position: Index) -> tirx.Expr:
        at = program.simplify.split(position[1], lanes)
        return total(position) + compensation(program, program.tensors[conv.weight], *at)

    program.set_anchor(compensating if extra else total)
    return scheduled(program, dots, target, resources)
