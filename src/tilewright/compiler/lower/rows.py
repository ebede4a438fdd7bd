"""Schedule of reductions, softmax and normalisations.

    parallel (kept axes, the innermost one in tiles)
      partial results of the row, folded            # vectorised
      what the row needs of them (mean, spread, …)
      result of the row

Everything below the parallel loop stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import LARGEST, SMALLEST, combination, lrn_value, mean
from tilewright.compiler.lower.loops import extents, vectorize_last
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, broadcast_index
from tilewright.core.forms import channel_block
from tilewright.core.targets import Resources, Target
from tilewright.kernels.rows import Frame, operand_frame

Expr = tirx.Expr
Kept = Callable[[Index], Expr]
"""Reads a value per row at a *logical* position of the operand."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    build = _Rows(program, target, resources)
    index = program.workload.anchor_index
    assert index is not None
    step = program.workload.steps[index]
    operands = [program.operand(value) for value in step.inputs]
    named = dict(step.attributes)
    if step.operator == "lrn":
        read = build.local_response(operands[0], named)
    elif step.operator.startswith("reduce_"):
        read = build.reduction(operands[0], step.operator)
    elif step.operator.endswith("softmax"):
        read = build.softmax(operands[0], log=step.operator == "log_softmax")
    else:
        read = build.normalised(operands, step.operator, named)
    program.set_step(index, Value(type=program.workload.step_types(index)[1], read=read))
    schedule = program.schedule()
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


