"""TVM's default GPU schedules: which of dlight's rules applies to a workload, and what it makes."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import dlight

from tilewright.compiler.lower.anchors import infinity
from tilewright.compiler.lower.generic import compute_all
from tilewright.compiler.lower.program import Program
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload

_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)
"""In the order in which TVM's own CUDA pipeline tries them."""


def scheduled(workload: Workload, target: tvm.target.Target) -> tuple[str, tvm.IRModule]:
    """The name of the rule that applied, and the module it made; its function is `main`."""
    function = te.create_prim_func(_tensors(workload)).with_attr("target", target)
    _register_reducers()
    with target:
        for rule in _RULES:
            made: Any = rule().apply(function, target, False)
            if made is None:
                continue
            schedule = made[0] if isinstance(made, list) else made
            return rule.__name__, schedule.mod
    raise InternalError(f"no GPU schedule rule applies to {workload.key}")


@cache
def _register_reducers() -> None:
    """Teach TVM our largest and smallest, which begin at an infinity: across threads it reduces by
    what it knows only, and its own begin at the largest finite number."""
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, sign in ((tirx.max, "-"), (tirx.min, "")):
        register(
            1,
            lambda left, right, combine=combine: [combine(left[0], right[0])],
            lambda values, sign=sign: [infinity(str(values[0].ty.dtype), sign)],
        )


def _tensors(workload: Workload) -> list[te.Tensor]:
    """Arguments and result, all in plain layouts."""
    plain = Candidate(
        implementation="generic",
        settings=(),
        forms=(PLAIN,) * (len(workload.arguments) + 1),
    )
    program = Program(workload, plain)
    compute_all(program)
    return [*program.tensors, program.finish()]
