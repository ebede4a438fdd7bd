"""Kernels of reductions, softmax and normalisations.

    block: some rows, or a part of one
      thread: its elements of a row, combined      (kept in registers)
      shuffles, then shared memory: the row's value
      … for each value that the row needs (largest, sum, mean, spread)
      thread: its elements of the result

Where rows are split, each combination ends a kernel, and the next one begins with combining what
its blocks left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import infinity, mean
from tilewright.compiler.lower.cuda.threads import Writer, integer, keep_after_anchor, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Read, Value, broadcast_index, unravelled
from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.rows import Shares, folds, reduces, shares_of

Expr = tirx.Expr
Scalar = Callable[[], Expr]
"""A value of the current row."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class _Combine:
    """How two become one, and what changes nothing."""

    pair: Callable[[Expr, Expr], Expr]
    identity: Callable[[str], Expr]


_SUM = _Combine(lambda a, b: a + b, lambda kind: tirx.const(0, kind))
_LARGEST = _Combine(tirx.max, lambda kind: infinity(kind, "-"))
_SMALLEST = _Combine(tirx.min, lambda kind: infinity(kind, ""))
_PRODUCT = _Combine(lambda a, b: a * b, lambda kind: tirx.const(1, kind))
_COMBINES = {
    "reduce_sum": _SUM,
    "reduce_mean": _SUM,
    "reduce_max": _LARGEST,
    "reduce_min": _SMALLEST,
    "reduce_prod": _PRODUCT,
}
Steps = Generator[tuple[Read, _Combine], Scalar, Read]
"""The operators: what they want combined, one after the other, and the result at a position."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernels."""
    writer = Writer(program)
    with writer.function() as result:
        shares = shares_of(program.workload, program.settings)
        data = program.workload.types[program.workload.anchor.inputs[0]]
        kind = element_type(data.dtype).accumulator
        partial = [
            writer.workspace((shares.of.count * shares.split,), kind, f"partial{number}")
            for number in range(folds(program.workload) if shares.split > 1 else 0)
        ]
        for stage in range(len(partial) + 1):
            _Kernel(writer, shares, kind, partial).write(result, stage)
    return writer.schedule()


