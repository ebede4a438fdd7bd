"""The transposed convolution of 8-bit integers, see `conv2d_transposed` and `byte_dots`."""

from __future__ import annotations

from functools import partial

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.byte_dots import (
    byte_dot,
    byte_dot_text,
    byte_product,
    compensation,
    flipped,
)
from tilewright.compiler.lower.conv2d_transposed import (
    GatheredDots,
    accumulated,
    lane_of,
    of_result,
    scheduled,
)
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.codes import taken_data
from tilewright.kernels.conv2d_transposed import transposed_convolution
from tilewright.kernels.conv2d_transposed_int8 import SPEC, added
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel; codes of the sign that the instruction does not take are
    flipped where they are copied."""
    settings, conv = program.settings, transposed_convolution(program.workload)
    lanes = output_block(program.candidate.forms, settings)
    extra, kind = added(program.workload, settings), program.operand(conv.data).type.dtype
    ready = taken_data(settings) if extra else kind
    dots = GatheredDots(
        spec=SPEC,
        product=partial(byte_product, added=0),
        instruction=byte_dot(settings, lanes, ready),
        imported=byte_dot_text(settings, lanes),
        border=extra,
        **({"taken": partial(flipped, kind=ready)} if extra else {}),
    )
    sums = of_result(program, accumulated(program, dots))
    weights, split = program.tensors[conv.weight], program.simplify.split

    def corrected(position: Index) -> tirx.Expr:
        _, c, y, x = position
        chunk, lane = lane_of(program, c, lanes)
        (_, row), (_, column) = split(y, conv.rows.count), split(x, conv.columns.count)
        phase = (chunk * conv.rows.count + row) * conv.columns.count + column
        return sums(position) + compensation(program, weights, phase, lane)

    return scheduled(program, dots, corrected if extra else sums)
