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
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import bindings, mathematics
from tilewright.compiler.lower.anchors import mean
from tilewright.compiler.lower.cuda.row_threads import COMBINES, SUM, Combine, OfRow, RowThreads
from tilewright.compiler.lower.cuda.threads import Writer, integer, keep_after_anchor, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Read, Value, broadcast_index
from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.rows import folds, reduces, shares_of

Expr = tirx.Expr
Steps = Generator[tuple[Read, Combine], OfRow, Read]
"""The operators: what they want combined, one after the other, and the result at a position."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernels."""
    writer = Writer(program)
    with writer.function() as result:
        shares = shares_of(program.workload, program.candidate.forms, program.settings)
        data = program.workload.types[program.workload.anchor.inputs[0]]
        kind = element_type(data.dtype).accumulator
        partial = [
            writer.workspace((shares.of.count * shares.split,), kind, f"partial{number}")
            for number in range(folds(program.workload) if shares.split > 1 else 0)
        ]
        for stage in range(len(partial) + 1):
            _Kernel(writer, shares, kind, partial).write(result, stage)
    return writer.schedule()


class _Kernel(RowThreads):
    """One kernel of a reduction or a normalisation."""

    def write(self, result: tirx.Buffer, stage: int) -> None:
        """The kernel that ends with the combination of this number, or with the result."""
        shares, split = self.shares, self.shares.split
        last = stage == len(self.partial)
        parts = 1 if last and reduces(self.program.workload) else split
        with self.writer.launch(shares.row_blocks * parts, shares.threads) as (block, thread):
            self.place(block, thread, parts)
            steps, wanted, number = self._operator(), None, 0
            try:
                read_value, combine = next(steps)
                while True:
                    if split == 1:
                        wanted = self.folded(_single(read_value), combine)
                    elif number < stage:
                        wanted = self.gathered(number, combine)
                    else:
                        self.leave(number, self.folded(_single(read_value), combine))
                        steps.close()
                        return
                    number += 1
                    read_value, combine = steps.send(wanted)
            except StopIteration as done:
                self._finish(result, done.value)

    # ----- values ----------------------------------------------------------------------------

    def held(self, value: Read) -> Read:
        """A value of every element: computed once where rows are kept in registers, else where it
        is read."""
        lanes = self.shares.vector
        registers = self.writer.local(
            self.shares.turns * lanes if self.kept else lanes, self.kind, "row"
        )
        if self.kept:
            self.elements(lambda at: self.writer.store(registers, value(at), [self.slot]))
            return lambda at: read(registers, self.slot)

        def computed(at: Index) -> Expr:
            self.writer.store(registers, value(at), [self.slot])
            return read(registers, self.slot)

        return computed

    def scalar(self, value: Callable[[], Expr]) -> OfRow:
        """A value of the row, computed once."""
        kept = self.writer.local(self.shares.side_by_side, self.kind, "value")
        with self.writer.vector(self.shares.side_by_side) as lane:
            self.writer.store(kept, value(), [lane])
        return self.of_row(kept, 1)

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
            self.elements(lambda at: writer.store(result, final.read(at), at))
            return
        with self.alone(), writer.vector(shares.side_by_side) as lane:
            row = self.row_at(integer(0) if self.across else lane)
            frame = shares.of.frame
            kept = dict(zip(frame.logical(frame.kept), row, strict=True))
            dims = range(len(frame.shape))
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
        total = yield data.read, COMBINES[name]
        count = self.shares.of.length
        return lambda at: mean(total(), count) if name == "reduce_mean" else total()

    def _softmax(self, data: Value, *, log: bool) -> Steps:
        """Largest value, exponentials and their sum, division; `log` gives the logarithm."""
        x = self.held(data.read)
        top = yield x, COMBINES["reduce_max"]
        if log:
            total = yield lambda at: tirx.exp(x(at) - top()), SUM
            shift = self.scalar(lambda: top() + tirx.log(total()))
            return lambda at: x(at) - shift()
        powers = self.held(lambda at: tirx.exp(x(at) - top()))
        total = yield powers, SUM
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
            total = yield x, SUM
            centre = self.scalar(lambda total=total: mean(total(), count))
            x = self._centred(x, centre)

        def square(at: Index) -> Expr:
            return bindings.shared(x(at), lambda difference: difference * difference)

        squares = yield square, SUM
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

    def _centred(self, x: Read, centre: OfRow) -> Read:
        return lambda at: x(at) - centre()


def _wide(value: Value, kind: str) -> Value:
    """The value in the type that sums are kept in."""
    return Value(value.type, lambda at: mathematics.converted(value.read(at), kind))


def _single(value: Read) -> Callable[[Index], list[Expr]]:
    return lambda at: [value(at)]
