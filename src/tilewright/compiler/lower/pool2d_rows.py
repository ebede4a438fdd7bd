"""Schedule of window pooling.

blocked:  parallel (n, chunk, row)
            column tile
              window                                # reduction
                column, lane                        # registers, vectorised
plain:    parallel (n, channel)
            plane with its border                   # stays in the cache
            row, column tile
              window
                columns                             # vectorised
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.anchors import pool_divisor, pool_filler, pool_window
from tilewright.compiler.lower.loops import register_tile, share_out, vectorize_last
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, bordered
from tilewright.core.forms import PLAIN, channel_block
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.kernels.base import anchored


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    step = program.workload.anchor
    data, named = program.operand(step.inputs[0]), dict(step.attributes)
    source, kind = data, TensorType(anchored(program.workload)[2].shape, data.type.dtype)
    filler, plain = pool_filler(named, kind.dtype), not channel_block(program.result_form)
    if not plain:
        source = _guarded(data, named, filler)
    elif any(named["padding"]):
        source = program.kept(bordered(data, named["padding"], filler), PLAIN, "bordered")
    sums = Value(kind, pool_window(program, source, named))
    window = program.kept(sums, program.result_form, "window")

    def average(at: Index) -> tirx.Expr:
        value, divisor = window.read(at), pool_divisor(at, named, data.type, kind.dtype)
        if isinstance(divisor, tirx.FloatImm):
            return value * tirx.const(1.0 / divisor.value, kind.dtype)
        return value / divisor

    schedule = program.schedule(average if "count_include_pad" in named else window.read)
    own_border = plain and any(named["padding"])
    _schedule(schedule, program, target, resources, bordered=own_border)
    return schedule


def _guarded(data: Value, named: dict[str, Any], filler: float) -> Value:
    """The data beyond its border: every load stays inside, outside counts as `filler`.

    No `Select` over a clamped load: TVM takes its condition to drop the clamp, and loads anyway.
    """
    top, left, bottom, right = named["padding"]
    height, width = data.type.shape[2:]

    def read(index: Index) -> tirx.Expr:
        n, c, y, x = index
        conditions: list[tirx.Expr] = []
        if top or bottom:
            y = y - top
            conditions += [y >= 0, y < height]
        if left or right:
            x = x - left
            conditions += [x >= 0, x < width]
        if not conditions:
            return data.read(index)
        if filler != 0 and tuple(named["dilation"]) == (1, 1) and _covers(named, data.type.shape):
            # the nearest position lies in the window as well, so its maximum does not change
            near_y = tirx.max(tirx.min(y, height - 1), 0) if top or bottom else y
            near_x = tirx.max(tirx.min(x, width - 1), 0) if left or right else x
            return data.read([n, c, near_y, near_x])
        outside = tirx.const(filler, data.type.dtype)
        return tirx.if_then_else(tirx.all(*conditions), data.read([n, c, y, x]), outside)

    return Value(type=data.type, read=read)


def _covers(named: dict[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether every window touches the data."""
    padding = named["padding"]
    for axis in (0, 1):
        kernel, stride = named["kernel"][axis], named["strides"][axis]
        total = shape[2 + axis] + padding[axis] + padding[axis + 2]
        last = (total - kernel) // stride * stride
        if padding[axis] >= kernel or last - padding[axis] >= shape[2 + axis]:
            return False
    return True


def _schedule(
    schedule: Schedule, program: Program, target: Target, resources: Resources, *, bordered: bool
) -> None:
    """Windows stay in registers; in a blocked layout `lane` is its innermost loop."""
    lanes, knob = target.lanes(program.workload.computed_in), program.settings["tile_width"]
    window, result = schedule.get_sblock("window"), schedule.get_sblock("result")
    n, channel, y, x, *lane, ky, kx = schedule.get_loops(window)
    width = int(schedule.get(x).extent)
    largest = max(size for size in range(1, min(width, lanes * knob) + 1) if width % size == 0)
    columns = largest if largest >= min(4, width) else width
    x_outer, x_inner = schedule.split(x, [None, knob if lane else columns])
    schedule.reorder(n, channel, y, x_outer, ky, kx, x_inner, *lane)
    parallel = share_out(schedule, [n, channel, y] if lane else [n, channel], resources.threads)
    schedule.set_scope(window, 0, "local")
    schedule.reverse_compute_at(result, x_outer)
    last = schedule.get_loops(result)[-1]
    if lane:
        register_tile(schedule, [x_inner], *lane)
        schedule.vectorize(last)
    else:
        vectorize_last(schedule, x_inner, lanes)
        vectorize_last(schedule, last, lanes)
    if bordered:
        block = schedule.get_sblock("bordered")
        schedule.compute_at(block, parallel)
        vectorize_last(schedule, schedule.get_loops(block)[-1], lanes)
    schedule.decompose_reduction(window, ky)