@dataclass
class _Rows:
    """The stages of one kernel, in the order they compute."""

    program: Program
    target: Target
    resources: Resources
    frame: Frame = field(init=False)
    stages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        workload, forms = self.program.workload, self.program.candidate.forms
        self.frame = operand_frame(workload, forms)
        self.lanes = self.target.lanes(workload.computed_in)
        self.streams = int(dict(self.program.candidate.settings)["streams"])

    # ----- positions -------------------------------------------------------------------------

    def logical(self, kept: Index, gone: Index) -> list[Expr]:
        """The operand's logical position from physical positions."""
        frame = self.frame
        places: dict[int, Expr] = dict(zip(frame.kept, kept, strict=True))
        places.update(zip(frame.gone, gone, strict=True))
        rank = max(axis for axis, _ in frame.axes) + 1
        result = [places[i] for i in range(rank)]
        if frame.block:
            result[1] = result[1] * frame.block + places[rank]
        return result

    def row_of(self, index: Index) -> list[Expr]:
        """The physical kept position of a logical position of the operand."""
        frame, simplify = self.frame, self.program.simplify
        rank = max(axis for axis, _ in frame.axes) + 1
        found: list[Expr] = []
        for place in frame.kept:
            axis = frame.axes[place][0]
            at = index[axis]
            if frame.block and axis == 1:
                split = tirx.floormod if place == rank else tirx.floordiv
                at = simplify(split(at, frame.block))
            found.append(at)
        return found

    def compute(self, shape: tuple[int, ...], body: Callable[..., Expr], name: str) -> te.Tensor:
        """A stage that `schedule` will place inside the row loop."""

        def announced(*index: Expr) -> Expr:
            self.program.simplify.announce(index, shape)
            return body(*index)

        name = f"{name}{len(self.stages)}"
        self.stages.append(name)
        return te.compute(shape, announced, name=name)

    # ----- folding ---------------------------------------------------------------------------

    def fold(self, value: Value, combine: Any, name: str) -> Kept:
        """Combine every row; what comes back reads a row's result at a logical position."""
        folded = self._fold_across if self.frame.across else self._fold_along
        tensor, tail = folded(value, combine, name)
        return lambda index: tensor(*self.row_of(index), *tail)

    def _fold_along(self, value: Value, combine: Any, name: str) -> tuple[te.Tensor, list[Expr]]:
        frame = self.frame
        reduce = self._axes(frame.extents(frame.gone))

        def body(*kept: Expr) -> Expr:
            return combine(value.read(self.logical(kept, [a.var for a in reduce])), axis=reduce)

        return self.compute(frame.extents(frame.kept), body, name), []

    def _axes(self, sizes: tuple[int, ...]) -> list[Any]:
        found = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(sizes)]
        self.program.simplify.announce([axis.var for axis in found], sizes)
        return found

    def _fold_across(self, value: Value, combine: Any, name: str) -> tuple[te.Tensor, list[Expr]]:
        frame = self.frame
        gone = frame.gone
        run = len(gone)
        while run > 0 and gone[run - 1 :] == tuple(range(gone[run - 1], len(frame.axes))):
            run -= 1
        outer, inner = frame.extents(gone[:run]), frame.extents(gone[run:])
        length = prod(inner)
        rows = frame.extents(frame.kept)
        join = _joined(combine)

        def strip(start: int, lanes: int, chunks: int) -> te.Tensor:
            """`chunks` runs of `lanes` elements from `start` on, folded to one per row."""
            reduce = self._axes((*outer, chunks))

            def partial(*index: Expr) -> Expr:
                *kept, lane = index
                *before, chunk = [axis.var for axis in reduce]
                position = self._unravel(chunk * lanes + lane + start, inner)
                return combine(value.read(self.logical(kept, [*before, *position])), axis=reduce)

            tensor = self.compute((*rows, lanes), partial, name)
            while lanes > 1:
                lanes //= 2
                tensor = self._halve(tensor, (*rows, lanes), join, name)
            return tensor

        strips = _strips(length, self._partials(length, bool(outer)), self.lanes)
        tensor, *others = [strip(*shape) for shape in strips]
        for other in others:
            tensor = self._join(tensor, other, (*rows, 1), join, name)
        return tensor, [tirx.const(0, "int32")]

    def _join(
        self, one: te.Tensor, other: te.Tensor, shape: tuple[int, ...], join: Any, name: str
    ) -> te.Tensor:
        return self.compute(shape, lambda *index: join(one(*index), other(*index)), name)

    def _halve(self, tensor: te.Tensor, shape: tuple[int, ...], join: Any, name: str) -> te.Tensor:
        half = shape[-1]

        def body(*index: Expr) -> Expr:
            *kept, lane = index
            return join(tensor(*index), tensor(*kept, lane + half))

        return self.compute(shape, body, name)

    def _partials(self, length: int, strict: bool) -> int:
        """Partial results of a row: a power of two, dividing `length` if `strict`."""
        lanes = 1
        while lanes * 2 <= min(length, self.lanes * self.streams):
            lanes *= 2
        while strict and length % lanes:
            lanes //= 2
        return lanes

    def _unravel(self, position: Expr, sizes: tuple[int, ...]) -> list[Expr]:
        found: list[Expr] = []
        for place, extent in enumerate(reversed(sizes)):
            last = place == len(sizes) - 1
            found.append(
                self.program.simplify(position if last else tirx.floormod(position, extent))
            )
            position = self.program.simplify(tirx.floordiv(position, extent))
        return found[::-1]

    def per_row(self, body: Callable[[list[Expr]], Expr], name: str) -> Kept:
        """A stage with one value per row; `body` gets the row's first logical position."""
        frame = self.frame
        zeros = [tirx.const(0, "int32")] * len(frame.gone)
        tensor = self.compute(
            frame.extents(frame.kept), lambda *kept: body(self.logical(kept, zeros)), name
        )
        return lambda index: tensor(*self.row_of(index))

    def whole(self, value: Callable[[Index], Expr], name: str) -> Callable[[Index], Expr]:
        """A stage of the row's length, rows apart unless they are lanes."""
        frame = self.frame
        lanes = () if frame.across else (frame.kept[-1],)
        order = (*frame.kept[: len(frame.kept) - len(lanes)], *frame.gone, *lanes)

        def body(*index: Expr) -> Expr:
            places = dict(zip(order, index, strict=True))
            kept = [places[i] for i in frame.kept]
            return value(self.logical(kept, [places[i] for i in frame.gone]))

        tensor = self.compute(frame.extents(order), body, name)
        rank = max(axis for axis, _ in frame.axes) + 1

        def read(index: Index) -> Expr:
            at: list[Expr] = []
            for place in order:
                axis = frame.axes[place][0]
                position = index[axis]
                if frame.block and axis == 1:
                    split = tirx.floormod if place == rank else tirx.floordiv
                    position = self.program.simplify(split(position, frame.block))
                at.append(position)
            return tensor(*at)

        return read

    # ----- operators -------------------------------------------------------------------------

    def reduction(self, data: Value, name: str) -> Callable[[Index], Expr]:
        """Sum, mean, extremes and product."""
        total = self.fold(data, combination(name), "total")
        count = prod(self.frame.extents(self.frame.gone))
        rank, reduced = len(data.type.shape), self.frame.reduced
        zero = tirx.const(0, "int32")

        def read(index: Index) -> Expr:
            at = list(index)
            if len(at) < rank:
                rest = iter(index)
                at = [zero if axis in reduced else next(rest) for axis in range(rank)]
            value = total(at)
            return mean(value, count) if name == "reduce_mean" else value

        return read

    def softmax(self, data: Value, *, log: bool) -> Callable[[Index], Expr]:
        """Largest value, exponentials and their sum, division; `log` gives the logarithm."""
        top = self.fold(data, LARGEST, "top")
        if log:
            power = Value(type=data.type, read=lambda at: mathematics.exp(data.read(at) - top(at)))
            total = self.fold(power, te.sum, "total")
            shift = self.per_row(lambda at: top(at) + mathematics.log(total(at)), "shift")
            return lambda at: data.read(at) - shift(at)
        powers = self.whole(lambda at: mathematics.exp(data.read(at) - top(at)), "powers")
        total = self.fold(Value(type=data.type, read=powers), te.sum, "total")
        one = tirx.const(1, data.type.dtype)
        factor = self.per_row(lambda at: one / total(at), "factor")
        return lambda at: powers(at) * factor(at)

    def normalised(
        self, operands: list[Value], name: str, named: dict[str, Any]
    ) -> Callable[[Index], Expr]:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias, variance from differences."""
        data, scale, bias = operands
        kind = data.type.dtype
        count = prod(self.frame.extents(self.frame.gone))
        total = self.fold(data, te.sum, "total")
        centre = self.per_row(lambda at: mean(total(at), count), "centre")

        def square(at: Index) -> Expr:
            return mathematics.shared(data.read(at) - centre(at), lambda d: d * d)

        squares = self.fold(Value(type=data.type, read=square), te.sum, "squares")
        spread = self.per_row(
            lambda at: (
                tirx.const(1, kind)
                / tirx.sqrt(mean(squares(at), count) + tirx.const(named["epsilon"], kind))
            ),
            "spread",
        )

        def read(at: Index) -> Expr:
            place = [at[1]] if name == "instance_norm" else None
            factor = scale.read(place or broadcast_index(at, scale.type.shape))
            offset = bias.read(place or broadcast_index(at, bias.type.shape))
            return (data.read(at) - centre(at)) * spread(at) * factor + offset

        return read

    def local_response(self, data: Value, named: dict[str, Any]) -> Callable[[Index], Expr]:
        """LRN: the squares of a row's pixels, channels side by side with zeros around them."""
        size = int(named["size"])
        n, c, h, w = data.type.shape
        unit = max(1, self.frame.block)
        border = -(-size // unit) * unit
        zero = tirx.const(0, data.type.dtype)
        if not self.frame.block:
            shape = (n, h, c + 2 * border, w)

            def planes(i: Expr, y: Expr, channel: Expr, x: Expr) -> Expr:
                at = data.read([i, channel - border, y, x])
                inside = tirx.all(channel >= border, channel < c + border)
                return tirx.if_then_else(inside, at * at, zero)

            tensor = self.compute(shape, planes, "squares")
        else:
            shape = (n, h, w, c + 2 * border)

            def pixels(i: Expr, y: Expr, x: Expr, channel: Expr) -> Expr:
                at = data.read([i, channel - border, y, x])
                inside = tirx.all(channel >= border, channel < c + border)
                return tirx.if_then_else(inside, at * at, zero)

            tensor = self.compute(shape, pixels, "squares")

        def read(index: Index) -> Expr:
            i, channel, y, x = index
            total: Expr = zero
            for tap in range(size):
                near = channel + (border + tap - (size - 1) // 2)
                place = (i, y, x, near) if self.frame.block else (i, y, near, x)
                total = total + tensor(*place)
            value = data.read(index)
            return mathematics.shared(
                value, lambda v: mathematics.shared(total, lambda t: lrn_value(v, t, named))
            )

        return read

    # ----- schedule --------------------------------------------------------------------------

    def schedule(self, schedule: Schedule) -> None:
        """One parallel loop over groups of rows; every stage inside it."""
        result = schedule.get_sblock("result")
        row, inner = self._split_result(schedule, result)
        for name in reversed(self.stages):
            schedule.compute_at(schedule.get_sblock(name), row, preserve_unit_loops=True)
        depth = len(schedule.get_loops(result)) - len(inner)
        for name in self.stages:
            self._arrange(schedule, schedule.get_sblock(name), depth)
        if inner:
            vectorize_last(schedule, inner[-1], self.lanes)

    def _split_result(self, schedule: Schedule, block: Any) -> tuple[Any, list[Any]]:
        """Parallel loop over the result's rows and the loops below it, innermost last."""
        loops = schedule.get_loops(block)
        if not loops:
            return schedule.add_unit_loop(block), []
        axes = self._result_axes()
        frame = self.frame
        if self.program.workload.steps[self.program.workload.anchor_index].operator == "lrn":
            outer = [loops[0], loops[2]]
            inner = [loop for place, loop in enumerate(loops) if place not in (0, 2)]
            return self._fuse(schedule, outer, inner)
        fast = None if frame.across else frame.axes[frame.fast][0]
        outer: list[Any] = []
        rows: list[Any] = []
        inner: list[Any] = []
        for place, (axis, loop) in enumerate(zip(axes, loops, strict=True)):
            if axis in frame.reduced:
                inner.append(loop)
            elif axis != fast:
                outer.append(loop)
            elif axes.index(axis) != place:
                rows.append(loop)
            else:
                blocked = axes.count(axis) > 1
                head, tail = self._tile(schedule, loop, blocked=blocked)
                outer.append(head)
                rows.append(tail)
        return self._fuse(schedule, outer, [*rows[:-1], *inner, *rows[-1:]])

    def _fuse(
        self, schedule: Schedule, outer: list[Any], inner: list[Any]
    ) -> tuple[Any, list[Any]]:
        schedule.reorder(*outer, *inner)
        if not outer:
            outer = [schedule.add_unit_loop(inner[0])]
        parallel = schedule.fuse(*outer) if len(outer) > 1 else outer[0]
        if self.resources.threads > 1:
            schedule.parallel(parallel)
        return parallel, inner

    def _tile(self, schedule: Schedule, loop: Any, *, blocked: bool) -> list[Any]:
        """Split the loop whose iterations are lanes of rows into tiles of whole vectors."""
        extent = int(schedule.get(loop).extent)
        unit = self.frame.block or self.lanes
        wanted = unit * self.streams
        if blocked:
            wanted = max(1, wanted // channel_block(self.program.result_form))
        sizes = [size for size in range(1, min(extent, wanted) + 1) if extent % size == 0]
        tile = sizes[-1]
        if not blocked and tile < min(unit, extent) // 2:
            tile = extent
        return schedule.split(loop, [None, tile])

    def _result_axes(self) -> list[int]:
        """The operand's logical axis behind each loop of the result."""
        rank = max(axis for axis, _ in self.frame.axes) + 1
        shape = self.program.workload.result.shape
        if len(shape) == rank:
            axes = list(range(rank))
        else:
            axes = [axis for axis in range(rank) if axis not in self.frame.reduced]
        return [*axes, axes[1]] if channel_block(self.program.result_form) else axes

    def _arrange(self, schedule: Schedule, block: Any, depth: int) -> None:
        """Reduction loops outside, the last spatial loop vectorised."""
        kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
        loops = schedule.get_loops(block)[-len(kinds) :]
        pairs = list(zip(loops, kinds, strict=True))
        reduction = [loop for loop, kind in pairs if kind == tirx.IterVar.CommReduce]
        spatial = [loop for loop, kind in pairs if kind != tirx.IterVar.CommReduce]
        if reduction and spatial:
            sizes = extents(schedule, spatial)
            tile = len(spatial)
            while tile > 0 and prod(sizes[tile - 1 :]) <= self.lanes * 8:
                tile -= 1
            schedule.reorder(*spatial[:tile], *reduction, *spatial[tile:])
        if spatial:
            vectorize_last(schedule, spatial[-1], self.lanes)
        if reduction:
            schedule.decompose_reduction(block, reduction[0])


def _joined(combine: Any) -> Callable[[Expr, Expr], Expr]:
    """The two-operand form of a reduction."""
    if combine is te.sum:
        return lambda a, b: a + b
    if combine is LARGEST:
        return tirx.max
    if combine is SMALLEST:
        return tirx.min
    return lambda a, b: a * b