class _Kernel:
    """One kernel: positions of a thread, and what it does with the elements of its rows."""

    def __init__(
        self, writer: Writer, shares: Shares, kind: str, partial: list[tirx.Buffer]
    ) -> None:
        self.writer, self.program, self.shares = writer, writer.program, shares
        self.kind, self.partial = kind, partial
        self.across = shares.of.across
        self.kept = bool(self.program.settings["kept"])
        self.row: Expr = integer(0)
        self.member: Expr = integer(0)
        self.start: Expr = integer(0)
        self.slot: Expr = integer(0)

    def write(self, result: tirx.Buffer, stage: int) -> None:
        """The kernel that ends with the combination of this number, or with the result."""
        shares, split = self.shares, self.shares.split
        last = stage == len(self.partial)
        parts = 1 if last and reduces(self.program.workload) else split
        with self.writer.launch(shares.row_blocks * parts, shares.threads) as (block, thread):
            self._place(block, thread, parts)
            steps, wanted, number = self._operator(), None, 0
            try:
                read_value, combine = next(steps)
                while True:
                    if split == 1:
                        wanted = self._folded(read_value, combine)
                    elif number < stage:
                        wanted = self._gathered(number, combine)
                    else:
                        self._leave(number, read_value, combine)
                        steps.close()
                        return
                    number += 1
                    read_value, combine = steps.send(wanted)
            except StopIteration as done:
                self._finish(result, done.value)

    # ----- positions -------------------------------------------------------------------------

    def _place(self, block: Expr, thread: Expr, parts: int) -> None:
        """The first row of the thread, its number among the threads of the row, and where its
        block's part of the row begins."""
        shares, split = self.shares, self.program.simplify.split
        rows, part = split(block, parts)
        if self.across:
            group, self.member = split(thread, shares.row_threads)
        else:
            self.member, group = split(thread, shares.threads // shares.row_threads)
        self.row = rows * shares.block_rows + group * shares.side_by_side
        self.start = part * shares.part
        self.group, self.part, self.thread = group, part, thread

    def _there(self) -> Expr | bool:
        """Whether the thread's row is one."""
        exact = self.shares.of.count % self.shares.block_rows == 0
        return True if exact else self.row < self.shares.of.count

    def _lane(self) -> tuple[Expr, Expr]:
        """How far the lane of a vector is in the row, and among rows."""
        zero = integer(0)
        return (self.writer.lane, zero) if self.across else (zero, self.writer.lane)

    def _at(self, turn: Expr) -> list[Expr]:
        """The logical position of the element that a thread reads in this turn."""
        shares, frame = self.shares, self.shares.of.frame
        along, aside = self._lane()
        member = self.member * (shares.vector if self.across else 1)
        place = self.start + turn * shares.step + member + along
        kept = self._row_at(aside)
        gone = unravelled(place, frame.extents(frame.gone), self.program.simplify)
        found = dict(zip((*frame.kept, *frame.gone), (*kept, *gone), strict=True))
        return [found[axis] for axis in range(len(found))]

    def _row_at(self, aside: Expr) -> list[Expr]:
        """The position of a row along the axes that are kept."""
        frame = self.shares.of.frame
        return unravelled(self.row + aside, frame.extents(frame.kept), self.program.simplify)

    def _elements(self, body: Callable[[Index], None]) -> None:
        """Do something with each element of the thread, at its logical position; `self.slot` is its
        register."""
        shares = self.shares
        member = self.member * (shares.vector if self.across else 1)

        def turn_of(turn: Expr, full: bool) -> None:
            first = turn * shares.step + member
            within = True if full else first < shares.part
            whole = shares.part * shares.split == shares.of.length
            inside = True if whole else self.start + first < shares.of.length
            there = self.writer.when(self._there(), within, inside)
            with there, self.writer.vector(shares.vector) as lane:
                self.slot = (turn * shares.vector if self.kept else 0) + lane
                body(self._at(turn))

        full = shares.part // shares.step
        loop = self.writer.unrolled if self.kept else self.writer.serial
        if full > 0:
            with loop(full) as turn:
                turn_of(turn, True)
        if shares.part % shares.step:
            turn_of(integer(full), False)

    # ----- values ----------------------------------------------------------------------------

    def held(self, value: Read) -> Read:
        """A value of every element: computed once where rows are kept in registers, else where it
        is read."""
        lanes = self.shares.vector
        registers = self.writer.local(
            self.shares.turns * lanes if self.kept else lanes, self.kind, "row"
        )
        if self.kept:
            self._elements(lambda at: self.writer.store(registers, value(at), [self.slot]))
            return lambda at: read(registers, self.slot)

        def computed(at: Index) -> Expr:
            self.writer.store(registers, value(at), [self.slot])
            return read(registers, self.slot)

        return computed

    def scalar(self, value: Scalar) -> Scalar:
        """A value of the row, computed once."""
        kept = self.writer.local(self.shares.side_by_side, self.kind, "value")
        with self.writer.vector(self.shares.side_by_side) as lane:
            self.writer.store(kept, value(), [lane])
        return self._of_row(kept)

    def _of_row(self, buffer: tirx.Buffer) -> Scalar:
        return lambda: read(buffer, integer(0) if self.across else self.writer.lane)

    # ----- combining -------------------------------------------------------------------------

    def _folded(self, value: Read, combine: _Combine) -> Scalar:
        """All elements of the rows combined, known to all of their threads."""
        total = self._cleared(combine)

        def add(at: Index) -> None:
            lane = self.writer.lane
            self.writer.store(total, combine.pair(read(total, lane), value(at)), [lane])

        self._elements(add)
        return self._shared_out(total, combine)

    def _cleared(self, combine: _Combine) -> tirx.Buffer:
        lanes = self.shares.vector
        total = self.writer.local(lanes, self.kind, "total")
        with self.writer.vector(lanes) as lane:
            self.writer.store(total, combine.identity(self.kind), [lane])
        return total

    def _shared_out(self, total: tirx.Buffer, combine: _Combine) -> Scalar:
        """What the threads of a row have, combined."""
        if self.across:
            return self._across(total, combine)
        shares, writer = self.shares, self.writer
        lanes, members = shares.vector, shares.row_threads
        if members > 1:
            groups = shares.threads // members
            exchanged = writer.shared(shares.threads * lanes, self.kind, "exchanged")
            with writer.vector(lanes) as lane:
                writer.store(exchanged, read(total, lane), [self.thread * lanes + lane])
            writer.barrier()
            with writer.vector(lanes) as lane:
                writer.store(total, read(exchanged, self.group * lanes + lane), [lane])
            with writer.unrolled(members - 1) as other, writer.vector(lanes) as lane:
                place = ((other + 1) * groups + self.group) * lanes + lane
                both = combine.pair(read(total, lane), read(exchanged, place))
                writer.store(total, both, [lane])
        return self._of_row(total)

    def _across(self, total: tirx.Buffer, combine: _Combine) -> Scalar:
        """Lanes of a vector, then of a warp, then warps."""
        shares, writer, zero = self.shares, self.writer, integer(0)
        other = writer.local(1, self.kind, "other")
        for lane in range(1, shares.vector):
            both = combine.pair(read(total, zero), read(total, integer(lane)))
            writer.store(total, both, [zero])
        distance = min(shares.row_threads, _WARP) // 2
        while distance:
            writer.store(other, writer.from_lane(read(total, zero), distance), [zero])
            writer.store(total, combine.pair(read(total, zero), read(other, zero)), [zero])
            distance //= 2
        warps = shares.row_threads // _WARP
        if warps > 1:
            exchanged = writer.shared(shares.threads // _WARP, self.kind, "exchanged")
            warp, lane = self.program.simplify.split(self.thread, _WARP)
            with writer.when(tirx.EQ(lane, zero)):
                writer.store(exchanged, read(total, zero), [warp])
            writer.barrier()
            writer.store(total, read(exchanged, self.group * warps), [zero])
            with writer.unrolled(warps - 1) as more:
                place = self.group * warps + more + 1
                both = combine.pair(read(total, zero), read(exchanged, place))
                writer.store(total, both, [zero])
        return self._of_row(total)

    def _partial_at(self, part: Expr, aside: Expr) -> Expr:
        """Where a block leaves what it has of a row: parts of a row together, or rows."""
        shares = self.shares
        if self.across:
            return (self.row + aside) * shares.split + part
        return part * shares.of.count + self.row + aside

    def _leave(self, number: int, value: Read, combine: _Combine) -> None:
        """Combine this block's part of the rows and leave it in memory."""
        total = self._folded(value, combine)
        with self._alone(), self.writer.vector(self.shares.side_by_side) as lane:
            place = self._partial_at(self.part, lane)
            self.writer.store(self.partial[number], total(), [place])

    def _alone(self) -> AbstractContextManager[None]:
        """One thread of each row."""
        return self.writer.when(self._there(), tirx.EQ(self.member, integer(0)))

    def _gathered(self, number: int, combine: _Combine) -> Scalar:
        """What all blocks of the rows left, combined."""
        shares, writer = self.shares, self.writer
        total = self._cleared(combine)
        with writer.serial(-(-shares.split // shares.row_threads)) as turn:
            part = turn * shares.row_threads + self.member
            exact = shares.split % shares.row_threads == 0
            there = writer.when(self._there(), True if exact else part < shares.split)
            with there, writer.vector(shares.side_by_side) as lane:
                left = read(self.partial[number], self._partial_at(part, lane))
                writer.store(total, combine.pair(read(total, lane), left), [lane])
        return self._shared_out(total, combine)

    # ----- results ---------------------------------------------------------------------------

    def _finish(self, result: tirx.Buffer, value: Read) -> None:
        """Write what the steps after the anchor make of its result."""
        program, writer, shares = self.program, self.writer, self.shares
        workload = program.workload
        kind = workload.step_types(workload.anchor_index)[1].dtype
        program.set_anchor(lambda at: mathematics.converted(value(at), kind))
        keep_after_anchor(writer, shares.vector)
        final = program.operand(len(workload.types) - 1)
        if not reduces(workload):
            self._elements(lambda at: writer.store(result, final.read(at), at))
            return
        with self._alone(), writer.vector(shares.side_by_side) as lane:
            row = self._row_at(integer(0) if self.across else lane)
            kept = dict(zip(shares.of.frame.kept, row, strict=True))
            dims = range(len(shares.of.frame.shape))
            dropped = len(workload.result.shape) < len(dims)
            at = [kept.get(i, integer(0)) for i in dims if i in kept or not dropped]
            writer.store(result, final.read(at), at)

    # ----- operators -------------------------------------------------------------------------

    def _operator(self) -> Steps:
        """What the anchor computes."""
        program = self.program
        step = program.workload.anchor
        data, *parts = [_wide(program.operand(value), self.kind) for value in step.inputs]
        named = dict(step.attributes)
        match step.operator:
            case "softmax" | "log_softmax":
                return self._softmax(data, log=step.operator == "log_softmax")
            case "layer_norm" | "rms_norm" | "instance_norm":
                return self._normalised(data, parts, step.operator, named)
            case name:
                return self._reduction(data, name)

    def _reduction(self, data: Value, name: str) -> Steps:
        total = yield data.read, _COMBINES[name]
        count = self.shares.of.length
        return lambda at: mean(total(), count) if name == "reduce_mean" else total()

    def _softmax(self, data: Value, *, log: bool) -> Steps:
        """Largest value, exponentials and their sum, division; `log` gives the logarithm."""
        x = self.held(data.read)
        top = yield x, _LARGEST
        if log:
            total = yield lambda at: tirx.exp(x(at) - top()), _SUM
            shift = self.scalar(lambda: top() + tirx.log(total()))
            return lambda at: x(at) - shift()
        powers = self.held(lambda at: tirx.exp(x(at) - top()))
        total = yield powers, _SUM
        factor = self.scalar(lambda: tirx.const(1, self.kind) / total())
        return lambda at: powers(at) * factor()

    def _normalised(
        self, data: Value, parts: list[Value], name: str, named: dict[str, Any]
    ) -> Steps:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias, variance from differences;
        `rms_norm` has neither mean nor bias."""
        count, one = self.shares.of.length, tirx.const(1, self.kind)
        x = self.held(data.read)
        if name != "rms_norm":
            total = yield x, _SUM
            centre = self.scalar(lambda total=total: mean(total(), count))
            x = self._centred(x, centre)

        def square(at: Index) -> Expr:
            return mathematics.shared(x(at), lambda difference: difference * difference)

        squares = yield square, _SUM
        least = tirx.const(named["epsilon"], self.kind)
        spread = self.scalar(lambda: one / tirx.sqrt(mean(squares(), count) + least))

        def normal(at: Index) -> Expr:
            channel = name == "instance_norm"
            factor, *offset = (
                part.read([at[1]] if channel else broadcast_index(at, part.type.shape))
                for part in parts
            )
            return sum(offset, start=x(at) * spread() * factor)

        return normal

    def _centred(self, x: Read, centre: Scalar) -> Read:
        return lambda at: x(at) - centre()


def _wide(value: Value, kind: str) -> Value:
    """The value in the type that sums are kept in."""
    return Value(value.type, lambda at: mathematics.converted(value.read(at), kind))
