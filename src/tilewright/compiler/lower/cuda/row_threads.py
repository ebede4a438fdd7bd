"""The threads of a block that share rows: where they are, and how they combine what they have.

What a lowering combines are one or several values at each element (`parts`): a softmax has one, a
product of several vectors with one matrix has several.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tvm import tirx

from tilewright.compiler.lower.anchors import infinity
from tilewright.compiler.lower.cuda.threads import Writer, integer, read
from tilewright.compiler.lower.values import Index, unravelled
from tilewright.kernels.cuda.rows import Shares

Expr = tirx.Expr
OfRow = Callable[..., Expr]
"""The value of the current row, or one of its parts: `total()`, `total(1)`."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class Combine:
    """How two become one, and what changes nothing."""

    pair: Callable[[Expr, Expr], Expr]
    identity: Callable[[str], Expr]


SUM = Combine(lambda a, b: a + b, lambda kind: tirx.const(0, kind))
COMBINES = {
    "reduce_sum": SUM,
    "reduce_mean": SUM,
    "reduce_max": Combine(tirx.max, lambda kind: infinity(kind, "-")),
    "reduce_min": Combine(tirx.min, lambda kind: infinity(kind, "")),
    "reduce_prod": Combine(lambda a, b: a * b, lambda kind: tirx.const(1, kind)),
}
"""By the operator of a reduction."""


