"""Direct convolution on GPUs, for few input channels.

A block computes a rectangle of an image's results, of some output channels. It copies what they
read, a rectangle of the image, and their filters into shared memory once; each of its threads then
goes through all taps with a tile of rows, columns and channels in registers. No place of a term is
looked for, and what lies beyond the image is copied as zero, so that taps need no comparison.

    columns of a thread    where threads lie    reads of a row
    beside each other      0 0 1 1 2 2 3 3      in vectors, once for all taps across
    apart                  0 1 2 3 0 1 2 3      for each tap; a warp writes whole lines at any width
    exchanged              0 0 1 1 2 2 3 3      in vectors; a warp writes whole lines at any width

In the last case, lanes of the same columns give each other theirs before they write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import LaunchLimits, Resources, Target
from tilewright.cost.demand import Blocks, Column, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob
from tilewright.kernels.columns import Bools, KnobColumns, Numbers, by_combination
from tilewright.kernels.cuda.accesses import distinct, turns_of_banks
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, elementwise_after
from tilewright.kernels.cuda.direct_tiles import (
    APART,
    BESIDE,
    EXCHANGED,
    VECTOR,
    WARP,
    Direct,
    DirectTiles,
    dealt,
    direct,
    tiles_of,
)
from tilewright.kernels.cuda.images import ImageKernels, image_ports
from tilewright.kernels.cuda.product_costs import EXCHANGE_INSTRUCTIONS, stored_sectors
from tilewright.kernels.cuda.products import up_to
from tilewright.kernels.ports import Ports

MOST_CHANNELS = 4
"""Input channels of a group. With sixteen, a product finds the place of a term for so many
channels at once that nothing is gained (docs/decisions/0106)."""
AT_ONCE = 8
"""Elements that a thread copies before it waits for them."""
_FEWEST_RESULTS = 4
"""Output channels of a group."""
_BANKS = 32
_SINGLE_BYTES, _SECTOR_BYTES, _LINE_BYTES = 4, 32, 128
_MOST_THREADS, _MOST_SUMS, _MOST_REGISTERS = 256, 64, 255
MOST_SPELT_OUT = 1024
"""Products of a thread that are unrolled."""
_MOST_COPIED = 96
"""Elements that a thread copies: with more, compilers hold too much in registers."""
_STEPS_OF_A_BARRIER = 0.2
_IMAGE_INSTRUCTIONS, _FILTER_INSTRUCTIONS, _RESULT_INSTRUCTIONS = 6.0, 10.0, 6.0
"""Of an element of the image and of the filters that is copied, and of a result with its
epilogue."""
_INSTRUCTIONS_OF_A_THREAD, _LOOP_INSTRUCTIONS = 140.0, 4.0
"""To find its place and where it copies from; of a turn of a loop that is not unrolled. All but the
last are fitted to the PTX of 25 settings for kernels 3×3 to 7×7."""
_REGISTERS = (18.5, 1.33, 0.35)
"""Always, for a sum and for an element that is copied: fitted to what ptxas reports of 25 settings
for kernels 3×3 to 7×7 (sm_90), wrong by 8 % on average, by 15 % at the ninth decile."""


class DirectKernels(ImageKernels):
    """Spec of direct convolutions."""

    name = "cuda_direct"
    anchors = frozenset({"conv2d"})
    element_types = SINGLE

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Singles of at most four input channels a group, and not one filter for each channel,
        of sizes that 32-bit positions count, with elementwise steps behind the convolution."""
        if workload.anchor is None:
            return False
        conv = direct(workload).conv
        sizes = [kind.elements for kind in workload.types]
        return (
            {kind.dtype for kind in workload.types} <= SINGLE
            and 0 < conv.group_in <= MOST_CHANNELS
            and conv.group_out >= _FEWEST_RESULTS
            and min(sizes) > 0
            and max(sizes) < MOST_ELEMENTS
            and elementwise_after(workload)
            and _has_settings(workload, target.limits)
        )

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Images in either form on either side."""
        return image_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`rows`, `columns` and output `channels` of a thread; threads of a block `down` and
        `across` the image and `deep` along the channels; whether a thread's columns lie `beside`
        each other, and are exchanged."""
        return _knobs(direct(workload, forms))

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Two warps at least where there are as many threads, the last one perhaps not full;
        registers and shared memory for all of them, blocks that a launch may have, and a text that
        is not too long."""
        return _valid(
            tiles_of(workload, forms, settings), _knobs(direct(workload, forms)), target.limits
        )

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """What a block copies, what its threads read of that, and lines and sectors of both."""
        tiles = tiles_of(workload, forms, settings)
        return _demand(workload, tiles, _Accesses(tiles))


def _knobs(of: Direct) -> tuple[Knob, ...]:
    conv = of.conv
    quarters = -(-conv.group_out // VECTOR)
    values = {
        "rows": up_to(conv.out_height, (1, 2, 3, 4, 5, 7)),
        "columns": up_to(conv.out_width, (1, 2, 3, 4, 5, 6, 7, 8)),
        "channels": up_to(conv.group_out, (4, 8, 16)),
        "down": up_to(conv.out_height, (1, 2, 3, 4, 5, 7, 8, 12, 16)),
        "across": up_to(conv.out_width, (8, 16, 32)),
        "deep": up_to(quarters, (1, 2, 4, 8)),
    }
    sizes = [Knob(name=name, values=found, kind="split") for name, found in values.items()]
    exchanging = not of.written_last and conv.out_width % VECTOR > 0
    beside = (APART, BESIDE, EXCHANGED) if exchanging else (APART, BESIDE)
    return (*sizes, Knob(name="beside", values=beside if conv.out_width > 1 else (APART,)))


def _valid(tiles: DirectTiles, knobs: Sequence[Knob], limits: LaunchLimits) -> Bools:
    conv, threads = tiles.of.conv, tiles.threads
    most = prod(int(knob.values[-1]) for knob in knobs if knob.name in ("down", "across", "deep"))
    fits = (threads >= min(2 * WARP, most)) & (threads <= min(_MOST_THREADS, limits.block_threads))
    fits &= tiles.sums <= _MOST_SUMS
    fits &= (tiles.beside == APART) | (tiles.columns > 1)
    fits &= (tiles.beside != EXCHANGED) | _exchangeable(tiles)
    fits &= tiles.deep // 2 * tiles.channels < conv.group_out
    fits &= tiles.down // 2 * tiles.rows < conv.out_height
    fits &= tiles.sums * conv.kernel[1] <= MOST_SPELT_OUT
    fits &= tiles.blocks <= limits.grid[0]
    fits &= shared_bytes(tiles) <= limits.static_shared_bytes
    chosen = tiles.where(fits)
    few = sum(_copied(chosen)) <= _MOST_COPIED
    fits[fits] = few & (_registers(chosen) * chosen.threads <= limits.registers)
    return fits


def _exchangeable(tiles: DirectTiles) -> Bools:
    """Whether warps are whole, a thread has neighbours that it cannot write at once, and a warp as
    many lanes with the same columns."""
    width = tiles.vector
    if tiles.of.written_last:
        return np.zeros(len(width), np.bool_)
    apart = np.gcd(width, tiles.of.conv.out_width) < width
    return apart & (tiles.threads % WARP == 0) & (tiles.across * width <= WARP)


def _copied(tiles: DirectTiles) -> tuple[Column, Column]:
    """Elements of the image and of the filters that a thread copies."""
    length, lines, planes = tiles.image_lines
    image = by_combination(_of_a_thread, length, lines, tiles.threads) * planes
    return image, by_combination(_of_a_thread, *tiles.filter_lines, tiles.threads)


def _of_a_thread(length: int, lines: int, threads: int) -> int:
    return dealt(length, lines, threads).copied


def _beside(length: int, lines: int, threads: int) -> int:
    """Neighbours of a line that lanes of a warp copy at a time."""
    return min(WARP, dealt(length, lines, threads).width)


@lru_cache(maxsize=4096)
def _has_settings(workload: Workload, limits: LaunchLimits) -> bool:
    """Whether shared memory has room for the image and the filters of the smallest blocks."""
    knobs = _knobs(direct(workload))
    grid = np.meshgrid(*(np.arange(len(knob.values)) for knob in knobs), indexing="ij")
    digits = np.stack([each.reshape(-1) for each in grid], axis=-1).astype(np.int64)
    return bool(_valid(tiles_of(workload, (), KnobColumns(knobs, digits)), knobs, limits).any())


def shared_bytes(tiles: DirectTiles) -> Any:
    """Of a block."""
    return _SINGLE_BYTES * (tiles.image_elements + tiles.filter_elements)


def _registers(tiles: DirectTiles) -> Column:
    always, of_a_sum, of_a_copy = _REGISTERS
    return np.minimum(
        always + of_a_sum * tiles.sums + of_a_copy * sum(_copied(tiles)), _MOST_REGISTERS
    )


def spelt_out(tiles: DirectTiles) -> Any:
    """Whether the rows of taps are unrolled; those across always are."""
    return tiles.sums * tiles.of.conv.taps <= MOST_SPELT_OUT


class _Accesses:
    """What the lanes of a warp read and write at a time, of each setting."""

    def __init__(self, tiles: DirectTiles) -> None:
        self.tiles, self.of = tiles, tiles.of
        rows, columns = tiles.staged
        self.copied = _copied(tiles)
        conv = self.of.conv
        self.run = np.minimum(columns, conv.in_width) * (conv.group_in if self.of.read_last else 1)
        self.runs = np.minimum(rows, conv.in_height) * (1 if self.of.read_last else conv.group_in)

    @property
    def _lanes(self) -> tuple[Numbers, ...]:
        tiles = self.tiles
        lanes = np.minimum(np.arange(WARP)[None, :], tiles.threads[:, None] - 1)
        counts = {name: getattr(tiles, name)[:, None] for name in ("down", "across", "deep")}
        return replace(tiles, **counts).place(lanes)

    @property
    def read(self) -> tuple[Column, Column]:
        """Turns of all banks that a load of the image takes, and how many it would without
        conflicts."""
        tiles, (_, down, across) = self.tiles, self._lanes
        step = np.where(tiles.neighbours, tiles.columns, 1)[:, None]
        below = (tiles.rows * self.of.conv.strides[0] * tiles.line)[:, None]
        words = (down * below + across * step)[:, :, None]
        vector = np.minimum(np.arange(VECTOR), (tiles.vector - 1)[:, None, None])
        words = (words + vector).reshape(len(words), -1)
        return turns_of_banks(words), np.ceil(distinct(words) / _BANKS)

    @property
    def written(self) -> tuple[Column, Column]:
        """Turns of all banks in which a warp writes what it copied of the image and the filters."""
        tiles, of = self.tiles, self.of
        channels = of.conv.group_in if of.read_last else 1
        place, channel = np.divmod(np.arange(WARP), channels)
        outer, place = np.divmod(place[None, :], tiles.staged[1][:, None])
        column, phase = np.divmod(place, of.conv.strides[1])
        plane = (tiles.staged[0] * tiles.line)[:, None]
        words = outer * tiles.line[:, None] + phase * tiles.pitch[:, None] + column
        image = turns_of_banks(words + channel[None, :] * plane)
        if of.packed:
            return image, np.ones(len(image))
        lane = np.arange(WARP)[None, :]
        words = lane % of.weights * tiles.filter_pitch[:, None] + lane // of.weights
        return image, turns_of_banks(words)

    @property
    def loaded_sectors(self) -> Column:
        """Of a warp's load from memory, on average over the image and the filters."""
        tiles, (image, filters) = self.tiles, self.copied
        found = list[Column]()
        for lines in (tiles.image_lines[:2], tiles.filter_lines):
            beside = by_combination(_beside, *lines, tiles.threads)
            found.append(_sectors_anywhere(beside) * WARP / beside)
        return (image * found[0] + filters * found[1]) / (image + filters)

    @property
    def loaded_bytes(self) -> Column:
        """What a block reads from the second-level cache: whole sectors of runs of the image, and
        the filters."""
        image = self.runs * _sectors_anywhere(self.run) * _SECTOR_BYTES
        return image + _SINGLE_BYTES * float(self.of.weights) * self.tiles.tile[0]

    @property
    def stored(self) -> Column:
        """Sectors of a warp's store, on average over the places where lines of the result begin."""
        tiles, conv = self.tiles, self.of.conv
        if self.of.written_last:
            extent, lanes, apart = conv.out_channels, tiles.deep, VECTOR
        else:
            extent, lanes = conv.out_width, tiles.across
            apart = np.where(tiles.neighbours, tiles.columns, 1)
        beside = tiles.together * tiles.turned
        found = by_combination(partial(stored_sectors, extent, _SINGLE_BYTES), lanes, apart, beside)
        return found * WARP / (lanes * tiles.turned)

    @property
    def stored_bytes(self) -> Column:
        """What a block writes to the second-level cache."""
        tiles = self.tiles
        stores = tiles.sums * np.ceil(tiles.threads / WARP) / tiles.together
        return stores * self.stored * _SECTOR_BYTES

    @property
    def borders(self) -> Column:
        """Comparisons of an element of the image that is copied with the sides of the image beyond
        which blocks read."""
        tiles, conv = self.tiles, self.of.conv
        found = np.zeros(len(tiles.rows))
        sizes = (conv.in_height, conv.in_width)
        for axis, (before, size) in enumerate(zip(conv.padding[:2], sizes, strict=True)):
            covered = tiles.counts[3 + axis] * tiles.tile[1 + axis]
            found = found + (before > 0) + (self.of.span(axis, covered) - before > size)
        return found

    @property
    def uneven(self) -> Column:
        """Comparisons before results are written."""
        conv = self.of.conv
        extents = (conv.group_out, conv.out_height, conv.out_width)
        sides = zip(extents, self.tiles.tile, strict=True)
        return np.asarray(sum(1.0 * (extent % tile > 0) for extent, tile in sides))


