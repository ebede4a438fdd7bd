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
from tilewright.core.layouts import parse_layout
from tilewright.core.targets import Resources, Target
from tilewright.graph.layout import channel_block, physical_shape
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.kernels.injective import copied_parts


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    lanes = int(dict(program.candidate.settings)["vector"])
    narrow = max(1, element_type(program.workload.result.dtype).bytes // 4)
    lanes = max(1, lanes // narrow)
    if copied_parts(program.workload, program.candidate.layouts):
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
    workload, layouts = program.workload, program.candidate.layouts
    if any(not OPERATORS[step.operator].elementwise for step in workload.steps):
        return None
    physical = physical_shape(workload.result.shape, layouts[-1])
    moves: list[tuple[bool, ...]] = []
    for argument, layout in zip(workload.arguments, layouts, strict=False):
        shape = argument.type.shape
        full = (1,) * (len(workload.result.shape) - len(shape)) + shape
        varies = [extent > 1 for extent in full]
        if channel_block(layouts[-1]):
            varies = [*varies, varies[1]]
        if layout != layouts[-1] and len(shape) > 1 and sum(varies) > 2:
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
    if program.candidate.layouts[step.inputs[part]] != program.result_layout:
        return None
    axis = step.integer("axis")
    block = channel_block(program.result_layout)
    rank = len(physical_shape(program.workload.result.shape, program.result_layout))
    return min(axis + 1, rank - 1) if not block or axis > 1 else axis + 1


def _copies(program: Program) -> tirx.PrimFunc:
    """One block `partN` per operand that fills its part of the result."""
    workload, layouts = program.workload, program.candidate.layouts
    result, step = workload.result, workload.steps[0]
    block = channel_block(layouts[-1])
    axis = step.integer("axis")
    with IRBuilder() as builder:
        with script.prim_func(s_tir=True):
            script.func_name("main")
            script.func_attr({"tirx.noalias": True})
            buffers = [
                script.arg(
                    f"argument{index}",
                    script.buffer(
                        physical_shape(argument.type.shape, layouts[index]), argument.type.dtype
                    ),
                )
                for index, argument in enumerate(workload.arguments)
            ]
            shape = physical_shape(result.shape, layouts[-1])
            output = script.arg("result", script.buffer(shape, result.dtype))
            with script.sblock("root"):
                offset = 0
                for part, index in enumerate(step.inputs):
                    kind = workload.types[index]
                    start = offset // block if block and axis == 1 else offset
                    source = (buffers[index], kind, layouts[index])
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
    buffer, kind, layout = source
    axis, start = place
    shape = physical_shape(kind.shape, program.result_layout)
    value = stored(
        lambda *index: tirx.BufferLoad(buffer, list(index)), kind, layout, program.simplify
    )
    with script.grid(*shape) as loops:
        loops = [loops] if isinstance(loops, tirx.Var) else list(loops)
        with script.sblock(name):
            index = [
                script.axis.spatial(extent, loop) for extent, loop in zip(shape, loops, strict=True)
            ]
            program.simplify.announce(index, shape)
            logical = logical_index(parse_layout(program.result_layout), index, kind.shape)
            at = list(index)
            at[axis] = at[axis] + start
            script.buffer_store(output, value.read(logical), at)