class RowThreads:
    """One kernel: positions of a thread, and what it does with the elements of its rows.

    `kind` is the type that is combined in; `partial` has, for each combination, what the blocks of
    a split row leave.
    """

    parts = 1

    def __init__(
        self, writer: Writer, shares: Shares, kind: str, partial: list[tirx.Buffer]
    ) -> None:
        self.writer, self.program, self.shares = writer, writer.program, shares
        self.kind, self.partial = kind, partial
        self.across = shares.of.across
        self.kept = bool(self.program.settings.get("kept", 0))
        self.row = self.member = self.start = self.slot = integer(0)
        self.group = self.part = self.thread = integer(0)

    # ----- positions -------------------------------------------------------------------------

    def place(self, block: Expr, thread: Expr, parts: int) -> None:
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
        kept = self.row_at(aside)
        gone = unravelled(place, frame.extents(frame.gone), self.program.simplify)
        axes = frame.logical((*frame.kept, *frame.gone))
        found = dict(zip(axes, (*kept, *gone), strict=True))
        return [found[axis] for axis in range(len(found))]

    def row_at(self, aside: Expr) -> list[Expr]:
        """The position of a row along the axes that are kept."""
        frame = self.shares.of.frame
        return unravelled(self.row + aside, frame.extents(frame.kept), self.program.simplify)

    def elements(self, body: Callable[[Index], None]) -> None:
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

    # ----- combining -------------------------------------------------------------------------

    def folded(self, values: Callable[[Index], list[Expr]], combine: Combine) -> OfRow:
        """The values of all elements of a row combined, known to all of its threads."""
        total = self._cleared(combine)

        def add(at: Index) -> None:
            for part, value in enumerate(values(at)):
                self._join(total, part, value, combine)

        self.elements(add)
        return self._shared_out(total, combine)

    def _cell(self, part: int) -> Expr:
        """Where a thread has its lane of a part."""
        return integer(part * self.shares.vector) + self.writer.lane

    def _join(self, total: tirx.Buffer, part: int, value: Expr, combine: Combine) -> None:
        cell = self._cell(part)
        self.writer.store(total, combine.pair(read(total, cell), value), [cell])

    def _cleared(self, combine: Combine) -> tirx.Buffer:
        lanes = self.shares.vector
        total = self.writer.local(self.parts * lanes, self.kind, "total")
        for part in range(self.parts):
            with self.writer.vector(lanes):
                self.writer.store(total, combine.identity(self.kind), [self._cell(part)])
        return total

    def _shared_out(self, total: tirx.Buffer, combine: Combine) -> OfRow:
        """What the threads of a row have, combined."""
        if self.across:
            self._across(total, combine)
        elif self.shares.row_threads > 1:
            self._down(total, combine)
        return self.of_row(total, self.shares.vector)

    def of_row(self, buffer: tirx.Buffer, apart: int) -> OfRow:
        """Reads the value of the current row, parts of which are so far `apart`."""

        def value(part: int = 0) -> Expr:
            aside = integer(0) if self.across else self.writer.lane
            return read(buffer, integer(part * apart) + aside)

        return value

    def _down(self, total: tirx.Buffer, combine: Combine) -> None:
        """Threads of a row by way of shared memory, where neighbours have neighbouring rows."""
        shares, writer = self.shares, self.writer
        lanes, groups = shares.vector, shares.threads // shares.row_threads
        size = shares.threads * lanes
        exchanged = writer.shared(size * self.parts, self.kind, "exchanged")
        for part in range(self.parts):
            with writer.vector(lanes) as lane:
                place = integer(part * size) + self.thread * lanes + lane
                writer.store(exchanged, read(total, self._cell(part)), [place])
        writer.barrier()
        for part in range(self.parts):
            own = integer(part * size) + self.group * lanes
            with writer.vector(lanes) as lane:
                writer.store(total, read(exchanged, own + lane), [self._cell(part)])
            with writer.unrolled(shares.row_threads - 1) as other, writer.vector(lanes) as lane:
                further = own + (other + 1) * (groups * lanes) + lane
                self._join(total, part, read(exchanged, further), combine)

    def _across(self, total: tirx.Buffer, combine: Combine) -> None:
        """Lanes of a vector, then of a warp, then warps."""
        shares, writer, zero = self.shares, self.writer, integer(0)
        other = writer.local(1, self.kind, "other")
        warps, all_warps = shares.row_threads // _WARP, shares.threads // _WARP
        for part in range(self.parts):
            first = part * shares.vector
            for lane in range(1, shares.vector):
                self._join(total, part, read(total, integer(first + lane)), combine)
            distance = min(shares.row_threads, _WARP) // 2
            while distance:
                given = writer.from_lane(read(total, integer(first)), distance)
                writer.store(other, given, [zero])
                self._join(total, part, read(other, zero), combine)
                distance //= 2
        if warps <= 1:
            return
        exchanged = writer.shared(all_warps * self.parts, self.kind, "exchanged")
        warp, lane = self.program.simplify.split(self.thread, _WARP)
        with writer.when(tirx.EQ(lane, zero)):
            for part in range(self.parts):
                place = integer(part * all_warps) + warp
                writer.store(exchanged, read(total, self._cell(part)), [place])
        writer.barrier()
        for part in range(self.parts):
            own = integer(part * all_warps) + self.group * warps
            writer.store(total, read(exchanged, own), [self._cell(part)])
            with writer.unrolled(warps - 1) as more:
                self._join(total, part, read(exchanged, own + more + 1), combine)

    # ----- what blocks leave for the next kernel ---------------------------------------------

    def _partial_at(self, part: int, block: Expr, aside: Expr) -> Expr:
        """Where a block leaves what it has of a row: blocks of a row together, or rows."""
        shares = self.shares
        before = integer(part * shares.of.count * shares.split)
        if self.across:
            return before + (self.row + aside) * shares.split + block
        return before + block * shares.of.count + self.row + aside

    def leave(self, number: int, total: OfRow) -> None:
        """Leave what this block has of its rows in memory."""
        for part in range(self.parts):
            with self.alone(), self.writer.vector(self.shares.side_by_side) as lane:
                place = self._partial_at(part, self.part, lane)
                self.writer.store(self.partial[number], total(part), [place])

    def alone(self) -> AbstractContextManager[None]:
        """One thread of each row."""
        return self.writer.when(self._there(), tirx.EQ(self.member, integer(0)))

    def gathered(self, number: int, combine: Combine) -> OfRow:
        """What all blocks of the rows left, combined."""
        shares, writer = self.shares, self.writer
        total = self._cleared(combine)
        with writer.serial(-(-shares.split // shares.row_threads)) as turn:
            block = turn * shares.row_threads + self.member
            exact = shares.split % shares.row_threads == 0
            there = writer.when(self._there(), True if exact else block < shares.split)
            with there:
                for part in range(self.parts):
                    with writer.vector(shares.side_by_side) as lane:
                        left = read(self.partial[number], self._partial_at(part, block, lane))
                        self._join(total, part, left, combine)
        return self._shared_out(total, combine)
