"""Schedule of imported operators: the general one."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower.generic import schedule_blocks
from tilewright.compiler.lower.program import Program
from tilewright.compiler.opaque import kernel_function
from tilewright.core.targets import Resources, Target


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Import, merge and schedule the kernel."""
    function = kernel_function(
        dict(program.workload.steps[0].attributes), target.tvm_target(resources)
    )
    schedule = program.begin(function)
    schedule_blocks(schedule, target.lanes(program.workload.computed_in), resources)
    return schedule
