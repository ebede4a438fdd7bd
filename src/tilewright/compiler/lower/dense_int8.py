"""The dense layer of 8-bit integers, see `dot_dense` and `byte_dots`."""

from __future__ import annotations

from functools import partial

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.byte_dots import (
    byte_dot,
    byte_dot_text,
    byte_product,
    compensation,
)
from tilewright.compiler.lower.dot_dense import DenseDots, accumulated, scheduled
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index
from tilewright.core.targets import Resources, Target
from tilewright.kernels.codes import terms
from tilewright.kernels.dense_int8 import added, copied
from tilewright.kernels.matrix_products import product


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    workload, settings, dense = program.workload, program.settings, product(program.workload)
    lanes, block = target.lanes(workload.computed_in), settings["block"]
    extra = added(workload, settings)
    kind = program.operand(dense.data).type.dtype
    dots = DenseDots(
        terms=terms(settings),
        product=partial(byte_product, added=extra),
        instruction=byte_dot(settings, lanes, kind),
        imported=byte_dot_text(settings, lanes),
        copied=copied(workload, settings),
        weight_bytes=1,
    )
    total = program.in_blocks(accumulated(program, dots), -1, block)

    def compensating(position: Index) -> tirx.Expr:
        at = program.simplify.split(position[-1], block)
        return total(position) + compensation(program, program.tensors[dense.weight], *at)

    program.set_anchor(compensating if extra else total)
    return scheduled(program, dots, target, resources)
