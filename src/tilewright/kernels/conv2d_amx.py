"""Convolutions in tile registers: of singles with products of bfloat16, and of codes.

    data     [n, channels/32, rows, columns, 32] of bfloat16, /64 of codes: a pixel's block is a
             line of a register; copied into such where it lies otherwise or needs a border
    weights  [out/bo, slot, bo, 2 or 4], as of the convolutions by dot products: 16 slots are a
             register of the right matrix as they lie
    sums     up to four registers of up to 16 pixels of a row and 16 channels

Few channels leave room in a line, which taps beside each other fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work, least_work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import (
    CODE_UNIT,
    HALF_UNIT,
    LINE_BYTES,
    ROWS,
    SUMS,
    WORD_BYTES,
    has_unit,
    pixel_counts,
    product_cycles,
)
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import Bools, Floats, chosen, column
from tilewright.kernels.conv2d_bfloat16 import Bfloat16Convolution
from tilewright.kernels.conv2d_dots import DotConvolution, widened
from tilewright.kernels.conv2d_int8 import Int8Convolution
from tilewright.kernels.convolution import (
    Convolution,
    convolution,
    plane_tiles,
    reach,
    whole_tiles,
)
from tilewright.kernels.ports import (
    Ports,
    arriving_block,
    chunk_count,
    own_block,
    tile_sizes,
)

_SMALLEST, _FEW = 4, 8
"""Channels of the smallest block, a word of codes or two of halves, and of the largest one whose
taps are multiplied together."""


_KEPT = 0.6
"""The share of the second cache that what is swept over may take."""


class AmxConvolution(DotConvolution):
    """What both have in common; any stride, padding, dilation, and groups of whole registers.

    `unit` multiplies, of data a line of `line_bytes`, values of `width` bytes, for at least
    `granule` channels. The class serves other products of matrices, too: see `conv2d_mmla`.
    """

    unit: str
    width: int
    line_bytes, word_bytes, granule = LINE_BYTES, WORD_BYTES, ROWS

    @property
    def line(self) -> int:
        """Values of a whole line of a register."""
        return self.line_bytes // self.width

    def terms(self, settings: Settings) -> int:
        """Values of a word, which an instruction multiplies for each sum at a step."""
        return self.word_bytes // self.width

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU with such tiles, with channels that fill registers."""
        if not (has_unit(target, self.unit) and super().applies(workload, target, resources)):
            return False
        conv = convolution(workload)
        least = min(self.line, ROWS)
        whole = conv.group_out % self.granule == 0 and conv.group_in % least == 0
        return whole or (conv.groups == 1 and conv.out_channels > 1)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """As of other convolutions, those with whole lines first."""
        offered = super().port_forms(workload, target, resources)
        lines = {ports: sum(own_block(form) == self.line for form in ports) for ports in offered}
        return tuple(sorted(offered, key=lambda ports: -lines[ports]))

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Registers of sums, and the order of the parallel axes."""
        conv, block = convolution(workload), own_block(forms[-1])
        wide = 2 * ROWS if conv.group_out % (2 * ROWS) in (0, *range(ROWS + 1, 2 * ROWS)) else ROWS
        lanes = block or wide
        most = chunk_count(conv.group_out, lanes)
        out = tuple(tile for tile in range(1, SUMS + 1) if most % tile == 0)
        return (
            Knob(name="lanes", values=() if lanes % ROWS else (lanes,)),
            Knob(name="tile_width", values=pixel_counts(conv.out_width)),
            Knob(name="tile_height", values=tile_sizes(conv.out_height, largest=SUMS)),
            Knob(name="tile_out", values=out, kind="split"),
            Knob(name="order", values=("channels", "rows")),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There are registers for so many sums: below each other are rows, or parts of one."""
        across = column(settings, "tile_out") * column(settings, "lanes") / ROWS
        parts, rows = (
            np.ceil(column(settings, "tile_width") / ROWS),
            column(settings, "tile_height"),
        )
        fits = (across * parts * rows <= SUMS) & ((parts == 1) | (rows == 1))
        return fits & self.whole_blocks(workload, forms)

    def input_block(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Channels that lie together: as they arrive where that fills half a line or a whole one,
        else a whole line, or as few as there are."""
        block, line = arriving_block(forms, conv.data), self.line
        if block in (line, line // 2) and conv.group_in % block == 0:
            return block
        sizes = [_SMALLEST * 2**power for power in range(8) if _SMALLEST * 2**power <= line]
        if conv.groups > 1:
            return max(size for size in sizes if conv.group_in % size == 0)
        return next((size for size in sizes if size >= conv.group_in), line)

    def folded(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """As many taps of few channels as a line has room for, or all that there are."""
        block, (_, width) = self.input_block(conv, forms, settings), conv.kernel
        if block > _FEW or conv.dilation[1] > 1 or width == 1:
            return 1
        return min(self.line // block, 2 ** (width - 1).bit_length())

    def overruns(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Where the last tile of a row goes beyond it, and rows are read as they are, one by one:
        their last chunk is then copied for that tile alone."""
        alone = conv.kernel == conv.strides == (1, 1) and conv.out_height == 1
        in_turn = alone and settings["order"] == "channels"
        return in_turn and _beyond(conv, settings) and not super().copied(conv, forms, settings)

    def copied(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """For a border, for blocks, for pixels beyond the last one of a row, for taps that are
        multiplied together; and to round."""
        beyond = _beyond(conv, settings) and not self.overruns(conv, forms, settings)
        together = self.folded(conv, forms, settings) > 1
        return beyond or together or super().copied(conv, forms, settings)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Instructions of whole registers, what becomes of sums, the copy, the bytes."""
        conv = convolution(workload)
        lanes, out = column(settings, "lanes"), column(settings, "tile_out")
        parts = np.ceil(column(settings, "tile_width") / ROWS)
        down, rows = column(settings, "tile_height") * parts, column(settings, "tile_width") / parts
        tiles_h, tiles_w, waste = plane_tiles(conv, settings)
        steps = np.array([self._steps(conv, forms, s) for s in settings])
        chunks = conv.groups * np.ceil(conv.group_out / lanes)
        registers = tiles_h * tiles_w * down * conv.batch * chunks * lanes / ROWS
        instructions, sums = registers * steps, registers * ROWS * rows
        each = 2.0 * ROWS * ROWS * self.line
        moves = np.array([self.copied(conv, forms, s) for s in settings])
        read = workload.types[conv.data].elements * float(self.width)
        copy_bytes = np.where(moves, 2.0 * read, 0.0)
        weights = workload.types[conv.weight]
        saved = weights.bytes - weights.elements * self.width
        loads = 1.0 / down + ROWS / (out * lanes)
        cycles = product_cycles(instructions, loads, sums)
        again = self._swept_again(conv, target, settings, (read, weights.elements * self.width))
        return Demand(
            pieces=conv.batch * tiles_h * chunks / out,
            operations=instructions * each,
            per_cycle=instructions * each / cycles,
            traffic={"L3": workload.bytes - saved + copy_bytes + again},
            launches=1.0 + moves,
            details={
                "accumulators": down * out * lanes / ROWS,
                "loads_per_multiply_add": loads,
                "waste": waste * ROWS / np.maximum(1.0, rows),
                "weight_tile_bytes": conv.summed * out * lanes,
            },
        )

    def _swept_again(
        self,
        conv: Convolution,
        target: Target,
        settings: Sequence[Settings],
        sizes: tuple[float, float],
    ) -> Floats:
        """Bytes of data and of weights that come again: each few channels sweep over an image, or
        each few rows over the weights, and the second cache keeps only so much."""
        tiles_h, tiles_w, _ = plane_tiles(conv, settings)
        by_rows = chosen(settings, "order", "rows")
        across = column(settings, "tile_out") * column(settings, "lanes")
        pixels = tiles_h * (tiles_w if conv.out_height == 1 else 1.0)
        sweeps = (
            np.where(by_rows, 1.0, np.ceil(conv.group_out / across)),
            conv.batch * np.where(by_rows, pixels, 1.0),
        )
        rows_read = min(1.0, conv.kernel[0] / conv.strides[0])
        of_image = sizes[0] * rows_read / (conv.batch * conv.groups)
        kept = _KEPT * target.cache_bytes(2)
        data = (sweeps[0] - 1.0) * (sizes[0] * rows_read if of_image > kept else 0.0)
        return data + (sweeps[1] - 1.0) * (sizes[1] if sizes[1] > kept else 0.0)

    def _steps(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Products that a register of sums adds up."""
        fold = self.folded(conv, forms, settings)
        chunks = -(-conv.group_in // self.input_block(conv, forms, settings))
        return chunks * widened(conv, fold).taps // fold

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        return DotConvolution.packed_shapes(self, workload, candidate)


class AmxHalves(AmxConvolution, Bfloat16Convolution):
    """Of singles with products of bfloat16."""

    name = "conv2d_amx"
    unit, width = HALF_UNIT, 2

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(super().least_work(workload, target), speed=rate)


class AmxCodes(AmxConvolution, Int8Convolution):
    """Of codes, signed or not, with signed weights: exact."""

    name = "conv2d_amx_int8"
    unit, width = CODE_UNIT, 1

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle("int8") / target.operations_per_cycle(MEASURED)
        return replace(least_work(workload, target), speed=rate)

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, terms]; nothing is offset."""
        conv = convolution(workload)
        packed = self.in_slots(workload, candidate, constants[conv.weight], np.int8)
        return {**constants, conv.weight: np.ascontiguousarray(packed)}


def _beyond(conv: Convolution, settings: Settings) -> bool:
    rows, columns = reach(conv, whole_tiles(conv, settings))
    return rows > conv.in_height or columns > conv.in_width


OF_HALVES, OF_CODES = SPECS = (AmxHalves(), AmxCodes())
"""Both specs."""
