"""Kernels of products of a few vectors with a matrix.

    block: some columns of the result, or a part of their terms
      thread: its elements of the matrix, times those of all vectors, added up
      shuffles, then shared memory
      results

Where terms are split, a second kernel adds up what blocks left.
"""

from __future__ import annotations

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.cuda.row_threads import SUM, OfRow, RowThreads
from tilewright.compiler.lower.cuda.threads import Writer, integer, keep_after_anchor, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, broadcast_index, in_type, unravelled
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.vectors import accumulator, shares_of, vectors_of

Expr = tirx.Expr


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernels."""
    writer, workload = Writer(program), program.workload
    with writer.function() as result:
        shares, kind = shares_of(workload, program.settings), accumulator(workload)
        partial: list[tirx.Buffer] = []
        if shares.split > 1:
            size = shares.of.count * shares.split * vectors_of(workload)
            partial = [writer.workspace((size,), kind, "partial")]
            _Kernel(writer, shares, kind, partial).write(result, last=False)
        _Kernel(writer, shares, kind, partial).write(result, last=True)
    return writer.schedule()


class _Kernel(RowThreads):
    """One kernel; its parts are the vectors."""

    def write(self, result: tirx.Buffer, *, last: bool) -> None:
        """The only kernel, or the one that leaves sums, or the last one, which adds them up."""
        shares, split = self.shares, self.shares.split
        self.parts = vectors_of(self.program.workload)
        apart = 1 if last else split
        with self.writer.launch(shares.row_blocks * apart, shares.threads) as (block, thread):
            self.place(block, thread, apart)
            total = self.gathered(0, SUM) if last and split > 1 else self._products()
            if last:
                self._finish(result, total)
            else:
                self.leave(0, total)

    def _products(self) -> OfRow:
        """Each element of the matrix, in a register, times those of all vectors."""
        program, dense = self.program, self._dense()
        vectors, matrix = (
            in_type(program.operand(value), self.kind) for value in program.workload.anchor.inputs
        )
        element = self.writer.local(self.shares.vector, self.kind, "element")
        turned = not dense and bool(program.workload.anchor.named["transpose_b"])

        def products(at: Index) -> list[Expr]:
            lane, term = self.writer.lane, at[-1] if turned else at[-2]
            source = broadcast_index(at[:-2], matrix.type.shape[:-2])
            self.writer.store(element, matrix.read([*source, *at[-2:]]), [lane])
            front = [] if dense else broadcast_index(at[:-2], vectors.type.shape[:-2])
            found: list[Expr] = []
            for number in range(self.parts):
                row = self._leading(number) if dense else [*front, integer(number)]
                found.append(vectors.read([*row, term]) * read(element, lane))
            return found

        return self.folded(products, SUM)

    def _dense(self) -> bool:
        return self.program.workload.anchor.operator == "dense"

    def _leading(self, number: int) -> list[Expr]:
        """The position of a vector along all axes but its own."""
        shape = self.program.workload.step_types(self.program.workload.anchor_index)[1].shape[:-1]
        return unravelled(integer(number), shape, self.program.simplify)

    def _finish(self, result: tirx.Buffer, total: OfRow) -> None:
        """Write what the steps after the anchor make of the sums."""
        program, writer, lanes = self.program, self.writer, self.shares.side_by_side
        workload, part = program.workload, [0]
        kind = workload.step_types(workload.anchor_index)[1].dtype
        program.set_anchor(lambda at: mathematics.converted(total(part[0]), kind))
        keep_after_anchor(writer, lanes)
        final = program.operand(len(workload.types) - 1)
        for number in range(self.parts):
            part[0] = number
            with self.alone(), writer.vector(lanes) as lane:
                *batch, column = self.row_at(integer(0) if self.across else lane)
                row = self._leading(number) if self._dense() else [*batch, integer(number)]
                at = [*row, column]
                writer.store(result, final.read(at), at)
