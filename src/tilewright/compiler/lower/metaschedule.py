"""Schedule of a trace: the plain computation, then whatever the trace says."""

from __future__ import annotations

import json

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tilewright.compiler.lower.anchors import compute_anchor
from tilewright.compiler.lower.cuts import cut_deep_chains
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.compiler.opaque import kernel_function
from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import SPEC, TRACE, packed_weight


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the plain computation and apply the trace."""
    schedule = _begun(program, target, resources)
    trace = program.candidate.setting(TRACE)
    Trace.apply_json_to_schedule(json.loads(str(trace)), schedule)
    return schedule


def unscheduled(
    workload: Workload, forms: tuple[Form, ...], target: Target, resources: Resources
) -> tvm.IRModule:
    """What a trace starts from: the whole fused computation, its function called `main`."""
    candidate = Candidate(implementation=SPEC.name, settings=(), forms=forms)
    program = Program(workload, candidate, SPEC.packed_shapes(workload, candidate))
    return _begun(program, target, resources).mod


def _begun(program: Program, target: Target, resources: Resources) -> Schedule:
    workload = program.workload
    if len(workload.steps) == 1 and workload.steps[0].operator == "opaque":
        attributes = dict(workload.steps[0].attributes)
        return program.begin(kernel_function(attributes, target.tvm_target(resources)))
    _unpack_weight(program)
    cut_deep_chains(program, compute_anchor)
    return program.schedule()


def _unpack_weight(program: Program) -> None:
    """Read packed weights at their logical place."""
    packed = packed_weight(program.workload, program.candidate)
    if packed is None:
        return
    tensor, block = program.tensors[packed.argument], packed.block

    def read(index: Index) -> tirx.Expr:
        out, *rest = index
        chunk = program.simplify(tirx.floordiv(out, block))
        return tensor(chunk, *rest, program.simplify(tirx.floormod(out, block)))

    kind = program.workload.arguments[packed.argument].type
    program.values[packed.argument] = Value(type=kind, read=read)
