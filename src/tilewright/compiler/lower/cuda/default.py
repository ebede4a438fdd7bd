"""TVM's own schedules for GPUs, in the order in which its CUDA pipeline tries their rules."""

from __future__ import annotations

import ctypes
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import SBlock, Schedule, dlight
from tvm_ffi import structural_map, structural_walk

from tilewright.compiler.lower.anchors import infinity
from tilewright.compiler.lower.generic import compute_all
from tilewright.compiler.lower.program import MOST_COUNTED, Program
from tilewright.core.errors import InternalError
from tilewright.core.targets import LaunchLimits, Resources, Target

_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)

_STUMBLES = {
    dlight.gpu.GEMV: (AssertionError, AttributeError),
    dlight.gpu.Reduction: (tvm.error.InternalError,),
}
"""Rules that stumble over a shape, and by which errors: that for products with a vector reads
numbers off expressions, which short rows do not have; that for sums replaces a block that it has
lost where the result is a scalar. Errors of other rules are faults."""

_BLOCK = "blockIdx."
_PADDED = "_pad"
"""In the names of buffers that a rule pads to whole tiles; it counts rows of their operand up to
the padded number, in the type of its positions."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """The schedule of the first rule that applies and whose launches a GPU takes; tensors are
    called `argument0` and so on, and `result`."""
    compute_all(program)
    given = tvm.target.Target(target.tvm_target(resources))
    function = te.create_prim_func([*program.tensors, program.finish()]).with_attr("target", given)
    _register_reducers()
    with given:
        for rule in _RULES:
            made = _scheduled(rule(), function, given)
            schedule = None if made is None else _kept(made, target.limits)
            if schedule is not None:
                program.rule = rule.__name__
                return schedule
    raise InternalError(
        f"no GPU schedule rule keeps the limits of a launch for {program.workload.key}"
    )


def _scheduled(rule: Any, function: Any, given: Any) -> Schedule | None:
    """What a rule makes of a function; None where it does not apply, and where it stumbles."""
    try:
        made = rule.apply(function, given, False)
    except _STUMBLES.get(type(rule), ()):
        return None
    return made[0] if isinstance(made, list) else made


def _kept(schedule: Schedule, limits: LaunchLimits) -> Schedule | None:
    """A schedule with all blocks along x where there are too many along another axis; None where
    a launch breaks a limit even so, and where an operand that the rule has padded has more elements
    than its positions count."""
    most = {f"blockIdx.{axis}": limits.grid[place] for place, axis in enumerate("xyz")}

    def taken(loop: Any) -> bool:
        tag = str(loop.thread_binding.thread_tag)
        return int(loop.extent) <= most.get(tag, limits.block_threads)

    def flat(loop: Any) -> Any:
        grid, body = list[Any](), loop
        while _tag(body).startswith(_BLOCK):
            grid.append(body)
            body = body.body
        return loop if all(map(taken, grid)) else _along_x(grid, body)

    main = schedule.mod["main"]
    body = structural_map(main.body, (tirx.For, flat), order="pre")
    refused = list[Any]()

    def look(loop: Any) -> None:
        if _tag(loop) and not taken(loop):
            refused.append(loop)

    def look_within(block: Any) -> None:
        refused.extend(it for it in block.alloc_buffers if _PADDED in it.name and _is_beyond(it))

    structural_walk(body, (tirx.For, look))
    structural_walk(body, (SBlock, look_within))
    if refused:
        return None
    return schedule if body.same_as(main.body) else Schedule(main.with_body(body))


def _is_beyond(made: Any) -> bool:
    """Whether a buffer has more elements than positions of the type that they have here tell
    apart."""
    wide = any(str(extent.ty.dtype) == "int64" for extent in made.shape)
    return not wide and prod(int(extent) for extent in made.shape) >= MOST_COUNTED


def _tag(statement: Any) -> str:
    """The axis of the launch that a statement is a loop over; empty if it is none."""
    binding = statement.thread_binding if isinstance(statement, tirx.For) else None
    return str(binding.thread_tag) if binding is not None else ""


def _along_x(grid: list[Any], body: Any) -> Any:
    """A loop over blocks along x in place of loops over several axes; the last runs fastest."""
    first = grid[0]
    block = tirx.Var(f"{first.loop_var.name}_all", first.loop_var.ty)
    rest, places = block, dict[Any, Any]()
    for loop in reversed(grid):
        places[loop.loop_var] = tirx.floormod(rest, loop.extent)
        rest = tirx.floordiv(rest, loop.extent)
    axis = tirx.IterVar(None, f"{_BLOCK}x", tirx.IterVar.ThreadIndex, f"{_BLOCK}x")
    extent = tirx.const(prod(int(loop.extent) for loop in grid), str(first.loop_var.ty.dtype))
    inner = structural_map(body, (tirx.Var, lambda it: places.get(it, it)))
    return tirx.For(block, 0, extent, tirx.ForKind.THREAD_BINDING, inner, axis)


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
