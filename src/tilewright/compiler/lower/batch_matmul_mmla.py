"""The batched products by ARM's products of matrices, see `batch_matmul_amx` and `mmla_text`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES_BY_MMLA, codes_by_mmla
from tilewright.compiler.lower.batch_matmul_amx import lowered
from tilewright.compiler.lower.dot_convolution import as_it_is
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_mmla import OF_CODES, OF_HALVES
from tilewright.kernels.matrix_products import batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    if program.candidate.implementation == OF_HALVES.name:
        taken = mathematics.half
        return lowered(program, OF_HALVES, HALVES_BY_MMLA, taken, target, resources)
    kind = codes_by_mmla(program.operand(batch_product(program.workload).data).type.dtype)
    return lowered(program, OF_CODES, kind, as_it_is, target, resources)
