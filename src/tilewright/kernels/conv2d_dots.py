"""Convolutions by dot products: instructions that add several products to each lane at once.

    vpdpbusd, sdot, usdot   lane of 32 bits += four bytes times four bytes        `conv2d_int8`
    vdpbf16ps, bfdot        single in a lane += two bfloat16 times two bfloat16   `conv2d_bfloat16`

The first ones are x86's, the others ARM's. The loops are those of `conv2d_direct`. Weights lie as
[out/bo, slot, bo, terms]: a slot for every `terms` neighbouring input channels of every tap. Data
that does not lie so, or that has a border of zeros, is copied first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import ComputeUnit, Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.columns import Bools, Floats, chosen, column
from tilewright.kernels.convolution import Convolution, TiledConvolution, convolution, plane_tiles
from tilewright.kernels.ports import (
    arriving_block,
    chunk_count,
    output_block,
    tile_sizes,
    whole_chunks,
)

_LARGEST_TILE = 32
FEW = 4
_BLOCK = 16


_BY_REGISTERS = frozenset({"dotprod", "i8mm", "bf16"})
"""Units of ARM, whose registers are narrow: several of them are one dot product of more lanes."""


def dot_units(target: Target, names: frozenset[str]) -> tuple[ComputeUnit, ...]:
    """The units of a target that compute dot products, of those with these names; none on ARM of 32
    bits, for which LLVM rounds no vector to bfloat16."""
    narrow = target.architecture.startswith("arm")
    return tuple(u for u in target.units if u.name in names and u.granule[0] == 1 and not narrow)


def lanes_of(units: Sequence[ComputeUnit]) -> tuple[int, ...]:
    """Lanes of 32 bits for which there are dot products."""
    widest = max((unit.granule[1] for unit in units), default=0)
    return tuple(lanes for lanes in (16, 8, 4) if _by_registers(units) or lanes <= widest)


def _by_registers(units: Sequence[ComputeUnit]) -> bool:
    return any(unit.name in _BY_REGISTERS for unit in units)


class DotConvolution(TiledConvolution):
    """What specs of convolutions by dot products have in common; any stride, padding, dilation and
    groups."""

    @abstractmethod
    def terms(self, settings: Settings) -> int:
        """Products that are added to a lane at once; 1 where there is no such instruction."""

    @abstractmethod
    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """Operations per cycle and core of full registers."""

    def folded(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Taps beside each other that are multiplied together, with all channels of each."""
        return 1

    def overruns(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether what multiplies is given pixels beyond the last one, and takes care of it."""
        return False

    def input_block(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Channels of the input that lie together when the loops read it."""
        block, terms = arriving_block(forms, conv.data), self.terms(settings)
        if block and conv.group_in % block == 0 and block % terms == 0:
            return block
        if terms == 1:
            return 1 if conv.group_in > FEW else conv.group_in
        return _BLOCK if conv.group_in % _BLOCK == 0 else FEW

    def copied(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether the input is copied first: for its border, or into blocks that dot products
        read."""
        moved = arriving_block(forms, conv.data) != self.input_block(conv, forms, settings)
        return conv.padded or (self.terms(settings) > 1 and moved)

    def tile_knobs(self, conv: Convolution, chunks: int) -> tuple[Knob, ...]:
        """The register tile, and the order of the parallel axes."""
        wide = tile_sizes(conv.out_width, largest=_LARGEST_TILE)
        high = tile_sizes(conv.out_height, largest=8)
        out = tuple(tile for tile in (1, 2, 3, 4) if chunks % tile == 0)
        return (
            Knob(name="tile_width", values=wide, kind="split"),
            Knob(name="tile_height", values=high, kind="split"),
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
        """The tile, the weights and an input beside it fit the registers, and it is worth it.

        For ARM LLVM spells out taps and slots, and loads the inputs of a whole tile ahead.
        """
        tile = self.tile(settings, target.lanes(workload.computed_in))
        small = chosen(settings, "tile_height", 1) | (column(settings, "tile_width") <= _BLOCK)
        # one register more than in single precision: the broadcast input is never an operand
        fits = tile.fits(target.vector_registers - 1)
        if _by_registers(target.units):
            ahead = tile.fits_beside(target.vector_registers, kept=tile.rows)
            fits &= ahead | np.array([self.terms(s) == 1 for s in settings], dtype=np.bool_)
        return fits & self.whole_blocks(workload, forms) & small

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, bytes of all operands and of
        a copied input."""
        conv = convolution(workload)
        lanes, out = column(settings, "lanes"), column(settings, "tile_out")
        moves = np.array([self.copied(conv, forms, s) for s in settings])
        tiles_h, tiles_w, waste = plane_tiles(conv, settings)
        pieces = conv.batch * tiles_h * conv.out_channels / lanes / out
        register = target.lanes(conv.computed_in)
        tile = self.tile(settings, register)
        fill = lanes / (np.ceil(lanes / register) * register)
        copy_bytes = np.where(moves, 2.0 * workload.types[conv.data].bytes, 0.0)
        return Demand(
            pieces=pieces * (tiles_w if conv.out_height == 1 else 1.0),
            operations=conv.flop * waste,
            per_cycle=self.per_cycle(conv, target, settings) * fill / tile.slowdown,
            traffic={"L3": workload.bytes + copy_bytes},
            launches=1.0 + moves,
            details=tile.details(waste, weight_tile_bytes=conv.summed * out * lanes),
        )

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv, settings = convolution(workload), dict(candidate.settings)
        block, terms = self.input_block(conv, candidate.forms, settings), self.terms(settings)
        lanes = output_block(candidate.forms, settings)
        taps = widened(conv, self.folded(conv, candidate.forms, settings)).taps
        slots = taps * -(-conv.group_in // block) * block // terms
        return {
            conv.weight: (chunk_count(conv.out_channels, lanes, conv.groups), slots, lanes, terms)
        }

    def in_slots(
        self, workload: Workload, candidate: Candidate, weights: Array, dtype: npt.DTypeLike
    ) -> Array:
        """[O, I, kh, kw] → [O/bo, slots, bo, terms] of a type; slots by input chunk, tap, lanes of
        it; a slot may hold those of several taps. What fills chunks and taps up is zero."""
        conv, settings = convolution(workload), dict(candidate.settings)
        block, terms = self.input_block(conv, candidate.forms, settings), self.terms(settings)
        lanes = output_block(candidate.forms, settings)
        kernel = widened(conv, self.folded(conv, candidate.forms, settings)).kernel
        weights = whole_chunks(weights, lanes, conv.groups)
        chunks, inside = len(weights) // lanes, -(-conv.group_in // block)
        whole: Any = np.zeros((len(weights), inside * block, *kernel), dtype)
        whole[:, : conv.group_in, :, : conv.kernel[1]] = weights
        split = whole.reshape(chunks, lanes, inside, block, *kernel).transpose(0, 2, 4, 5, 3, 1)
        return split.reshape(chunks, -1, terms, lanes).swapaxes(2, 3)


def widened(conv: Convolution, folded: int) -> Convolution:
    """The convolution with as many more columns of weights, zeros, as fill up the `folded` ones."""
    height, width = conv.kernel
    return replace(conv, kernel=(height, -(-width // folded) * folded))
