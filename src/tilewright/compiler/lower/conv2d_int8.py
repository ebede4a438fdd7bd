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
    flipped,
    pixel_dot,
)
from tilewright.compiler.lower.dot_convolution import Dots, accumulated, as_it_is, scheduled
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Read, Value
from tilewright.core.targets import Resources, Target
from tilewright.kernels.codes import taken_data
from tilewright.kernels.conv2d_int8 import SPEC, added
from tilewright.kernels.convolution import convolution
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel; codes of the sign that the instruction does not take are
    flipped where they are copied, else whenever they are read."""
    workload, settings = program.workload, program.settings
    lanes = output_block(program.candidate.forms, settings)
    extra, conv = added(workload, settings), convolution(workload)
    kind = program.operand(conv.data).type.dtype
    copied = SPEC.copied(conv, program.candidate.forms, settings)
    ready = taken_data(settings) if extra and copied else kind
    words = SPEC.pixels_at_once(conv, program.candidate.forms, settings)
    dots = Dots(
        spec=SPEC,
        product=partial(byte_product, added=extra if ready == kind else 0),
        instruction=pixel_dot(lanes) if words else byte_dot(settings, lanes, ready),
        taken=as_it_is if ready == kind else partial(flipped, kind=ready),
        imported=byte_dot_text(settings, lanes),
        border=0 if ready == kind else extra,
        pixels=words,
    )
    total = program.in_blocks(accumulated(program, dots), 1, lanes)

    def compensating(position: Index) -> tirx.Expr:
        at = program.simplify.split(position[1], lanes)
        return total(position) + compensation(program, program.tensors[conv.weight], *at)

    if extra or not begun_with_bias(program, total, lanes):
        program.set_anchor(compensating if extra else total)
    return scheduled(program, dots, target, resources)


def begun_with_bias(program: Program, total: Read, lanes: int) -> bool:
    """Let sums begin with a bias that is added to them next, one for each channel, and put the
    result of that addition in; whether there is such a bias."""
    workload = program.workload
    anchor = len(workload.arguments) + workload.anchor_index
    readers = [number for number, step in enumerate(workload.steps) if anchor in step.inputs]
    channels = workload.types[anchor].shape[1]
    if len(readers) != 1 or channels % lanes:
        return False
    step = workload.steps[readers[0]]
    (bias,) = set(step.inputs) - {anchor} or {anchor}
    if step.operator != "add" or not workload.is_constant(bias):
        return False
    tensor = program.tensors[bias]
    if tensor.dtype != "int32" or [int(n) for n in tensor.shape] != [channels, 1, 1]:
        return False
    last = len(workload.arguments) + readers[0]
    program.values[last] = Value(workload.types[last], total)
    program.begun = ("accumulator", bias, lambda n, o, y, x, lane: (o * lanes + lane, 0, 0))
    return True
