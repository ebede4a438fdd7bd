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

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.anchors import LARGEST, axes, lowest, pool_divisor
from tilewright.compiler.lower.loops import vectorize_last
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, stored
from tilewright.core.forms import PLAIN, channel_block
from tilewright.core.targets import Resources, Target
from tilewright.graph.tensor import TensorType
from tilewright.kernels.pool2d_rows import pooled_shape


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    index = program.workload.anchor_index
    assert index is not None
    step = program.workload.steps[index]
    data, named = program.operand(step.inputs[0]), dict(step.attributes)
    blocked = channel_block(program.result_form) > 0
    window = _window(program, data, named, blocked=blocked)
    average = "count_include_pad" in named

    def read(at: Index) -> tirx.Expr:
        value = window.read(at)
        if not average:
            return value
        divisor = pool_divisor(at, named, data.type, data.type.dtype)
        if isinstance(divisor, tirx.FloatImm):
            return value * tirx.const(1.0 / divisor.value, data.type.dtype)
        return value / divisor

    program.set_step(index, Value(type=program.workload.step_types(index)[1], read=read))
    schedule = program.schedule()
    if blocked:
        _schedule_blocked(schedule, program, resources)
    else:
        _schedule_plain(schedule, program, target, resources, bordered=any(named["padding"]))
    return schedule


def _bordered(program: Program, data: Value, named: dict[str, Any], filler: float) -> Value:
    """The planes with their border as a stage, or the data as it is."""
    top, left, bottom, right = named["padding"]
    if not any(named["padding"]):
        return data
    n, c, h, w = data.type.shape
    kind = TensorType((n, c, h + top + bottom, w + left + right), data.type.dtype)

    def read(index: Index) -> tirx.Expr:
        i, channel, y, x = index
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        value = data.read([i, channel, y - top, x - left])
        return tirx.if_then_else(inside, value, tirx.const(filler, kind.dtype))

    tensor = program.stage(Value(type=kind, read=read), PLAIN, "bordered")
    return stored(tensor, kind, PLAIN, program.simplify)


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
        contiguous = filler != 0 and tuple(named["dilation"]) == (1, 1)
        if contiguous and _covers(named, data.type.shape):
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


def _window(program: Program, data: Value, named: dict[str, Any], *, blocked: bool) -> Value:
    average = "count_include_pad" in named
    filler = 0 if average else lowest(data.type.dtype)
    source = _guarded(data, named, filler) if blocked else _bordered(program, data, named, filler)
    reduce = axes(program, named["kernel"], "k")
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    ky, kx = (axis.var for axis in reduce)
    combine = te.sum if average else LARGEST

    def read(index: Index) -> tirx.Expr:
        n, c, y, x = index
        return combine(source.read([n, c, y * sh + ky * dh, x * sw + kx * dw]), axis=reduce)

    kind = TensorType(pooled_shape(program.workload), data.type.dtype)
    form = program.result_form
    tensor = program.stage(Value(type=kind, read=read), form, "window")
    return stored(tensor, kind, form, program.simplify)


def _schedule_blocked(schedule: Schedule, program: Program, resources: Resources) -> None:
    tile = int(dict(program.candidate.settings)["tile_width"])
    window = schedule.get_sblock("window")
    n, chunk, y, x, lane, ky, kx = schedule.get_loops(window)
    x_outer, x_inner = schedule.split(x, [None, tile])
    schedule.reorder(n, chunk, y, x_outer, ky, kx, x_inner, lane)
    parallel = schedule.fuse(n, chunk, y)
    if resources.threads > 1:
        schedule.parallel(parallel)
    schedule.unroll(x_inner)
    schedule.vectorize(lane)
    schedule.set_scope(window, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, x_outer)
    schedule.vectorize(schedule.get_loops(result)[-1])
    schedule.decompose_reduction(window, ky)


def _schedule_plain(
    schedule: Schedule, program: Program, target: Target, resources: Resources, *, bordered: bool
) -> None:
    lanes = target.lanes(program.workload.computed_in)
    tile = lanes * int(dict(program.candidate.settings)["tile_width"])
    window = schedule.get_sblock("window")
    n, channel, y, x, ky, kx = schedule.get_loops(window)
    width = int(schedule.get(x).extent)
    sizes = [size for size in range(1, min(width, tile) + 1) if width % size == 0]
    wide = sizes[-1] if sizes[-1] >= min(4, width) else width
    x_outer, x_inner = schedule.split(x, [None, wide])
    schedule.reorder(n, channel, y, x_outer, ky, kx, x_inner)
    parallel = schedule.fuse(n, channel)
    if resources.threads > 1:
        schedule.parallel(parallel)
    vectorize_last(schedule, x_inner, lanes)
    schedule.set_scope(window, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, x_outer)
    vectorize_last(schedule, schedule.get_loops(result)[-1], lanes)
    if bordered:
        block = schedule.get_sblock("bordered")
        schedule.compute_at(block, parallel)
        vectorize_last(schedule, schedule.get_loops(block)[-1], lanes)
    schedule.decompose_reduction(window, ky)
