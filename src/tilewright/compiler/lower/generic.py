"""The general fallback: every block parallel and vectorised, whatever it computes.

parallel (outer spatial loops)
  reduction loops
    innermost spatial loop                      # vectorised, or rows kept whole

It serves operators of TVM's importer (`opaque`) as well, and the plain computation under whatever a
trace of MetaSchedule's says.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tilewright.compiler.lower.anchors import compute_anchor, staged
from tilewright.compiler.lower.loops import (
    PARALLEL_ELEMENTS,
    extents,
    reduction_split,
    share_out,
    spread,
)
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Value, in_type
from tilewright.compiler.opaque import import_opaque
from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import SPEC, TRACE

_ROUNDING = dict.fromkeys(("identity", "reshape", "transpose", "slice", "expand", "gather"), 0)
"""What bfloat16 adds: its rounding takes several mentions of what is rounded, not of what moves."""
_DEEPEST = 2


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    schedule = unscheduled(program, target, resources)
    if TRACE in program.settings:
        Trace.apply_json_to_schedule(json.loads(program.settings[TRACE]), schedule)
        return schedule
    lanes = target.lanes(program.workload.computed_in)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        _schedule_block(schedule, block, lanes, resources)
    return schedule


def unscheduled(program: Program, target: Target, resources: Resources) -> Schedule:
    """The plain computation of the whole workload, or what TVM's importer makes of it.

    Packed weights, which only traces have, are read at their logical place.
    """
    if program.candidate.implementation == SPEC.name:
        for argument, shape in SPEC.packed_shapes(program.workload, program.candidate).items():
            read = program.in_blocks(program.tensors[argument], 0, shape[-1])
            program.values[argument] = Value(program.workload.types[argument], read)
    first, *others = program.workload.steps
    if first.operator == "opaque" and not others:
        model, output = str(first.attribute("model")), first.integer("output_index")
        return program.begin(import_opaque(model, output, target.tvm_target(resources)))
    compute_all(program)
    return program.schedule()


def compute_all(program: Program) -> list[str]:
    """Compute the anchor, and put intermediate results into stages so that no path holds too many
    costly operators. Gives the names of those stages.

        gelu(softplus(tanh(x)))  -->  value1 = tanh(x) in memory;  gelu(softplus(value1))

    Composed expressions bind what they use more than once, and TVM's simplifier looks through such
    bindings: its time grows exponentially with the number of costly operators on one path.
    """
    workload = program.workload
    arguments = len(workload.arguments)
    depth = [0] * arguments
    names: list[str] = []
    for index, step in enumerate(workload.steps):
        if OPERATORS[step.operator].anchor:
            compute_anchor(program)
            depth.append(0)
            continue
        cost = OPERATORS[step.operator].transcendental
        if workload.types[arguments + index].dtype == "bfloat16":
            cost = max(cost, _ROUNDING.get(step.operator, 1))
        if cost + max((depth[i] for i in step.inputs), default=0) > _DEEPEST:
            for value in set(step.inputs):
                if depth[value] > 0:
                    names.append(f"value{value}")
                    kept = staged(program, program.operand(value), names[-1])
                    program.values[value] = in_type(kept, workload.types[value].dtype)
                    depth[value] = 0
        depth.append(cost + max((depth[i] for i in step.inputs), default=0))
    return names


def _schedule_block(schedule: Schedule, block: Any, lanes: int, resources: Resources) -> None:
    """Make a block parallel, and vectorised by `lanes`, where its form allows it."""
    axes, loops = schedule.get(block).iter_vars, schedule.get_loops(block)
    fixed = all(isinstance(schedule.get(loop).extent, (int, tirx.IntImm)) for loop in loops)
    if not loops or len(loops) != len(axes) or not fixed:
        return
    kinds = {axis.iter_type for axis in axes}
    if kinds == {tirx.IterVar.DataPar}:
        spread(schedule, block, lanes, resources.threads)
    elif kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        _schedule_reduction(schedule, block, lanes, resources)


def _schedule_reduction(schedule: Schedule, block: Any, lanes: int, resources: Resources) -> None:
    outer, reduction = reduction_split(schedule, block)
    work, inner = prod(extents(schedule, [*outer, *reduction])), []
    if outer:
        *rest, last = outer
        extent = int(schedule.get(last).extent)
        if extent % lanes == 0 and extent > lanes:
            chunk, vector = schedule.split(last, [None, lanes])
            outer, inner = [*rest, chunk], [vector]
        elif 4 <= extent <= lanes:
            outer, inner = rest, [last]
    if inner:
        schedule.reorder(*outer, *reduction, *inner)
        schedule.vectorize(inner[0])
    if outer and work >= PARALLEL_ELEMENTS and resources.threads > 1:
        share_out(schedule, outer, resources.threads)
    if reduction:
        schedule.decompose_reduction(block, reduction[0])


def trace_start(
    workload: Workload, forms: tuple[Form, ...], target: Target, resources: Resources
) -> tvm.IRModule:
    """What a trace starts from: the whole fused computation, its function called `main`."""
    candidate = Candidate(implementation=SPEC.name, settings=(), forms=forms)
    program = Program(workload, candidate, SPEC.packed_shapes(workload, candidate))
    return unscheduled(program, target, resources).mod
