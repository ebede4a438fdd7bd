"""Convolutions by ARM's products of matrices: of singles with products of bfloat16, and of codes.

    data     [n, channels/4, rows, columns, 4] of bfloat16, /8 of codes: two pixels beside each
             other are a register as they lie; blocks of several words are read pixel by pixel
    weights  [out/bo, slot, bo, 4 or 8]: two channels of a slot are a register as they lie
    sums     of a tile of pixels and channels, two by two in a register

Few channels leave room in a word, which the tap beside them fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand, Numbers
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.conv2d_amx import AmxCodes, AmxConvolution, AmxHalves
from tilewright.kernels.conv2d_dots import FEW
from tilewright.kernels.convolution import Convolution
from tilewright.kernels.mmla import (
    CODE_UNIT,
    HALF_UNIT,
    LANES,
    WORD_BYTES,
    fits_registers,
    gain,
    pairs_tile,
)
from tilewright.kernels.ports import arriving_block, chunk_count, out_tiles, own_block, tile_sizes
from tilewright.kernels.register_tile import RegisterTile

_WIDEST, _HIGHEST = 16, 4


class MmlaConvolution(AmxConvolution):
    """What both have in common; any stride, padding, dilation, and groups of whole words."""

    line_bytes, word_bytes, granule = WORD_BYTES, WORD_BYTES, LANES
    dtype: str

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Sums down, across and beside each other, and the order of the parallel axes."""
        conv = self.operands(workload)
        wide = conv.group_out > LANES if conv.groups == 1 else conv.group_out % (2 * LANES) == 0
        lanes = own_block(forms[-1]) or (2 * LANES if wide else LANES)
        return (
            Knob(name="lanes", values=() if lanes % LANES else (lanes,)),
            Knob(name="tile_width", values=tile_sizes(conv.out_width, largest=_WIDEST)),
            Knob(name="tile_height", values=tile_sizes(conv.out_height, largest=_HIGHEST)),
            Knob(
                name="tile_out",
                values=out_tiles([chunk_count(conv.group_out, lanes)]),
                kind="split",
            ),
            Knob(name="order", values=("channels", "rows")),
        )

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """Pairs of pixels and of channels."""
        return pairs_tile(
            _pixels(settings), column(settings, "lanes") * column(settings, "tile_out")
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There are registers for so many sums."""
        fits = fits_registers(self.tile(settings, LANES), target)
        return fits & self.whole_blocks(workload, forms)

    def input_block(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Channels that lie together: as they arrive where those are whole words and nothing else
        makes a copy, else a word, or as few as there are."""
        block, copied = arriving_block(forms, conv.data), conv.padded
        if self.dtype == HALF and block:
            copied |= forms[conv.data].dtype != HALF
        if block and block % self.line == conv.group_in % block == 0 and not copied:
            return block
        taps = conv.kernel[1] > 1 == conv.dilation[1]
        return FEW if conv.in_channels <= FEW < self.line and taps else self.line

    def folded(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Two taps of few channels fill a word."""
        return max(1, self.line // self.input_block(conv, forms, settings))

    def overruns(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Data is copied where tiles go beyond it."""
        return False

    def together(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether the words of two pixels beside each other are a register as they lie."""
        return conv.strides[1] == 1 and self.input_block(conv, forms, settings) == self.line

    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products."""
        return np.full(len(settings), float(target.operations_per_cycle(self.dtype, tiles=False)))

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As by dot products, faster as far as words and registers are full."""
        found = super(AmxConvolution, self).demand(workload, target, resources, forms, settings)
        conv, some, tile = self.operands(workload), settings[0], self.tile(settings, LANES)
        apart = np.array([not self.together(conv, forms, s) for s in settings])
        faster = gain(target, self.dtype, tile, _pixels(settings), apart)
        channels = self.input_block(conv, forms, some) * self.folded(conv, forms, some)
        full = conv.summed / (self._steps(conv, forms, some) * channels)
        return replace(found, per_cycle=found.per_cycle * faster * full)


def _pixels(settings: Sequence[Settings]) -> Floats:
    return column(settings, "tile_height") * column(settings, "tile_width")


class _OfHalves(MmlaConvolution, AmxHalves):
    """Of singles with products of bfloat16."""

    name = "conv2d_mmla"
    unit, dtype = HALF_UNIT, HALF


class _OfCodes(MmlaConvolution, AmxCodes):
    """Of codes, signed or not, with signed weights: exact."""

    name = "conv2d_mmla_int8"
    unit, dtype = CODE_UNIT, "int8"


OF_HALVES, OF_CODES = SPECS = (_OfHalves(), _OfCodes())
"""Both specs."""
