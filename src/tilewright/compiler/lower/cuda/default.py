"""TVM's own schedules for GPUs, in the order in which its CUDA pipeline tries their rules."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule, dlight

from tilewright.compiler.lower.anchors import infinity
from tilewright.compiler.lower.generic import compute_all
from tilewright.compiler.lower.program import Program
from tilewright.core.errors import InternalError
from tilewright.core.targets import Resources, Target

_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """The schedule of the first rule that applies; tensors are called `argument0` and so on, and
    `result`."""
    compute_all(program)
    given = tvm.target.Target(target.tvm_target(resources))
    function = te.create_prim_func([*program.tensors, program.finish()]).with_attr("target", given)
    _register_reducers()
    with given:
        for rule in _RULES:
            made: Any = rule().apply(function, given, False)
            if made is not None:
                program.rule = rule.__name__
                return made[0] if isinstance(made, list) else made
    raise InternalError(f"no GPU schedule rule applies to {program.workload.key}")


@cache
def _register_reducers() -> None:
    """Teach TVM our largest and smallest, which begin at an infinity: across threads it reduces by
    what it knows only, and its own begin at the largest finite number."""
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, sign in ((tirx.max, "-"), (tirx.min, "")):
        callbacks = [
            tvm_ffi.convert(lambda left, right, combine=combine: [combine(left[0], right[0])]),
            tvm_ffi.convert(lambda values, sign=sign: [infinity(str(values[0].ty.dtype), sign)]),
        ]
        register(1, *callbacks)
        for callback in callbacks:  # TVM would free it after Python has ended, and crash
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