def _sectors_anywhere(run: Any) -> Column:
    """Of so many elements side by side that may begin at any place of a sector."""
    return by_combination(partial(stored_sectors, 1, _SINGLE_BYTES), run, 1, 1)


def _demand(workload: Workload, tiles: DirectTiles, memory: _Accesses) -> Demand:
    conv, threads = tiles.of.conv, tiles.threads
    taps_across, turns = conv.kernel[1], conv.kernel[0] * conv.group_in
    (image, filters), (taken, ideal) = memory.copied, memory.read
    (of_image, of_filters), reads = memory.written, -(-tiles.channels // VECTOR)
    products = turns * taps_across * tiles.sums
    loops = np.where(spelt_out(tiles), conv.group_in, turns) * _LOOP_INSTRUCTIONS
    issued = products + turns * (tiles.loads + taps_across * reads) + loops
    issued = issued + _IMAGE_INSTRUCTIONS * image + _FILTER_INSTRUCTIONS * filters
    issued = issued + _INSTRUCTIONS_OF_A_THREAD
    exchanged = tiles.sums * np.log2(tiles.turned)
    issued = issued + _RESULT_INSTRUCTIONS * tiles.sums + EXCHANGE_INSTRUCTIONS * exchanged
    lines = turns * (tiles.loads * taken + taps_across * reads)
    lines = lines + image * of_image + filters * of_filters + exchanged / 2
    warps, count = np.ceil(threads / WARP), np.asarray(tiles.blocks, np.float64)
    shared = np.asarray(shared_bytes(tiles), np.float64)
    blocks = Blocks(
        count=count,
        threads=threads,
        registers=_registers(tiles),
        shared_bytes=shared,
        operations=2.0 * products * threads,
        instructions=warps * issued,
        shared_traffic_bytes=warps * lines * _LINE_BYTES,
        traffic_bytes=memory.loaded_bytes + memory.stored_bytes,
        steps=np.ceil(image / AT_ONCE) + np.ceil(filters / AT_ONCE) + _STEPS_OF_A_BARRIER,
        memory_bytes=float(workload.bytes),
    )
    return Demand(
        pieces=count,
        blocks=(blocks,),
        details={
            "elements_per_thread": tiles.sums,
            "loads_per_result": (image + filters) / tiles.sums,
            "waste": products * threads * count * 2.0 / conv.flop,
            "conflicts": taken / ideal,
            "coalesced": memory.loaded_sectors,
            "predicates": memory.borders,
            "edge_predicates": memory.uneven,
            "sectors_per_store": memory.stored,
            "shared_bytes": shared,
        },
    )


SPEC = DirectKernels()
