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

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.generic import compute_all
from tilewright.compiler.lower.loops import spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import bits, logical_index, stored
from tilewright.core.element_types import element_type
from tilewright.core.forms import channel_block, number_layout
from tilewright.core.targets import Resources, Target
from tilewright.graph.operators import OPERATORS
from tilewright.kernels.generic import copied_parts


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    narrow = max(1, element_type(program.workload.result.dtype).bytes // 4)
    lanes = max(1, program.settings["vector"] // narrow)
    if copied_parts(program.workload, program.candidate.forms):
        schedule = program.begin(_copies(program))
        parts = range(len(program.workload.steps[0].inputs))
        tails = {f"part{part}": _part_tail(program, part) for part in parts}
    else:
        tails = {**dict.fromkeys(compute_all(program)), "result": _tail(program)}
        schedule = program.schedule()
    for name, tail in tails.items():
        spread(schedule, schedule.get_sblock(name), lanes, resources.threads, tail=tail)
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
        if form.layout != forms[-1].layout and len(shape) > 1 and sum(varies) > 2:
            return None
        moves.append(tuple(varies))
    long = [axis for axis, extent in enumerate(physical) if extent > 1]
    alike = [
        tail
        for tail in range(len(physical))
        if all(len({move[axis] for axis in long if axis >= tail}) < 2 for move in moves)
    ]
    return min([*alike, len(physical) - 1]) if physical else None


def _part_tail(program: Program, part: int) -> int | None:
    """Loops that run through memory in order in both the part and the result."""
    step = program.workload.steps[0]
    if program.candidate.forms[step.inputs[part]].layout != program.result_form.layout:
        return None
    axis = step.integer("axis")
    block = channel_block(program.result_form)
    rank = len(program.result_form.physical_shape(program.workload.result.shape))
    return min(axis + 1, rank - 1) if not block or axis > 1 else axis + 1


def _copies(program: Program) -> tirx.PrimFunc:
    """One block `partN` per operand that fills its part of the result."""
    workload, forms = program.workload, program.candidate.forms
    step = workload.steps[0]
    block, axis = channel_block(forms[-1]), step.integer("axis")
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    names = [*(f"argument{index}" for index in range(len(workload.arguments))), "result"]
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        script.func_attr({"tirx.noalias": True})
        *sources, output = (
            script.arg(name, script.buffer(form.physical_shape(kind.shape), bits(form, kind.dtype)))
            for name, kind, form in zip(names, kinds, forms, strict=True)
        )
        with script.sblock("root"):
            offset = 0
            for part, index in enumerate(step.inputs):
                start = offset // block if block and axis == 1 else offset
                _copy(program, index, (sources[index], output), f"part{part}", (axis, start))
                offset += kinds[index].shape[axis]
    return builder.get()


def _copy(
    program: Program,
    index: int,
    buffers: tuple[tirx.Buffer, tirx.Buffer],
    name: str,
    place: tuple[int, int],
) -> None:
    """The argument `index` in the first buffer goes to the second one, `place` tells from where on
    along which axis."""
    (source, output), (axis, start) = buffers, place
    kind, form = program.workload.types[index], program.candidate.forms[index]
    shape = program.result_form.physical_shape(kind.shape)
    value = stored(lambda *at: tirx.BufferLoad(source, list(at)), kind, form, program.simplify)
    with script.grid(*shape) as loops:
        loops = [loops] if isinstance(loops, tirx.Var) else list(loops)
        with script.sblock(name):
            at = [
                script.axis.spatial(extent, loop) for extent, loop in zip(shape, loops, strict=True)
            ]
            program.simplify.announce(at, shape)
            logical = logical_index(number_layout(program.result_form), at, kind.shape)
            at[axis] = at[axis] + start
            written = mathematics.in_half(value.read(logical), program.candidate.forms[-1].dtype)
            script.buffer_store(output, written, at)
