"""Schedule of a trace: the plain computation, then whatever the trace says."""

from __future__ import annotations

import json

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tilewright.compiler.lower import generic
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Value
from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import SPEC, TRACE, packed_weight


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the plain computation and apply the trace."""
    schedule = _begun(program, target, resources)
    Trace.apply_json_to_schedule(json.loads(str(program.settings[TRACE])), schedule)
    return schedule


def unscheduled(
    workload: Workload, forms: tuple[Form, ...], target: Target, resources: Resources
) -> tvm.IRModule:
    """What a trace starts from: the whole fused computation, its function called `main`."""
    candidate = Candidate(implementation=SPEC.name, settings=(), forms=forms)
    program = Program(workload, candidate, SPEC.packed_shapes(workload, candidate))
    return _begun(program, target, resources).mod


def _begun(program: Program, target: Target, resources: Resources) -> Schedule:
    """The plain computation, packed weights read at their logical place."""
    packed = packed_weight(program.workload, program.candidate)
    if packed is not None:
        read = program.in_blocks(program.tensors[packed.argument], 0, packed.block)
        kind = program.workload.arguments[packed.argument].type
        program.values[packed.argument] = Value(kind, read)
    return generic.unscheduled(program, target, resources)
