"""Schedule of reductions, softmax and normalisations.

    parallel (kept axes, the innermost one in tiles)
      partial results of the row, folded            # vectorised
      what the row needs of them (mean, spread, …)
      result of the row

Everything below the parallel loop stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import bindings, mathematics
from tilewright.compiler.lower.anchors import COMBINE, LARGEST, lrn_value, mean, reduce_axes
from tilewright.compiler.lower.loops import extents, reduction_split, share_out, vectorize_last
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import (
    Index,
    Read,
    Value,
    broadcast_index,
    logical_index,
    physical_index,
    unravelled,
)
from tilewright.core.forms import channel_block, number_layout
from tilewright.core.targets import Resources, Target
from tilewright.kernels.rows import operand_frame

Expr = tirx.Expr


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    build = _Rows(program, target, resources)
    step = program.workload.anchor
    operands = [program.operand(value) for value in step.inputs]
    named = dict(step.attributes)
    match step.operator:
        case "lrn":
            read = build.local_response(operands[0], named)
        case "softmax" | "log_softmax":
            read = build.softmax(operands[0], log=step.operator == "log_softmax")
        case "layer_norm" | "instance_norm":
            read = build.normalised(operands, step.operator, named)
        case "rms_norm":
            data, *parts = operands
            read = build.scaled(data, data.read, parts, named["epsilon"])
        case reduction:
            read = build.reduction(operands[0], reduction)
    schedule = program.schedule(read)
    build.schedule(schedule)
    return schedule


def _strips(length: int, lanes: int, register: int) -> list[tuple[int, int, int]]:
    """(start, lanes, runs) of the strips of a row: whole runs of `lanes`, then registers, then what
    is left one by one. Nothing reads past the row: TVM would take a clamp away under a condition
    that implies it, and the compiler may do anything with a read out of bounds."""
    found: list[tuple[int, int, int]] = []
    start = 0
    for width in dict.fromkeys((lanes, min(lanes, register), 1)):
        runs = (length - start) // width
        if runs:
            found.append((start, width, runs))
            start += runs * width
    return found


class _Rows:
    """The stages of one kernel, in the order they compute."""

    def __init__(self, program: Program, target: Target, resources: Resources) -> None:
        self.program = program
        self.threads = resources.threads
        self.frame = operand_frame(program.workload, program.candidate.forms)
        self.rank = len(self.frame.shape)
        self.lanes = target.lanes(program.workload.computed_in)
        self.streams = program.settings["streams"]
        self.stages: list[str] = []

    # ----- positions -------------------------------------------------------------------------

    def logical(self, kept: Index, gone: Index) -> list[Expr]:
        """The operand's logical position from physical positions."""
        frame = self.frame
        places = dict(zip((*frame.kept, *frame.gone), (*kept, *gone), strict=True))
        at = [places[i] for i in range(len(places))]
        return logical_index(number_layout(frame.form), at, frame.shape)

    def physical(self, index: Index, places: tuple[int, ...]) -> list[Expr]:
        """The physical position at these places of a logical position of the operand."""
        form, shape = self.frame.form, self.frame.shape
        found = physical_index(number_layout(form), index, shape, self.program.simplify)
        return [found[place] for place in places]

    def compute(self, shape: tuple[int, ...], body: Callable[..., Expr], name: str) -> te.Tensor:
        """A stage that `schedule` will place inside the row loop."""
        self.stages.append(f"{name}{len(self.stages)}")
        return self.program.compute(shape, body, self.stages[-1])

    def per_row(self, body: Read, name: str, gone: Index | None = None) -> Read:
        """A stage with one value per row; `body` gets a logical position in the row, the first one
        unless the position `gone` on the reduced axes is given. What comes back reads a row's value
        at a logical position."""
        frame = self.frame
        inside = [tirx.const(0, "int32")] * len(frame.gone) if gone is None else gone
        tensor = self.compute(
            frame.extents(frame.kept), lambda *kept: body(self.logical(kept, inside)), name
        )
        return lambda index: tensor(*self.physical(index, frame.kept))

    def whole(self, value: Read, name: str) -> Read:
        """A stage of the row's length, rows apart unless they are lanes."""
        frame = self.frame
        lanes = () if frame.across else (frame.kept[-1],)
        order = (*frame.kept[: len(frame.kept) - len(lanes)], *frame.gone, *lanes)

        def body(*index: Expr) -> Expr:
            places = dict(zip(order, index, strict=True))
            kept = [places[i] for i in frame.kept]
            return value(self.logical(kept, [places[i] for i in frame.gone]))

        tensor = self.compute(frame.extents(order), body, name)
        return lambda index: tensor(*self.physical(index, order))

    # ----- folding ---------------------------------------------------------------------------

    def fold(self, value: Value, combine: Any, name: str) -> Read:
        """Combine every row; what comes back reads a row's result at a logical position."""
        if self.frame.across:
            tensor = self._fold_across(value, combine, name)
            zero = tirx.const(0, "int32")
            return lambda index: tensor(*self.physical(index, self.frame.kept), zero)
        axes = reduce_axes(self.program, self.frame.extents(self.frame.gone))
        inside = [axis.var for axis in axes]
        return self.per_row(lambda at: combine(value.read(at), axis=axes), name, inside)

    def _fold_across(self, value: Value, combine: Any, name: str) -> te.Tensor:
        frame = self.frame
        gone = frame.gone
        run = len(gone)
        while run > 0 and gone[run - 1 :] == tuple(range(gone[run - 1], len(frame.axes))):
            run -= 1
        outer, inner = frame.extents(gone[:run]), frame.extents(gone[run:])
        rows, length = frame.extents(frame.kept), prod(inner)

        def joined(one: te.Tensor, other: te.Tensor, lanes: int, shift: int) -> te.Tensor:
            def body(*index: Expr) -> Expr:
                *kept, lane = index
                return combine(one(*index), other(*kept, lane + shift))

            return self.compute((*rows, lanes), body, name)

        def strip(start: int, lanes: int, chunks: int) -> te.Tensor:
            """`chunks` runs of `lanes` elements from `start` on, folded to one per row."""
            axes = reduce_axes(self.program, (*outer, chunks))
            *before, chunk = (axis.var for axis in axes)

            def partial(*index: Expr) -> Expr:
                *kept, lane = index
                flat = chunk * lanes + lane + start
                position = unravelled(flat, inner, self.program.simplify)
                return combine(value.read(self.logical(kept, [*before, *position])), axis=axes)

            tensor, left = self.compute((*rows, lanes), partial, name), lanes
            while left > 1:
                left //= 2
                tensor = joined(tensor, tensor, left, left)
            return tensor

        strips = _strips(length, self._partials(length, strict=bool(outer)), self.lanes)
        tensor, *others = [strip(*shape) for shape in strips]
        for other in others:
            tensor = joined(tensor, other, 1, 0)
        return tensor

    def _partials(self, length: int, *, strict: bool) -> int:
        """Partial results of a row: a power of two, dividing `length` if `strict`."""
        lanes = 1 << (min(length, self.lanes * self.streams).bit_length() - 1)
        return gcd(length, lanes) if strict else lanes

    # ----- operators -------------------------------------------------------------------------

    def reduction(self, data: Value, name: str) -> Read:
        """Sum, mean, extremes and product."""
        total = self.fold(data, COMBINE[name], "total")
        count = prod(self.frame.extents(self.frame.gone))
        zero = tirx.const(0, "int32")

        def read(index: Index) -> Expr:
            at = list(index)
            if len(at) < self.rank:
                rest = iter(index)
                reduced = self.frame.reduced
                at = [zero if axis in reduced else next(rest) for axis in range(self.rank)]
            return mean(total(at), count) if name == "reduce_mean" else total(at)

        return read

    def softmax(self, data: Value, *, log: bool) -> Read:
        """Largest value, exponentials and their sum, division; `log` gives the logarithm."""
        top = self.fold(data, LARGEST, "top")

        def power(at: Index) -> Expr:
            return mathematics.exp(data.read(at) - top(at))

        if log:
            total = self.fold(Value(data.type, power), te.sum, "total")
            shift = self.per_row(lambda at: top(at) + mathematics.log(total(at)), "shift")
            return lambda at: data.read(at) - shift(at)
        powers = self.whole(power, "powers")
        total = self.fold(Value(data.type, powers), te.sum, "total")
        factor = self.per_row(lambda at: tirx.const(1, data.type.dtype) / total(at), "factor")
        return lambda at: powers(at) * factor(at)

    def normalised(self, operands: list[Value], name: str, named: dict[str, Any]) -> Read:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias, variance from differences."""
        data, *parts = operands
        count = prod(self.frame.extents(self.frame.gone))
        total = self.fold(data, te.sum, "total")
        centre = self.per_row(lambda at: mean(total(at), count), "centre")

        def centred(at: Index) -> Expr:
            return data.read(at) - centre(at)

        if name == "instance_norm":
            parts = [Value(data.type, lambda at, p=part: p.read([at[1]])) for part in parts]
        return self.scaled(data, centred, parts, named["epsilon"])

    def scaled(self, data: Value, value: Read, parts: list[Value], epsilon: float) -> Read:
        """A `value` in the data's shape, divided by the root of its mean square; the parts are
        scale and bias, if there is one."""
        one, least = (tirx.const(value, data.type.dtype) for value in (1, epsilon))
        count = prod(self.frame.extents(self.frame.gone))

        def square(at: Index) -> Expr:
            return bindings.shared(value(at), lambda d: d * d)

        squares = self.fold(Value(data.type, square), te.sum, "squares")
        spread = self.per_row(
            lambda at: one / tirx.sqrt(mean(squares(at), count) + least), "spread"
        )

        def read(at: Index) -> Expr:
            factor, *offset = (part.read(broadcast_index(at, part.type.shape)) for part in parts)
            return sum(offset, start=value(at) * spread(at) * factor)

        return read

    def local_response(self, data: Value, named: dict[str, Any]) -> Read:
        """LRN: the squares of a row's pixels, channels side by side with zeros around them."""
        size = int(named["size"])
        n, c, h, w = data.type.shape
        unit = max(1, self.frame.block)
        border = -(-size // unit) * unit
        zero = tirx.const(0, data.type.dtype)

        def order(channel: Any, x: Any) -> tuple[Any, Any]:
            """Both as they lie in memory, or the other way round."""
            return (x, channel) if self.frame.block else (channel, x)

        def square(i: Expr, y: Expr, outer: Expr, inner: Expr) -> Expr:
            channel, x = order(outer, inner)
            at = data.read([i, channel - border, y, x])
            inside = tirx.all(channel >= border, channel < c + border)
            return tirx.if_then_else(inside, at * at, zero)

        squares = self.compute((n, h, *order(c + 2 * border, w)), square, "squares")

        def read(index: Index) -> Expr:
            i, channel, y, x = index
            total: Expr = zero
            for tap in range(size):
                near = channel + (border + tap - (size - 1) // 2)
                total = total + squares(i, y, *order(near, x))
            return bindings.shared(
                data.read(index),
                lambda v: bindings.shared(total, lambda t: lrn_value(named, v, t)),
            )

        return read

    # ----- schedule --------------------------------------------------------------------------

    def schedule(self, schedule: Schedule) -> None:
        """One parallel loop over groups of rows; every stage inside it."""
        row, inner = self._split_result(schedule)
        blocks = [schedule.get_sblock(name) for name in self.stages]
        for block in reversed(blocks):
            schedule.compute_at(block, row, preserve_unit_loops=True)
        for block in blocks:
            self._arrange(schedule, block)
        if inner:
            vectorize_last(schedule, inner[-1], self.lanes)

    def _split_result(self, schedule: Schedule) -> tuple[Any, list[Any]]:
        """Parallel loop over the result's rows and the loops below it, innermost last."""
        block = schedule.get_sblock("result")
        loops = schedule.get_loops(block)
        if not loops:
            return schedule.add_unit_loop(block), []
        if self.program.workload.anchor.operator == "lrn":
            n, channel, y, *rest = loops
            return self._fuse(schedule, [n, y], [channel, *rest])
        axes, frame = self._result_axes(), self.frame
        fast = None if frame.across else frame.axes[frame.fast][0]
        outer, rows, inner = [], [], []
        for place, (axis, loop) in enumerate(zip(axes, loops, strict=True)):
            if axis in frame.reduced:
                inner.append(loop)
            elif axis != fast:
                outer.append(loop)
            elif axes.index(axis) != place:
                rows.append(loop)
            else:
                head, tail = self._tile(schedule, loop, blocked=axes.count(axis) > 1)
                outer.append(head)
                rows.append(tail)
        return self._fuse(schedule, outer, [*rows[:-1], *inner, *rows[-1:]])

    def _fuse(
        self, schedule: Schedule, outer: list[Any], inner: list[Any]
    ) -> tuple[Any, list[Any]]:
        schedule.reorder(*outer, *inner)
        outer = outer or [schedule.add_unit_loop(inner[0])]
        return share_out(schedule, outer, self.threads), inner

    def _tile(self, schedule: Schedule, loop: Any, *, blocked: bool) -> list[Any]:
        """Split the loop whose iterations are lanes of rows into tiles of whole vectors."""
        extent = int(schedule.get(loop).extent)
        unit = self.frame.block or self.lanes
        wanted = unit * self.streams
        if blocked:
            wanted = max(1, wanted // channel_block(self.program.result_form))
        tile = max(size for size in range(1, min(extent, wanted) + 1) if extent % size == 0)
        if not blocked and tile < min(unit, extent) // 2:
            tile = extent
        return schedule.split(loop, [None, tile])

    def _result_axes(self) -> list[int]:
        """The operand's logical axis behind each loop of the result."""
        dropped = len(self.program.workload.result.shape) != self.rank
        axes = [a for a in range(self.rank) if not (dropped and a in self.frame.reduced)]
        return [*axes, axes[1]] if channel_block(self.program.result_form) else axes

    def _arrange(self, schedule: Schedule, block: Any) -> None:
        """Reduction loops outside, the last spatial loop vectorised."""
        spatial, reduction = reduction_split(schedule, block)
        if reduction and spatial:
            sizes, most = extents(schedule, spatial), self.lanes * 8
            tile = next(at for at in range(len(sizes) + 1) if prod(sizes[at:]) <= most)
            schedule.reorder(*spatial[:tile], *reduction, *spatial[tile:])
        if spatial:
            vectorize_last(schedule, spatial[-1], self.lanes)
        if reduction:
            schedule.decompose_reduction(block, reduction[0])
