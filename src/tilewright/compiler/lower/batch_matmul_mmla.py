"""The batched product by ARM's products of matrices, see `batch_matmul_amx` and `mmla_text`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower.amx_text import HALVES_BY_MMLA
from tilewright.compiler.lower.batch_matmul_amx import lowered
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_mmla import SPEC


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    return lowered(program, SPEC, HALVES_BY_MMLA, target, resources)
