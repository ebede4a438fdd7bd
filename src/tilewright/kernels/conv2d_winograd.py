"""The Winograd convolutions; each is one size of tile.

Lavin and Gray 2016 (Fast Algorithms for Convolutional Neural Networks). Tiles of the input are
transformed, multiplied with transformed weights as one matrix product over the channels per
position of the tile, and transformed back to tiles of the output. The weights are transformed
ahead, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work, least_work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16, Knob, ToldAsColumns, Workspaces
from tilewright.kernels.columns import Bools, Floats, Numbers, by_type, chosen, column
from tilewright.kernels.convolution import (
    Convolution,
    Convolutions,
    TiledConvolution,
    convolution,
    convolutions,
)
from tilewright.kernels.ports import (
    Widening,
    chunk_count,
    dividing_block,
    lane_counts,
    out_tiles,
    tile_sizes,
    whole_chunks,
)
from tilewright.kernels.register_tile import tearing
from tilewright.kernels.winograd_transforms import Transform, double, transform

Pair = tuple[int, int]
_STAGES = 4
_AMONG_FLOAT16 = 24.0
"""Cycles of transforms for each vector of transformed input, where data lies in float16 and what
competes multiplies it twice as fast (Xeon of the fourth generation)."""
FROM_L3 = 0.8
"""Of what lies between the stages, so much is still in nearer caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The transforms down the columns and along the rows."""

    vertical: Transform
    horizontal: Transform

    @property
    def positions(self) -> int:
        """Multiplications of a tile, per pair of channels."""
        return self.vertical.positions * self.horizontal.positions

    def tiles(self, conv: Convolution) -> Pair:
        """Output tiles down and across."""
        down, across = self.vertical.outputs, self.horizontal.outputs
        return -(-conv.out_height // down), -(-conv.out_width // across)


def strip_sizes(
    down: int, weight_bytes: int, target: Target, resources: Resources
) -> tuple[int, ...]:
    """Values of the knob `strip`: 0, and rows of tiles that the threads share evenly.

    In strips all stages of some rows of tiles follow each other on one core, so that what lies
    between them stays in its caches; but each strip reads all weights, which must not be many.
    With 0 every stage goes over the whole plane first.
    """
    if weight_bytes > 2 * target.cache_bytes(2):
        return (0,)
    sizes = [size for size in range(1, down // 2 + 1) if down % size == 0]
    return (0, *(s for s in sizes if _even(down // s, resources.threads)))


def _even(pieces: int, threads: int) -> bool:
    """Whether threads that share pieces of work idle for a tenth of the time at most."""
    return pieces >= 0.9 * threads * -(-pieces // threads)


def _sees_data(conv: Convolution) -> bool:
    """Whether no window lies in the padding alone beside one that does not.

    The former's result is zero, but it would get rounding errors of the latter's tile.
    """
    top, left, bottom, right = conv.padding
    rows, columns = conv.kernel
    return (rows == 1 or max(top, bottom) < rows) and (columns == 1 or max(left, right) < columns)


def _tiles_together(conv: Convolution, tiles: Pair, strip: int) -> int:
    """Tiles that a product goes over: those of a strip, or all."""
    down, across = tiles
    return strip * across if strip else conv.batch * down * across


class WinogradConvolution(Widening, TiledConvolution, ToldAsColumns):
    """Spec of a Winograd convolution: unit stride and dilation, one group, any padding.

    `outputs` are the rows and columns of an output tile by kernel; others than its kernels are
    left to other implementations. `bound` is the error bound by kernel.
    """

    tile_rows = ("tile_rows",)
    factors = "float32"
    """The element type in which factors of products lie in memory."""
    passes = (3.0, 0.5, 1.5)
    """How often what lies between the stages moves as if from the third cache: of the whole plane,
    of strips that the second cache holds, of larger ones."""
    tails = True
    """Whether the last register tile may reach beyond the last tile of the plane."""

    def __init__(self, name: str, *, outputs: Mapping[Pair, Pair], bound: Mapping[Pair, float]):
        self.name = name
        self.outputs = dict(outputs)
        self.bound = dict(bound)

    def form(self, conv: Convolution) -> Transforms:
        """The transforms for a convolution. Raises InternalError for a kernel it has none for."""
        if conv.kernel not in self.outputs:
            raise InternalError(f"{self.name} has no transforms for kernels of {conv.kernel}")
        ways = zip(self.outputs[conv.kernel], conv.kernel, strict=True)
        vertical, horizontal = (self.along_one_axis(*way) for way in ways)
        return Transforms(vertical=vertical, horizontal=horizontal)

    def along_one_axis(self, outputs: int, taps: int) -> Transform:
        """The transform of a tile along one axis."""
        return transform(outputs, taps)

    def divisor(self, conv: Convolution) -> int:
        """What the transforms multiply results by; 1 where they do not."""
        return 1

    def run(self, conv: Convolution) -> int:
        """Products that are added up in a half type; 0 where all are in single precision."""
        return 0

    @property
    def factor_bytes(self) -> int:
        """Of one factor in memory."""
        return element_type(self.factors).bytes

    def transform_cycles(self, forms: tuple[Form, ...]) -> float:
        """For each vector of transformed input: both transforms, and the output's share; 0 where
        products hide them."""
        return _AMONG_FLOAT16 if any(form.dtype == FLOAT16 for form in forms) else 0.0

    def register(self, dtype: str, target: Target) -> int:
        """Sums in a register, of a convolution that is computed in an element type."""
        return target.lanes(dtype)

    def registers(self, conv: Convolutions, target: Target) -> Floats:
        """Sums in a register, by convolution."""
        return by_type(conv.computed_in, lambda dtype: self.register(dtype, target))

    def input_lanes(self, conv: Convolution, forms: tuple[Form, ...], target: Target) -> int:
        """Channel block of the transformed input: the block the data comes in, where it divides."""
        whole = dividing_block(forms, conv.data, conv.in_channels)
        return whole or gcd(conv.in_channels, target.lanes(conv.computed_in))

    def peak(self, conv: Convolutions, target: Target) -> Floats:
        """Multiplications and additions in a cycle, by convolution."""
        return by_type(conv.computed_in, target.operations_per_cycle)

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Enough channels that the products outweigh the transforms."""
        conv = convolution(workload)
        if conv.kernel not in self.outputs:
            return False
        down, across = self.outputs[conv.kernel]
        register = self.register(conv.computed_in, target)
        return (
            super().applies(workload, target, resources)
            and conv.strides == (1, 1)
            and conv.dilation == (1, 1)
            and conv.groups == 1
            and conv.in_channels >= 2 * register
            and conv.out_channels >= register
            and conv.out_height >= down
            and conv.out_width >= across
            and _sees_data(conv)
        )

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """The register tile of the products (input tiles × output channel chunks), and strips."""
        conv = convolution(workload)
        register = self.register(conv.computed_in, target)
        lanes = lane_counts(conv.out_channels, forms[-1], register)
        chunks = [chunk_count(conv.out_channels, count) for count in lanes]
        form = self.form(conv)
        weight_bytes = self.factor_bytes * form.positions * conv.in_channels * conv.out_channels
        strips = strip_sizes(form.tiles(conv)[0], weight_bytes, target, resources)
        counts = {_tiles_together(conv, form.tiles(conv), strip) for strip in strips}
        rows = {size for count in counts for size in self._row_tiles(count)}
        return (
            Knob(name="lanes", values=lanes),
            Knob(name="tile_rows", values=tuple(sorted(rows))),
            Knob(name="tile_out", values=out_tiles(chunks)),
            Knob(name="order", values=("channels", "tiles")),
            Knob(name="strip", values=strips),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """The tile fits the registers, divides the chunks and wastes little of a strip."""
        conv = convolution(workload)
        tile = self.tile(settings, self.register(conv.computed_in, target))
        chunks = np.ceil(conv.out_channels / column(settings, "lanes"))
        accepted = tile.fits(target.vector_registers)
        accepted &= chunks % column(settings, "tile_out") == 0
        strips, thrifty = column(settings, "strip"), np.zeros(len(settings), dtype=np.bool_)
        for strip in np.unique(strips):
            together = _tiles_together(conv, self.form(conv).tiles(conv), int(strip))
            thrifty |= (strips == strip) & np.isin(tile.rows, self._row_tiles(together))
        return accepted & thrifty

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Products as in the direct form, transforms by the bytes they move: from stage to stage
        through memory, in strips through the caches."""
        conv = convolutions(workloads)
        down, across, positions = self._tiles(conv)
        count = conv.batch * down * across
        names = ("lanes", "tile_rows", "tile_out", "strip")
        lanes, rows, out, strip = (column(settings, name) for name in names)
        together = np.where(strip > 0, strip * across, count)
        register = self.registers(conv, target)
        vectors = np.ceil(lanes / register)
        tile = self.tile(settings, register)
        waste = np.ceil(together / rows) * rows / together
        chunks = np.ceil(conv.out_channels / lanes)
        fill = conv.out_channels / (chunks * vectors * register)
        flop = 2.0 * positions * count * conv.in_channels * conv.out_channels
        weight_bytes = self.factor_bytes * flop / (2.0 * count)
        pair_bytes = self.factor_bytes * conv.in_channels + 4.0 * conv.out_channels
        between = positions * count * pair_bytes
        by_tiles = chosen(settings, "order", "tiles")
        again = np.where(by_tiles, 0.3 * weight_bytes * np.ceil(together / rows) / 8, 0.0)
        pieces = np.where(strip > 0, conv.batch * down / np.maximum(strip, 1.0), 0.0)
        own = between * together / count
        near = (strip > 0) & (own + weight_bytes / positions <= target.cache_bytes(2))
        whole, held, larger = self.passes
        passes = np.where(strip == 0, whole, np.where(near, held, larger))
        weights = weight_bytes * (1.0 + 0.3 * np.maximum(pieces - 1.0, 0.0) / resources.threads)
        moved = weights + passes * between + again + conv.moved_bytes
        inputs = positions * count * conv.in_channels / by_type(conv.computed_in, target.lanes)
        return Demand(
            cycles=self.transform_cycles(forms) * inputs,
            pieces=np.where(strip > 0, pieces, positions * chunks / out),
            even=True,
            operations=flop * waste,
            per_cycle=self.peak(conv, target) * fill / (tile.slowdown * tearing(lanes, register)),
            traffic={"L3": FROM_L3 * moved},
            launches=_STAGES,
            details=tile.details(
                waste, workspace_bytes=np.where(strip > 0, resources.threads * own, between)
            ),
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """The products of all tiles, and the transformed weights; transforms come on top."""
        conv, whole = convolution(workload), least_work(workload, target)
        form = self.form(conv)
        down, across = form.tiles(conv)
        products = form.positions * conv.in_channels * conv.out_channels
        more_bytes = self.factor_bytes * products - workload.types[conv.weight].bytes
        return replace(
            whole,
            flop=2 * conv.batch * down * across * products,
            memory_bytes=whole.memory_bytes + more_bytes,
        )

    def _row_tiles(self, together: int) -> tuple[int, ...]:
        """Rows of a register tile, for products that go over so many tiles."""
        return tile_sizes(together, largest=28, tails=self.tails)

    def _tiles(self, conv: Convolutions) -> tuple[Numbers, Numbers, Numbers]:
        """Output tiles down and across, and multiplications of a tile, as `Transforms` has them
        of one convolution: F(m, r) takes m + r - 1."""
        rows, columns = conv.kernel
        sizes = np.zeros((2, len(rows)), dtype=np.int64)
        for kernel, outputs in self.outputs.items():
            alike = (rows == kernel[0]) & (columns == kernel[1])
            sizes[:, alike] = np.array(outputs)[:, None]
        high, wide = sizes
        positions = (high + rows - 1) * (wide + columns - 1)
        return -(-conv.out_height // high), -(-conv.out_width // wide), positions

    def error_bound(self, workload: Workload) -> float:
        """The transforms enlarge and cancel values.

        It holds for inputs of like magnitude within a tile; channels may differ. A single huge
        value spoils all outputs of its tiles: for them the bound is relative to the sum over
        channels of (sum |w| of the channel) times (largest |x| of the channel in the tile).
        """
        return self.bound[convolution(workload).kernel]

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """The transformed input and the products: of the whole plane, or of a strip."""
        conv, settings = convolution(workload), dict(candidate.settings)
        form, strip, lanes = self.form(conv), int(settings["strip"]), int(settings["lanes"])
        tiles = _tiles_together(conv, form.tiles(conv), strip)
        sums = chunk_count(conv.out_channels, lanes) * lanes
        channel_bytes = (self.factor_bytes * conv.in_channels, 4 * sums)
        both = tuple(form.positions * tiles * count for count in channel_bytes)
        return Workspaces(own=both) if strip else Workspaces(shared=both)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[positions, ⌈O/bo⌉, I, bo]."""
        conv = convolution(workload)
        bo = int(candidate.setting("lanes"))
        chunks = chunk_count(conv.out_channels, bo)
        return {conv.weight: (self.form(conv).positions, chunks, conv.in_channels, bo)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ, as [positions, ⌈O/bo⌉, I, bo], zeros beyond the last channel."""
        conv = convolution(workload)
        form = self.form(conv)
        bo = int(candidate.setting("lanes"))
        weights = whole_chunks(constants[conv.weight], bo).astype(np.float64)
        transformed = double(form.vertical.weight) @ weights @ double(form.horizontal.weight).T
        blocks = transformed.reshape(-1, bo, conv.in_channels, form.positions)
        packed = np.ascontiguousarray(blocks.transpose(3, 0, 2, 1), dtype=np.float32)
        return {**constants, conv.weight: packed}


TILES_OF_4 = WinogradConvolution("conv2d_winograd", outputs={(3, 3): (4, 4)}, bound={(3, 3): 1e-5})
"""F(4×4, 3×3): 36 multiplications where the direct form takes 144."""

TILES_OF_2 = WinogradConvolution(
    "conv2d_winograd2",
    outputs={(3, 3): (2, 2), (5, 5): (2, 2)},
    bound={(3, 3): 3e-6, (5, 5): 8e-6},
)
"""For small planes and for 5×5. F(2×2, 3×3) takes 16 multiplications where the direct form takes
36, with 1.8 times the weights; F(2×2, 5×5) takes 36 instead of 100, with 1.4 times the weights."""

ALONG_ONE_AXIS = WinogradConvolution(
    "conv2d_winograd1d",
    outputs={(1, 3): (1, 4), (3, 1): (4, 1), (1, 7): (1, 4), (7, 1): (4, 1)},
    bound=dict.fromkeys(((1, 3), (3, 1), (1, 7), (7, 1)), 1e-5),
)
"""For kernels of one row or one column. F(4, 3) takes 6 multiplications where the direct form takes
12, with twice the weights; F(4, 7) takes 10 instead of 28, with 1.4 times the weights."""

SPECS = (TILES_OF_4, TILES_OF_2, ALONG_ONE_AXIS)
