"""What products of matrices ask of a GPU, by their tiles: registers, memory, conflicts, waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import numpy as np

from tilewright.core.targets import Target
from tilewright.cost.demand import Blocks, Column, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import by_combination
from tilewright.kernels.cuda.accesses import distinct, turns_of_banks
from tilewright.kernels.cuda.base import bytes_of
from tilewright.kernels.cuda.product_tiles import (
    RUN,
    SINGLE_BYTES,
    VECTOR,
    WARP,
    Operand,
    Product,
    Tiles,
)

SUMMING_THREADS = 256
"""Of a block that adds up what several blocks found."""
_SUMMING_REGISTERS = 24
_BANKS = 32
_SECTOR_BYTES, _LINE_BYTES = 32, 128
_MOST_REGISTERS = 255
_COPY_INSTRUCTIONS, _COMPARISON_INSTRUCTIONS, _RESULT_INSTRUCTIONS = 6.0, 1.0, 6.0
"""Of an access that copies; of a comparison; of a result, with its epilogue."""
_LOAD_INSTRUCTIONS = 3.0
"""Of one more load of an access: its position, and putting together what was loaded."""
_DECODING_INSTRUCTIONS = 24.0
"""Of an access whose channel and tap are found anew; both counted in PTX of convolutions 3×3."""
EXCHANGE_INSTRUCTIONS = 2.0
"""Of a sum in a turn: one of two is sent by a shuffle, and chosen before and behind it."""
_LATENCY_CYCLES = 500.0
"""From a load's issue to its use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How tiles in shared memory are multiplied: by the unit that takes an `element`.

    Of a thread's `registers`, there are some always, some for a sum, for an element on its way to
    shared memory, and for one that is under way while sums are made. Of a step, `lines` of 128
    bytes are what a warp reads of shared memory, in time, and `issued` its instructions for that
    and for the sums. An element has `terms` along the depth, and takes `converting` instructions
    before it goes there.
    """

    element: str
    registers: tuple[float, float, float, float]
    lines: Callable[[Tiles], Column]
    issued: Callable[[Tiles], Column]
    converting: float = 0.0
    terms: int = 1

    def registers_of(self, product: Product, tiles: Tiles) -> Column:
        """Registers of a thread, by the formula."""
        always, of_a_sum, of_an_element, under_way = self.registers
        sums, fetched = tiles.thread_fast * tiles.thread_slow, tiles.in_registers(product)
        moved = (of_an_element + under_way * (tiles.stages - 1)) * fetched
        return np.minimum(always + of_a_sum * sums + moved, _MOST_REGISTERS)


def _lines_of_vectors(tiles: Tiles) -> Column:
    lines = np.zeros(len(tiles.depth))
    own, lanes = (tiles.thread_fast, tiles.thread_slow), (tiles.lanes_fast, tiles.lanes_slow)
    for count, beside, width in zip(own, lanes, tiles.widths, strict=True):
        lines = lines + tiles.depth * (count // width) * np.ceil(beside * width / _BANKS)
    return lines


def _issued_by_threads(tiles: Tiles) -> Column:
    own = (tiles.thread_fast, tiles.thread_slow)
    return tiles.depth * (own[0] * own[1] + sum(-(-count // VECTOR) for count in own))


ORDINARY = Arithmetic(
    element="float32",
    registers=(33.0, 0.83, 0.68, 1.16),
    lines=_lines_of_vectors,
    issued=_issued_by_threads,
)
"""By the units of single precision. Registers are fitted to what ptxas reports of 44 settings for
dense layers, batched products and convolutions of all kinds (sm_90): wrong by 16 % on average, by
32 % at the ninth decile."""


def demand_of(
    workload: Workload, product: Product, tiles: Tiles, target: Target, by: Arithmetic = ORDINARY
) -> Demand:
    """The kernel of the product, and the one that adds up where blocks share a depth."""
    blocks, steps = np.asarray(tiles.blocks(product), np.float64), tiles.steps(product)
    covered = tiles.fast * tiles.slow * tiles.depth * steps * blocks
    results = float(product.batch * product.rows * product.columns)
    useful = results * (product.terms / by.terms or product.depth)
    memory = _Accesses(workload, product, tiles, by)
    counted = memory.comparisons
    main = _product_blocks(workload, memory, target)
    return Demand(
        pieces=blocks,
        blocks=(main, sum_blocks(results, tiles.split, memory.parts)),
        details={
            "threads": main.threads,
            "registers": main.registers,
            "shared_bytes": main.shared_bytes,
            "waste": covered / useful,
            "steps": np.asarray(steps, np.float64),
            "conflicts": memory.conflicts,
            "coalesced": memory.sectors,
            "predicates": counted[0] + counted[1],
            "edge_predicates": memory.written_comparisons,
            "sectors_per_store": memory.stored,
        },
    )


class _Accesses:
    """What the threads of a block read and write, of each setting; pairs are those of the fast and
    the slow operand."""

    def __init__(self, workload: Workload, product: Product, tiles: Tiles, by: Arithmetic) -> None:
        self.product, self.tiles, self.by = product, tiles, by
        self.bytes = [
            by.terms * bytes_of(workload.types[each.value].dtype) for each in product.operands
        ]
        self.loaded = [
            each.load_bytes or size for each, size in zip(product.operands, self.bytes, strict=True)
        ]
        self.copied = [np.asarray(each, np.float64) for each in tiles.copied(product)]
        self.vectors = tiles.vectors(product)
        self.extents = (tiles.fast, tiles.slow)
        pairs = list(zip(product.operands, self.vectors, self.extents, strict=True))
        self.lines = [
            np.minimum(
                np.minimum(RUN if operand.along_depth else extent, WARP * vector),
                np.where(tiles.by_taps & _goes_through_taps(operand), 1, operand.line),
            )
            for operand, vector, extent in pairs
        ]
        pitches = tiles.pitches(product)
        self.ways = [
            ways(RUN, vector, pitch, extent) if operand.along_depth else np.ones(len(tiles.depth))
            for (operand, vector, extent), pitch in zip(pairs, pitches, strict=True)
        ]
        self.parts = np.where(
            tiles.split > 1,
            float(SINGLE_BYTES * product.batch * product.rows * product.columns) * tiles.split,
            0.0,
        )
        self.result_bytes = float(workload.result.bytes)
        self.result_size = bytes_of(workload.result.dtype)
        self.read_bytes = float(workload.bytes) - self.result_bytes

    @property
    def conflicts(self) -> Column:
        """Times that the worst access to shared memory takes over one without conflicts."""
        return np.maximum(*self.ways)

    @property
    def requested(self) -> list[Column]:
        """Sectors of a warp's load."""
        found = list[Column]()
        for operand, vector, line, size in zip(
            self.product.operands, self.vectors, self.lines, self.loaded, strict=True
        ):
            apart = self.product.stride if operand is self.product.left else 1
            each = np.maximum(1.0, line * size * apart / _SECTOR_BYTES)
            found.append(np.minimum(WARP * vector / line * each, WARP * np.maximum(1, vector // 2)))
        return found

    @property
    def sectors(self) -> Column:
        """Sectors of a warp's load, on average over the loads of both operands."""
        (a, b), (x, y) = self.copied, self.requested
        return (a * x + b * y) / (a + b)

    @property
    def comparisons(self) -> list[Column]:
        """Comparisons before each load of either operand; by taps, those with the borders of an
        image are made once in a step."""
        product, tiles = self.product, self.tiles
        deep = tiles.overruns(product)
        found = list[Column]()
        for operand, whole, extent, copied, vector in zip(
            product.operands,
            (product.fast, product.slow),
            self.extents,
            self.copied,
            self.vectors,
            strict=True,
        ):
            few = copied * tiles.threads * vector > tiles.depth * extent
            of_image = product.comparisons * (1 - tiles.by_taps) * (operand is product.left)
            found.append(1.0 * (whole % extent > 0) + deep + few + of_image)
        return found

    @property
    def loaded_bytes(self) -> Column:
        """What a block reads in a step, from the second-level cache on: whole sectors, and of an
        image what is not read again in the same step."""
        found = np.zeros(len(self.tiles.depth))
        for operand, extent, size, got, asked, vector in zip(
            self.product.operands,
            self.extents,
            self.bytes,
            self.loaded,
            self.requested,
            self.vectors,
            strict=True,
        ):
            again = 1.0
            if operand is self.product.left:
                again = np.where(self.tiles.by_taps, self.product.taps, self._taps_of_a_step)
            wasted = np.maximum(1.0, asked * _SECTOR_BYTES / (WARP * vector * got))
            if operand is self.product.right:
                wasted = np.where(self.tiles.by_taps, 1.0, wasted)
            found = found + extent * self.tiles.depth * size * wasted / again
        return found

    @property
    def _taps_of_a_step(self) -> Column:
        """Taps of an element that a step of whole filters has."""
        product, depth = self.product, self.tiles.depth
        beside = depth / product.channels if product.taps_outside else depth
        return np.clip(beside, 1.0, product.taps)

    @property
    def apart(self) -> Column:
        """How often a sector of the results is written: again for the neighbours that a thread has
        but cannot write together, and by two requests where lines of the result begin anywhere."""
        return self.stored * _SECTOR_BYTES / (WARP * self.together * self.result_size)

    @property
    def stored(self) -> Column:
        """Sectors of a warp's store, on average over the places where lines of the result begin."""
        lanes, apart, together = self.tiles.stored(self.product)
        of_a_line = by_combination(
            partial(stored_sectors, self.product.fast, self.result_size), lanes, apart, together
        )
        return of_a_line * WARP / lanes

    @property
    def together(self) -> Any:
        """Results that a thread writes at once."""
        return self.tiles.stored(self.product)[2]

    @property
    def written_comparisons(self) -> Column:
        """Comparisons before results are written, with what tiles at the edge have too much."""
        sides = zip((self.product.fast, self.product.slow), self.extents, strict=True)
        return np.asarray(sum(whole % extent > 0 for whole, extent in sides), np.float64)

    @property
    def shared_bytes(self) -> Column:
        """What a warp moves through shared memory in a step, in time of whole lines."""
        lines = self.by.lines(self.tiles)
        for copied, vector, ways in zip(self.copied, self.vectors, self.ways, strict=True):
            lines = lines + copied * vector * ways
        return lines * _LINE_BYTES


def stored_sectors(extent: int, size: int, lanes: int, apart: int, together: int) -> float:
    """Sectors of one line that lanes write so many neighbours of, so far apart, on average over the
    places in a sector where lines of `extent` begin."""
    sector = _SECTOR_BYTES // size
    elements = (np.arange(lanes)[:, None] * apart + np.arange(together)).reshape(-1)
    begins = np.arange(0, sector, gcd(extent, sector))[:, None]
    return float(distinct((begins + elements) // sector).mean())


def _goes_through_taps(operand: Operand) -> bool:
    """Whether lines of an operand have all taps of a channel, so that those of one lie apart."""
    return operand.along_depth and not operand.of_channels


def _product_blocks(workload: Workload, memory: _Accesses, target: Target) -> Blocks:
    product, tiles, by = memory.product, memory.tiles, memory.by
    steps, threads = tiles.steps(product), np.asarray(tiles.threads, np.float64)
    warps = np.ceil(threads / WARP)
    sums = tiles.thread_fast * tiles.thread_slow
    decoding = _DECODING_INSTRUCTIONS * (1 - tiles.by_taps) * (product.taps > 1)
    copies = sum(
        count
        * (
            _COPY_INSTRUCTIONS
            + _COMPARISON_INSTRUCTIONS * comparisons
            + decoding * (operand is product.left)
            + _LOAD_INSTRUCTIONS * (operand.loads - 1)
            + by.converting * vector
        )
        for operand, count, comparisons, vector in zip(
            product.operands, memory.copied, memory.comparisons, memory.vectors, strict=True
        )
    )
    turns = sums * tiles.exchanges
    issued = steps * (by.issued(tiles) + copies) + _RESULT_INSTRUCTIONS * sums
    issued = issued + EXCHANGE_INSTRUCTIONS * turns
    operations = 2.0 * by.terms * tiles.fast * tiles.slow * tiles.depth * steps
    busy = operations / steps / target.operations_per_cycle(by.element)
    ahead = np.where(steps > 1, tiles.ahead, 0)
    waiting = np.maximum(0.0, 1.0 - ahead * busy / _LATENCY_CYCLES)
    written = np.where(tiles.split > 1, memory.parts, memory.result_bytes)
    blocks = tiles.blocks(product)
    return Blocks(
        count=np.asarray(blocks, np.float64),
        threads=threads,
        registers=by.registers_of(product, tiles),
        shared_bytes=np.asarray(tiles.shared_bytes(product), np.float64),
        operations=operations,
        element=by.element,
        instructions=warps * issued,
        shared_traffic_bytes=warps * (steps * memory.shared_bytes + turns / 2 * _LINE_BYTES),
        traffic_bytes=steps * memory.loaded_bytes + memory.apart * written / blocks,
        steps=1.0 + (steps - 1) * waiting,
        memory_bytes=memory.read_bytes + written,
    )


def sum_blocks(results: float, split: Column, moved_bytes: Column) -> Blocks:
    """The kernel that adds up what several blocks found of each result; none where `split` is 1."""
    whole = np.where(split > 1, np.ceil(results / SUMMING_THREADS), 0.0)
    moved = np.where(split > 1, moved_bytes + SINGLE_BYTES * results, 0.0)
    return Blocks(
        count=whole,
        threads=SUMMING_THREADS,
        registers=_SUMMING_REGISTERS,
        instructions=SUMMING_THREADS / WARP * (_RESULT_INSTRUCTIONS + 4.0 * split),
        traffic_bytes=moved / np.maximum(1.0, whole),
        memory_bytes=moved,
    )


def ways(run: Any, vector: Any, pitch: Any, extent: Any) -> Column:
    """How many lanes of a warp write to the same bank at a time, where each has a vector of a line,
    which is written across: neighbours have the rest of a run, then lines of a tile."""
    run, vector, pitch, extent = (
        each[:, None] for each in np.broadcast_arrays(run, vector, pitch, np.atleast_1d(extent))
    )
    place, within = np.divmod(np.arange(WARP), np.maximum(1, run // vector))
    outer, line = np.divmod(place, extent)
    return turns_of_banks((outer * run + within * vector) * pitch + line)
