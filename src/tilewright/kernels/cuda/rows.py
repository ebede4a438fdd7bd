"""Reductions, softmax and normalisations on GPUs: some threads of a block for each row.

A *row* is what is reduced together. Where the innermost axis in memory is reduced, neighbouring
threads read neighbours of a row, and combine what they have by shuffles within a warp and through
shared memory between warps. Where it is kept, neighbouring threads have neighbouring rows. A row
stays in the registers of its threads where it fits. Where rows are few and long, several blocks
share one: each combination is then a kernel of its own that leaves a partial result per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Column, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, Floats, by_combination, column, whole
from tilewright.kernels.cuda.accesses import SECTOR_BYTES, elements_read, sectors
from tilewright.kernels.cuda.base import ColumnKernels, bytes_of
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, elementwise_after
from tilewright.kernels.cuda.images import alike, image_ports, in_memory
from tilewright.kernels.ports import Ports
from tilewright.kernels.rows import NORMALISING, REDUCTIONS, Frame, operand_frame, reduced_axes

_WARP = 32
_MOST_IN_REGISTERS, _MOST_IN_LARGE, _LARGE_BLOCK = 32, 12, 256
"""Of a kept row; in vectors of four, of a thread of such a block: with more of them NVIDIA's
compiler gives registers away for one more block, and spills."""
_VECTOR_BYTES, _SMALL_BLOCK = 16, 256
_OF_IMAGES = REDUCTIONS | {"softmax", "log_softmax", "instance_norm"}
_FOLDS = {"softmax": 2, "log_softmax": 2, "layer_norm": 2, "instance_norm": 2, "rms_norm": 1}
_LOADS_TOGETHER = 4.0
"""Of one loop, which the compiler unrolls."""
_STEPS_OF_A_WARP, _STEPS_OF_A_BLOCK = 0.3, 0.2
"""What shuffles, and a barrier with shared memory, take, in waits for a load."""
_INSTRUCTIONS_OF_A_LOOP, _INSTRUCTIONS_OF_A_KERNEL = 4.0, 24.0
_BASE_REGISTERS, _WORD_BYTES = 24.0, 4
_WARPS_LOOKED_AT = 6


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor as rows: how many there are and how long they are; the extents of the axes that are
    kept and of those that are reduced, and the places of both; whether the innermost long axis,
    which is `side` long, is reduced (`across`)."""

    frame: Frame
    count: int
    length: int
    across: bool
    side: int

    @classmethod
    def of(cls, frame: Frame) -> Rows:
        """The rows of a frame."""
        kept, gone = frame.extents(frame.kept), frame.extents(frame.gone)
        return cls(frame, prod(kept), prod(gone), frame.across, frame.axes[frame.fast][1])


