"""The batched product of codes in tile registers, see `batch_matmul_amx`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower.amx_text import code_tiles
from tilewright.compiler.lower.batch_matmul_amx import lowered
from tilewright.compiler.lower.dot_convolution import as_it_is
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.batch_matmul_amx import OF_CODES
from tilewright.kernels.matrix_products import batch_product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    kind = code_tiles(program.operand(batch_product(program.workload).data).type.dtype)
    return lowered(program, OF_CODES, kind, as_it_is, target, resources)
