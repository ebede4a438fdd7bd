"""Schedule of Winograd convolution F(4×4, 3×3)."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower.conv2d_winograd_stages import lower_form
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_winograd import SPEC
from tilewright.kernels.convolution import convolution


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    return lower_form(program, target, SPEC.form(convolution(program.workload)))