@dataclass(frozen=True, slots=True)
class Shares:
    """Who does what: `threads` of a block, `row_threads` of a row, lanes of a `vector`, which are
    neighbours in a row or, where rows lie side by side, rows; `split` blocks for each row. Numbers
    of one setting, or columns of many."""

    of: Rows
    threads: Any
    row_threads: Any
    vector: Any
    split: Any

    @property
    def side_by_side(self) -> Any:
        """Rows of a thread."""
        return 1 if self.of.across else self.vector

    @property
    def block_rows(self) -> Any:
        """Rows of a block."""
        return self.threads // self.row_threads * self.side_by_side

    @property
    def row_blocks(self) -> Any:
        """Blocks that all rows take, one part of them."""
        return -(-self.of.count // self.block_rows)

    @property
    def step(self) -> Any:
        """Elements of a row that its threads read at once."""
        return self.row_threads * (self.vector if self.of.across else 1)

    @property
    def part(self) -> Any:
        """Elements of a row that one block has, whole vectors."""
        unit = self.vector if self.of.across else 1
        return -(-self.of.length // (self.split * unit)) * unit

    @property
    def turns(self) -> Any:
        """How often a thread reads."""
        return -(-self.part // self.step)

    @property
    def comparisons(self) -> tuple[Floats, Floats]:
        """Comparisons before a thread reads: whether its row is one, as before it writes, and
        whether the row, or its part of it, has such elements."""
        row = self.of.count % self.block_rows > 0
        uneven = (self.part * self.split != self.of.length) | (self.part % self.step > 0)
        return row + 1.0 * uneven, 1.0 * row

    @property
    def exchanged(self) -> Floats:
        """What the warps of a block, or the threads of a row, tell each other through shared memory
        when they combine one value."""
        if self.of.across:
            return np.where(self.row_threads > _WARP, self.threads // _WARP, 0.0)
        return np.where(self.row_threads > 1, self.threads * self.vector, 0.0)


NO_CONFLICTS = 1.0
"""Of what threads tell each other: those of a warp put neighbouring words into shared memory, and
get neighbouring ones or the same."""


def folds(workload: Workload) -> int:
    """How often each row is combined to a single value."""
    return _FOLDS.get(workload.anchor_name, 1)


def reduces(workload: Workload) -> bool:
    """Whether a row becomes a single element."""
    return workload.anchor_name in REDUCTIONS


def shares_of(workload: Workload, forms: Ports, settings: Settings | Sequence[Settings]) -> Shares:
    """The shares of a setting, or of many."""
    sizes = (whole(settings, name) for name in ("threads", "row_threads", "vector", "split"))
    return Shares(rows_of(workload, forms), *sizes)


@lru_cache(maxsize=1024)
def rows_of(workload: Workload, forms: Ports) -> Rows:
    """The rows of the anchor's operand as it lies in memory."""
    return Rows.of(operand_frame(workload, forms))


class RowKernels(ColumnKernels):
    """Spec of row kernels."""

    name = "cuda_rows"
    anchors = REDUCTIONS | NORMALISING
    element_types = SINGLE | {"float16", "float64", "int32", "int64"}

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Something to reduce, and nothing after it but elementwise steps on the result."""
        if workload.anchor is None:
            return False
        _, (data, *_), _ = anchored(workload)
        fits = 0 < data.elements < MOST_ELEMENTS and data.dtype in self.element_types
        return fits and elementwise_after(workload) and bool(reduced_axes(workload))

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Of images that are reduced, or normalised by themselves, also with channels last."""
        if workload.anchor_name not in _OF_IMAGES:
            return super().port_forms(workload, target, resources)
        return tuple(forms for forms in image_ports(workload) if alike(workload, forms))

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`threads` of a block, `row_threads` of a row, lanes of a `vector`, `split` blocks for a
        row, and whether a row is `kept` in registers."""
        across = rows_of(workload, forms).across
        row_threads = (4, 8, 16, 32, 64, 128, 256, 512, 1024) if across else (1, 2, 4, 8, 16, 32)
        return (
            Knob(name="threads", values=(64, 128, 256, 512, 1024), kind="split"),
            Knob(name="row_threads", values=row_threads, kind="split"),
            Knob(name="vector", values=(4, 2, 1), kind="split"),
            Knob(name="split", values=(1, 2, 4, 8, 16, 32, 64, 128, 512), kind="split"),
            Knob(name="kept", values=(0,) if reduces(workload) else (1, 0)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Vectors that divide what lies side by side; no more threads than a row has use for, nor
        long rows together in a block; rows in registers that fit and are not split."""
        rows, kind = rows_of(workload, forms), anchored(workload)[1][0].dtype
        shares, kept = shares_of(workload, forms, settings), column(settings, "kept") > 0
        threads, members, vector = shares.threads, shares.row_threads, shares.vector
        fits = (rows.side % vector == 0) & (vector * bytes_of(kind) <= _VECTOR_BYTES)
        fits &= ~kept | (shares.split == 1)
        fits &= members <= threads
        if rows.across:
            fits &= threads <= np.maximum(members, _SMALL_BLOCK)
        least = (4 if rows.across else 1) * vector
        fits &= shares.step * shares.split <= np.maximum(2 * rows.length - 1, least)
        large = (vector > 2) & (threads >= _LARGE_BLOCK)
        most = np.where(large, _MOST_IN_LARGE, _MOST_IN_REGISTERS)
        fits &= ~kept | (shares.turns * vector <= most)
        registers, limits = _registers(workload, shares, kept), target.limits
        fits &= registers * threads <= limits.registers
        return fits & (_shared_bytes(workload, shares) <= limits.static_shared_bytes)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Sectors that warps touch, passes over a row, loads one after the other, and what
        combining takes. A split row takes a kernel for each combination and one at the end; where
        it is not split, these have no blocks."""
        work = _Work(workload, forms, target, settings)
        count, maps = folds(workload), 0 if reduces(workload) else 1
        split, kept = work.split > 1, column(settings, "kept") > 0
        passes = np.where(split | kept, 1.0, count + maps)
        first = work.kernel(passes, np.where(split, 1.0, count), np.where(split, 0.0, maps))
        others = [
            work.kernel(np.ones_like(passes), 1.0 + step, np.zeros_like(passes), again=True)
            for step in range(1, count)
        ]
        last = work.kernel(
            np.full_like(passes, maps), count, np.full_like(passes, maps), again=True
        )
        return Demand(
            pieces=first.count,
            blocks=(first, *others, last),
            details={
                "row_length": float(work.shares.of.length),
                "rows_per_block": work.block_rows,
                "elements_per_thread": work.turns * work.vector,
                "sectors_per_request": work.sectors / work.requests,
                "conflicts": NO_CONFLICTS,
                "predicates": work.shares.comparisons[0],
                "edge_predicates": work.shares.comparisons[0 if maps else 1],
                "shared_bytes": work.shared_bytes,
            },
        )

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """A partial result of each block for each combination, where rows are split."""
        shares = shares_of(workload, candidate.forms, dict(candidate.settings))
        if shares.split == 1:
            return Workspaces()
        size = shares.of.count * shares.split * bytes_of(_accumulator(workload))
        return Workspaces(shared=(size,) * folds(workload))


def _accumulator(workload: Workload) -> str:
    return element_type(anchored(workload)[1][0].dtype).accumulator


def _shared_bytes(workload: Workload, shares: Shares) -> Floats:
    """Of a block: what its warps, or the threads of a row, exchange."""
    return shares.exchanged * folds(workload) * bytes_of(_accumulator(workload))


def _registers(workload: Workload, shares: Shares, kept: Bools) -> Floats:
    """Of a thread: addresses and counters, what it has added up, and the row if it is kept."""
    words = bytes_of(_accumulator(workload)) / _WORD_BYTES
    return _BASE_REGISTERS + words * shares.vector * (2.0 + np.where(kept, shares.turns, 1.0))


class _Work:
    """What kernels of many settings do."""

    def __init__(
        self, workload: Workload, forms: Ports, target: Target, settings: Sequence[Settings]
    ) -> None:
        self.workload, self.target = workload, target
        self.shares = shares = shares_of(workload, forms, settings)
        self.threads, self.row_threads, self.vector, self.split = (
            column(settings, name) for name in ("threads", "row_threads", "vector", "split")
        )
        self.turns, self.block_rows, self.row_blocks = (
            each.astype(np.float64) for each in (shares.turns, shares.block_rows, shares.row_blocks)
        )
        self.shared_bytes = _shared_bytes(workload, shares)
        self.registers = _registers(workload, shares, column(settings, "kept") > 0)
        beside = np.minimum(shares.row_threads, _WARP)
        side = np.minimum(shares.threads // shares.row_threads, _WARP)
        told = by_combination(partial(_requests, workload, forms), beside, side, shares.vector)
        self.requests, self.sectors = told.T

    def kernel(
        self, passes: Column, combined: Column | float, maps: Column, again: bool = False
    ) -> Blocks:
        """One that goes over its part of the rows so many times, combines as often, and writes
        elements of the result where it `maps`; `again` where only split rows take it."""
        workload, across = self.workload, self.shares.of.across
        width = _WARP if across else 1
        count = np.where(again & (self.split <= 1), 0.0, self.row_blocks * self.split)
        warps = self.threads / _WARP
        elements = self.turns * self.vector
        each = workload.flop / max(1, anchored(workload)[1][0].elements) / (folds(workload) + 1)
        lanes = 2.0 * np.log2(np.minimum(self.row_threads, width))
        between = np.where(self.row_threads > width, self.row_threads / width, 0.0)
        exchanged = lanes + 2.0 * between * (1.0 if across else self.vector)
        issued = passes * (self.turns * (self.requests + _INSTRUCTIONS_OF_A_LOOP) + elements * each)
        issued = issued + combined * exchanged + maps * self.turns * 2.0
        waits = passes * np.ceil(self.turns / _LOADS_TOGETHER)
        barriers = np.where(between > 0, _STEPS_OF_A_BLOCK, 0.0)
        read, written = sum(a.type.bytes for a in workload.arguments), workload.result.bytes
        cached = read <= self.target.memory[1].bytes / 2
        at_once = np.minimum(count, self.target.cores * self.target.limits.threads / self.threads)
        under_way = at_once * read * self.block_rows / (self.shares.of.count * self.split)
        again_read = np.where(under_way <= self.target.memory[1].bytes / 2, 1.0, passes)
        made = maps * elements * self.threads + (1.0 - maps) * self.block_rows
        size = bytes_of(workload.result.dtype)
        return Blocks(
            count=count,
            threads=self.threads,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            operations=passes * elements * each * self.threads,
            instructions=warps * (issued + _INSTRUCTIONS_OF_A_KERNEL),
            shared_traffic_bytes=combined * between * self.threads * self.vector * _WORD_BYTES,
            traffic_bytes=passes * warps * self.turns * self.sectors * SECTOR_BYTES + made * size,
            steps=np.maximum(1.0, waits) + combined * (_STEPS_OF_A_WARP + barriers),
            memory_bytes=np.where(
                count > 0,
                (0.0 if again and cached else again_read * read) + (maps > 0) * written,
                0.0,
            ),
        )


@lru_cache(maxsize=4096)
def _requests(
    workload: Workload, forms: Ports, members: int, side: int, vector: int
) -> tuple[float, float]:
    """Of a warp that reads once, a vector for each thread, `members` of a row and `side` rows next
    to each other: loads it issues, sectors they touch."""
    there, frame = in_memory(workload, forms), rows_of(workload, forms).frame
    anchor = anchored(there)[0]
    lane, thread = np.arange(vector), np.arange(_WARP)[:, None]
    if frame.across:
        row, place = thread // members + 0 * lane, thread % members * vector + lane
    else:
        row, place = thread % side * vector + lane, thread // side + 0 * lane
    kept, gone = frame.extents(frame.kept), frame.extents(frame.gone)
    rows, length = prod(kept), prod(gone)
    begins = np.linspace(0, max(0, rows - 1 - int(row.max())), _WARPS_LOOKED_AT).astype(np.int64)
    row = np.minimum(begins[:, None, None] // vector * vector + row, rows - 1)
    place = np.broadcast_to(np.minimum(place, length - 1), row.shape)
    at = dict(zip(frame.logical(frame.kept), np.unravel_index(row, kept or (1,)), strict=False))
    at |= zip(frame.logical(frame.gone), np.unravel_index(place, gone or (1,)), strict=False)
    flat = np.asarray(
        np.ravel_multi_index(tuple(at[i] for i in range(len(frame.shape))), frame.shape), np.int64
    )
    loads = touched = 0.0
    for argument, elements in elements_read(there, flat.reshape(-1), anchor.inputs[0]):
        parts = elements.reshape(flat.shape)
        touched += sectors(parts.reshape(len(parts), -1), bytes_of(workload.types[argument].dtype))
        beside = (np.diff(parts, axis=2) == 1).all() and not (parts[:, :, 0] % vector).any()
        loads += 1.0 if vector == 1 or beside else float(vector)
    return max(1.0, loads), max(1.0, touched)


SPEC = RowKernels()
