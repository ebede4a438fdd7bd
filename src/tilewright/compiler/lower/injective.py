"""Schedule of workloads without an anchor.

    parallel (outer loops)
      fused trailing loops                          # vectorised, contiguous

A concatenation copies each part by a block of its own, so no inner loop branches.
"""

from __future__ import annotations

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.compiler.lower.anchors import compute_anchor
from tilewright.compiler.lower.cuts import cut_deep_chains
from tilewright.compiler.lower.loops import spread
from tilewright.compiler.lower.positions import logical_index
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import stored
from tilewright.core.element_types import element_type
from tilewright.core.forms import channel_block, own_layout
from tilewright.core.targets import Resources, Target
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.kernels.injective import copied_parts


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = int(dict(program.candidate.settings)["vector"])
    narrow = max(1, element_type(program.workload.result.dtype).bytes // 4)
    lanes = max(1, lanes // narrow)
    if copied_parts(program.workload, program.candidate.forms):
        schedule = program.begin(_copies(program))
        for part in range(len(program.workload.steps[0].inputs)):
            block = schedule.get_sblock(f"part{part}")
            tail = _part_tail(program, part)
            spread(schedule, block, lanes, resources.threads, tail=tail)
        return schedule
    stages = cut_deep_chains(program, compute_anchor)
    schedule = program.schedule()
    for name in stages:
        spread(schedule, schedule.get_sblock(name), lanes, resources.threads)
    block = schedule.get_sblock("result")
    spread(schedule, block, lanes, resources.threads, tail=_tail(program))
    return schedule


def _tail(program: Program) -> int | None:
    """First of the trailing loops over which every argument runs alike: in order, or not at all.

    None when a step moves elements, for then nothing is known.
    """
    workload, forms = program.workload, program.candidate.forms
    if any(not OPERATORS[step.operator].elementwise for step in workload.steps):
        return None
    physical = forms[-1].physical_shape(workload.result.shape)
    moves: list[tuple[bool, ...]] = []
    for argument, form in zip(workload.arguments, forms, strict=False):
        shape = argument.type.shape
        full = (1,) * (len(workload.result.shape) - len(shape)) + shape
        varies = [extent > 1 for extent in full]
        if channel_block(forms[-1]):
            varies = [*varies, varies[1]]
        if form != forms[-1] and len(shape) > 1 and sum(varies) > 2:
            return None
        moves.append(tuple(varies))
    tail = len(physical)
    while tail > 0:
        suffix = range(tail - 1, len(physical))
        alike = all(
            len({move[axis] for axis in suffix if physical[axis] > 1}) <= 1 for move in moves
        )
        if not alike:
            break
        tail -= 1
    return min(tail, max(0, len(physical) - 1)) if physical else None


def _part_tail(program: Program, part: int) -> int | None:
    """Loops that run through memory in order in both the part and the result."""
    step = program.workload.steps[0]
    if program.candidate.forms[step.inputs[part]] != program.result_form:
        return None
    axis = step.integer("axis")
    block = channel_block(program.result_form)
    rank = len(program.result_form.physical_shape(program.workload.result.shape))
    return min(axis + 1, rank - 1) if not block or axis > 1 else axis + 1


def _copies(program: Program) -> tirx.PrimFunc:
    """One block `partN` per operand that fills its part of the result."""
    workload, forms = program.workload, program.candidate.forms
    result, step = workload.result, workload.steps[0]
    block = channel_block(forms[-1])
    axis = step.integer("axis")
    with IRBuilder() as builder:
        with script.prim_func(s_tir=True):
            script.func_name("main")
            script.func_attr({"tirx.noalias": True})
            buffers = [
                script.arg(
                    f"argument{index}",
                    script.buffer(
                        forms[index].physical_shape(argument.type.shape), argument.type.dtype
                    ),
                )
                for index, argument in enumerate(workload.arguments)
            ]
            shape = forms[-1].physical_shape(result.shape)
            output = script.arg("result", script.buffer(shape, result.dtype))
            with script.sblock("root"):
                offset = 0
                for part, index in enumerate(step.inputs):
                    kind = workload.types[index]
                    start = offset // block if block and axis == 1 else offset
                    source = (buffers[index], kind, forms[index])
                    _copy(program, source, output, f"part{part}", (axis, start))
                    offset += kind.shape[axis]
        return builder.get()


def _copy(
    program: Program,
    source: tuple[tirx.Buffer, TensorType, str],
    output: tirx.Buffer,
    name: str,
    place: tuple[int, int],
) -> None:
    buffer, kind, form = source
    axis, start = place
    shape = program.result_form.physical_shape(kind.shape)
    value = stored(
        lambda *index: tirx.BufferLoad(buffer, list(index)), kind, form, program.simplify
    )
    with script.grid(*shape) as loops:
        loops = [loops] if isinstance(loops, tirx.Var) else list(loops)
        with script.sblock(name):
            index = [
                script.axis.spatial(extent, loop) for extent, loop in zip(shape, loops, strict=True)
            ]
            program.simplify.announce(index, shape)
            logical = logical_index(own_layout(program.result_form), index, kind.shape)
            at = list(index)
            at[axis] = at[axis] + start
            script.buffer_store(output, value.read(logical), at)
