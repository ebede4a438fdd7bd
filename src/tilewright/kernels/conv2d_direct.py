"""Direct convolution on channel-blocked tensors.

Weights are repacked to [out/bo, in/bi, kh, kw, bi, bo], bo lanes of output channels innermost and
the axes between in the order of the reduction's loops, so that they are read as one stream. A
register tile of `tile_out` channel chunks × `tile_height` rows × `tile_width` columns accumulates
over all inputs; one input value is broadcast against bo lanes of weights. The form follows
Georganas et al. 2018 (Anatomy of High-Performance Deep Learning Convolutions on SIMD).

Values of knobs are chosen sparingly; docs/reference/knobs.md gives the reason for each knob and the
size of the space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tilewright.core.forms import CHANNELS_LAST, Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Column, Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import ToldAsColumns, Workspaces
from tilewright.kernels.columns import Bools, Numbers, by_type, chosen, column
from tilewright.kernels.convolution import (
    Convolution,
    Convolutions,
    TiledConvolution,
    convolution,
    convolutions,
    plane_tiles,
    reach,
    whole_tiles,
)
from tilewright.kernels.knobs import Knob, choice, order, split
from tilewright.kernels.ports import (
    chunk_count,
    lane_counts,
    out_tiles,
    output_block,
    own_block,
    whole_chunks,
)
from tilewright.kernels.register_tile import RegisterTile, tearing

REDUCTION: tuple[str, ...] = ("chunk", "ky", "kx", "lane")
UNROLLED_LANES = 4
_LARGEST_WIDTH = 32
_LARGEST_HEIGHT = 8
_LARGEST_HEIGHT_WIDE = 4
_WIDE = 16
_FEW_PIECES = 8
_OF_A_LINE = 16
"""Channels, where all are innermost, that are walked in the order of memory: a line of a cache."""
_FEW_CHANNELS = 4
_WIDEST_OF_SEVERAL_ROWS = 16
_TAPS_INSIDE = "chunk,ky,lane,kx"
_CHUNKS_INSIDE = "ky,kx,chunk,lane"
_WEIGHTS_AHEAD = 0.1
"""Of weights that the second cache holds: most of it is hidden, as they are fetched ahead."""
_STRIDED, _LARGE = 4.0, 4.0
_CLAMPED, _ADDRESSES = 1.2, 12
"""Where the column of each of more loads than so many is held within the input, as the last tile
reaches beyond it."""
# time against the plain way, seen in steps of a few hundredths on one machine with AVX-512
_LANES_SPELLED_OUT = 0.95
_TAPS_SHARE_INPUTS = 0.98
_TAPS_SPILL = 1.5
_LESS_USUAL = 1.03


def reduction(conv: Convolution, settings: Settings) -> dict[str, int]:
    """Steps of each loop of the reduction, outermost first."""
    block = int(settings["in_block"])
    steps = dict(zip(REDUCTION, (conv.group_in // block, *conv.kernel, block), strict=True))
    return {name: steps[name] for name in str(settings["reduce_order"]).split(",")}


class DirectConvolution(TiledConvolution, ToldAsColumns):
    """Spec of the direct convolution; any stride, padding, dilation and groups."""

    name = "conv2d_direct"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights, and more than one channel per group."""
        several = convolution(workload).group_out > 1
        return several and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """See docs/reference/knobs.md."""
        return _knobs(convolution(workload), target, resources, forms)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """The tile divides the chunks and fits the registers with the weights beside it, it is
        worth it, cached weights are used more than once, and blocks lie within groups."""
        conv = convolution(workload)
        tile = self.tile(settings, target.lanes(conv.computed_in))
        kept = np.where(chosen(settings, "reduce_order", _TAPS_INSIDE), tile.rows, 1.0)
        fits = tile.fits(target.vector_registers, kept=kept) & self.whole_blocks(workload, forms)
        chunks = np.ceil(conv.group_out / column(settings, "lanes"))
        divides = chunks % column(settings, "tile_out") == 0
        wide = column(settings, "tile_width") > _WIDEST_OF_SEVERAL_ROWS
        small = chosen(settings, "tile_height", 1) | ~wide
        uncached = chosen(settings, "cache_chunks", 0)
        return (
            divides & small & fits & _spelled(settings) & (uncached | _cache_pays(conv, settings))
        )

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, bytes of all operands, and of
        weights that are read again."""
        conv = convolutions(workloads)
        lanes, tile_out = column(settings, "lanes"), column(settings, "tile_out")
        tiles_h, tiles_w, waste = plane_tiles(conv, settings)
        chunks = conv.groups * np.ceil(conv.group_out / lanes)
        apart = _tiles_apart(conv, settings, tiles_h, tiles_w)
        register = by_type(conv.computed_in, target.lanes)
        vectors = np.ceil(lanes / register)
        tile = self.tile(settings, register)
        fill = conv.out_channels / (chunks * vectors * register)
        weight_bytes = 4.0 * lanes * tile_out * conv.summed
        again = _read_again(conv, target, resources, forms, settings)
        spill = np.where(weight_bytes > target.cache_bytes(2) / 2, 1.15, 1.0)
        slow = tile.slowdown * spill * _reduction_speed(conv, target, settings, tile)
        slow = slow * _doubt(conv, forms, settings) * tearing(lanes, register)
        ragged = (conv.groups > 1) & (conv.group_out % lanes > 0)
        moved = conv.moved_bytes + again + np.where(ragged, 2.0 * conv.result_bytes, 0.0)
        return Demand(
            pieces=conv.batch * (chunks / tile_out) * apart,
            operations=conv.flop * waste,
            per_cycle=by_type(conv.computed_in, target.operations_per_cycle) * fill / slow,
            traffic={"L3": moved},
            details=tile.details(waste, weight_tile_bytes=weight_bytes),
        )

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """The input with its border of zeros, where that is a stage of its own."""
        conv, settings = convolution(workload), dict(candidate.settings)
        if settings["padding"] != "stage":
            return Workspaces()
        rows, columns = reach(conv, whole_tiles(conv, settings))
        return Workspaces(shared=(4 * conv.batch * conv.in_channels * rows * columns,))

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv, settings = convolution(workload), dict(candidate.settings)
        bo = output_block(candidate.forms, settings)
        steps = reduction(conv, settings).values()
        return {conv.weight: (chunk_count(conv.out_channels, bo, conv.groups), *steps, bo)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [⌈O/bo⌉, I/bi, kh, kw, bi, bo], the middle in the loops' order."""
        conv, settings = convolution(workload), dict(candidate.settings)
        shape = self.packed_shapes(workload, candidate)[conv.weight]
        steps = reduction(conv, settings)
        sizes = (shape[0], shape[-1], steps["chunk"], steps["lane"], *conv.kernel)
        place = {"chunk": 2, "lane": 3, "ky": 4, "kx": 5}
        axes = (0, *(place[name] for name in steps), 1)
        weights = whole_chunks(constants[conv.weight], shape[-1], conv.groups).reshape(sizes)
        return {**constants, conv.weight: np.ascontiguousarray(weights.transpose(axes))}


def ragged_groups(conv: Convolution, lanes: int) -> bool:
    """Whether chunks of `lanes` end beyond the last channel of each of several groups: then all
    sums are made first, and gathered into the result in a second pass."""
    return conv.groups > 1 and conv.group_out % lanes > 0


def _spelled(settings: Sequence[Settings]) -> Bools:
    """Whether the loop to be spelled out lies where that helps: taps next to the tile, lanes in
    blocks of enough of them."""
    taps = chosen(settings, "unroll", "kx") == chosen(settings, "reduce_order", _TAPS_INSIDE)
    roomy = unrolls_lanes(column(settings, "in_block"))
    return np.where(chosen(settings, "unroll", "lanes"), roomy, taps)


def _cache_pays(conv: Convolution, settings: Sequence[Settings]) -> Bools:
    """Whether blocks of cached chunks cut the sum into equal parts, and several tiles of a piece
    use each."""
    chunks = conv.group_in // column(settings, "in_block")
    cached = np.maximum(1.0, column(settings, "cache_chunks"))
    apart = chosen(settings, "order", "tiles") | chosen(settings, "reduce_order", _CHUNKS_INSIDE)
    down, across, _ = plane_tiles(conv, settings)
    tiles = across * np.where(chosen(settings, "order", "channels"), down, 1.0)
    return ~apart & (tiles > 1) & (cached < chunks) & (chunks % cached == 0)


def _tiles_apart(
    conv: Convolutions, settings: Sequence[Settings], tiles_h: Column, tiles_w: Column
) -> Column:
    """Tiles of a plane, or rows of tiles, that are pieces of work of their own."""
    cached = ~chosen(settings, "cache_chunks", 0)
    whole = chosen(settings, "order", "channels") & cached
    rows = ~chosen(settings, "order", "tiles") & (conv.out_height > 1)
    return np.where(whole, 1.0, tiles_h * np.where(rows | cached, 1.0, tiles_w))


def _read_again(
    conv: Convolutions,
    target: Target,
    resources: Resources,
    forms: tuple[Form, ...],
    settings: Sequence[Settings],
) -> Column:
    """Bytes that are read more than once. By rows, these are the weights, for each row of tiles.

    In a plane of one row, whose tiles are pieces of work, an input that is much larger than the
    second cache is read for each tile of output channels; by rows it is not, but the weights are
    for each tile, and results are written in more streams, so that it must be larger than they are.
    Plain data lies far apart: it counts even where each thread reads it but once.
    """
    tiles_h, tiles_w, _ = plane_tiles(conv, settings)
    line, weights = np.equal(conv.out_height, 1), 4.0 * conv.summed * conv.out_channels
    lost = np.where(line & (weights > target.cache_bytes(2)), 1.0, _WEIGHTS_AHEAD)
    by_rows = lost * weights * np.where(line, tiles_w, tiles_h)
    chunks = np.ceil(conv.group_out / column(settings, "lanes"))
    tiles_out = np.ceil(chunks / column(settings, "tile_out"))
    strided = (data_blocks(conv, forms) == 0) & (conv.group_in > _FEW_CHANNELS)
    image = 4.0 * conv.group_in * conv.in_height * conv.in_width
    shared = np.where(strided, np.minimum(resources.threads, tiles_out), 1.0)
    passes = np.where(image > _LARGE * target.cache_bytes(2), tiles_out, shared) - 1.0
    inputs = image * conv.groups * passes * np.where(strided, _STRIDED, 1.0)
    larger = line & (image * conv.groups > 4.0 * conv.out_channels * conv.pixels)
    by_channels = np.where(larger, conv.batch * inputs, 0.0)
    return np.where(chosen(settings, "order", "rows"), by_rows, by_channels)


def _reduction_speed(
    conv: Convolutions, target: Target, settings: Sequence[Settings], tile: RegisterTile
) -> Column:
    """Time of the reduction's inner loops against the plain way.

    Lanes spelled out save address arithmetic. With taps inside, LLVM keeps the inputs that
    neighbouring taps share in registers: a row of the tile and the kernel's width beside the
    accumulators, or it spills. Wide kernels and strides share less than that costs.
    """
    widths = column(settings, "tile_width")
    inside = chosen(settings, "reduce_order", _TAPS_INSIDE)
    lanes = chosen(settings, "unroll", "lanes")
    fits = tile.accumulators + widths + conv.kernel[1] - 1 <= target.vector_registers - 2
    shared = lanes & (conv.kernel[1] <= 3) & (conv.strides[1] == 1)
    taps = np.where(fits, np.where(shared, _TAPS_SHARE_INPUTS, _LESS_USUAL), _TAPS_SPILL)
    return np.where(lanes, _LANES_SPELLED_OUT, 1.0) * np.where(inside, taps, 1.0)


def _doubt(conv: Convolutions, forms: tuple[Form, ...], settings: Sequence[Settings]) -> Column:
    """What the other choices are expected to cost; a tuner finds out where they gain."""
    collects = np.where(data_blocks(conv, forms) > 0, 1.0, 3.0)
    unusual = (
        chosen(settings, "reduce_order", _CHUNKS_INSIDE) * 1.0
        + chosen(settings, "padding", "piece")
        + collects * (column(settings, "in_block") != plain_blocks(conv, forms))
        + ~chosen(settings, "cache_chunks", 0)
    )
    tiles_w = plane_tiles(conv, settings)[1]
    last = (tiles_w * column(settings, "tile_width") - 1) * conv.strides[1]
    beyond = last + (conv.kernel[1] - 1) * conv.dilation[1] >= conv.in_width
    many = column(settings, "tile_width") * column(settings, "tile_height") > _ADDRESSES
    singly = chosen(settings, "padding", "none") & (column(settings, "in_block") == 1)
    return np.power(_LESS_USUAL, unusual) * np.where(beyond & many & singly, _CLAMPED, 1.0)


def _knobs(
    conv: Convolution, target: Target, resources: Resources, forms: tuple[Form, ...]
) -> tuple[Knob, ...]:
    """All knobs; the first value of each of `in_block` to `cache_chunks` is the plain way."""
    lanes = lane_counts(conv.group_out, forms[-1], target.lanes(conv.computed_in))
    chunks = [chunk_count(conv.group_out, count) for count in lanes]
    in_blocks = input_blocks(conv, target, forms)
    orders: dict[tuple[str, ...], bool] = {
        REDUCTION: True,
        ("ky", "kx", "chunk", "lane"): prod(conv.kernel) > 1,
        ("chunk", "ky", "lane", "kx"): conv.kernel[1] > 1,
    }
    unrolls = {
        "none": True,
        "kx": conv.kernel[1] > 1,
        "lanes": unrolls_lanes(np.array(in_blocks, dtype=np.float64)).any(),
    }
    tallest = _LARGEST_HEIGHT if conv.out_width < _WIDE else _LARGEST_HEIGHT_WIDE
    cached = _cached_chunks(conv, target, lanes[0], in_blocks[0])
    return (
        choice("lanes", lanes),
        _tile_knob("tile_width", conv.out_width, _LARGEST_WIDTH),
        _tile_knob("tile_height", conv.out_height, tallest),
        _listed("tile_out", out_tiles(chunks)),
        choice("order", _orders(conv, resources, conv.groups * chunks[0])),
        _listed("in_block", in_blocks),
        order("reduce_order", REDUCTION, [o for o, useful in orders.items() if useful]),
        choice("unroll", [unroll for unroll, useful in unrolls.items() if useful]),
        choice("padding", ("stage", "piece") if conv.padded else ("none",)),
        choice("cache_chunks", (0, *cached)),
    )


def data_block(conv: Convolution, forms: tuple[Form, ...]) -> int:
    """The channel block the data arrives in, or is read in, where it divides a group, else 0."""
    return int(data_blocks(conv, forms))


def data_blocks(conv: Convolution | Convolutions, forms: tuple[Form, ...]) -> Numbers:
    """`data_block` of one convolution or of many."""
    last = (_OF_A_LINE if form == CHANNELS_LAST else own_block(form) for form in forms[:-1])
    ports = np.array([*last, 0])
    blocks = ports[np.minimum(conv.data, len(ports) - 1)]
    return np.where(conv.group_in % np.maximum(1, blocks) == 0, blocks, 0)


def plain_blocks(conv: Convolution | Convolutions, forms: tuple[Form, ...]) -> Numbers:
    """The first of `input_blocks`, of one convolution or of many."""
    blocks, whole = data_blocks(conv, forms), conv.group_in
    return np.where(blocks > 0, blocks, np.where(np.greater(whole, _FEW_CHANNELS), 1, whole))


def input_blocks(conv: Convolution, target: Target, forms: tuple[Form, ...]) -> list[int]:
    """Channels of the input per packed weight block, the plain choice first.

    It follows the block the data arrives in, so that a chunk is walked in the order of memory;
    half of that changes what lies between two taps of the kernel, double is for blocks smaller
    than a register. Plain data may be taken channel by channel or in blocks.
    """
    block, plain = data_block(conv, forms), int(plain_blocks(conv, forms))
    if block and prod(conv.kernel) == 1:
        return [plain]
    register = target.lanes(conv.computed_in)
    if block:
        other = block // 2 if block >= register else 2 * block
    else:
        other = register if conv.group_in > _FEW_CHANNELS else 1
    return list(dict.fromkeys(b for b in (plain, other) if b and conv.group_in % b == 0))


def unrolls_lanes(blocks: Column) -> Bools:
    """Whether lanes of blocks can be spelled out in part."""
    return (blocks % UNROLLED_LANES == 0) & (blocks > UNROLLED_LANES)


def _orders(conv: Convolution, resources: Resources, chunks: int) -> tuple[str, ...]:
    few = conv.batch * conv.out_height * chunks < _FEW_PIECES * resources.threads
    wide = conv.out_height > 1 and conv.out_width > 1
    return ("channels", "rows", "tiles") if few and wide else ("channels", "rows")


def _cached_chunks(conv: Convolution, target: Target, lanes: int, block: int) -> tuple[int, ...]:
    """The number of chunks whose weights fill a good part of the first cache, where all weights of
    a tile do not fit there and a whole plane of partial sums fits the second."""
    chunk_bytes = 4 * lanes * block * prod(conv.kernel)
    plane_bytes = 4 * lanes * conv.out_height * conv.out_width
    chunks = conv.group_in // block
    if chunk_bytes * chunks <= target.cache_bytes(1) or plane_bytes > target.cache_bytes(2) // 4:
        return ()
    most = target.cache_bytes(1) // 2
    fitting = [c for c in range(1, chunks) if chunks % c == 0 and c * chunk_bytes <= most] or [1]
    return (fitting[-1],) if chunks > 1 else ()


def _tile_knob(name: str, extent: int, largest: int) -> Knob:
    """Divisors, and for each number of tiles the least size that needs no more of them where it
    wastes at most 15 %."""
    limit = min(extent, largest)
    divisors = [size for size in range(1, limit + 1) if extent % size == 0]
    sizes = [-(-extent // count) for count in range(1, extent + 1)]
    near = [size for size in sizes if size <= limit and -(-extent // size) * size <= 1.15 * extent]
    return _listed(name, sorted({*divisors, *near}))


def _listed(name: str, values: Sequence[int]) -> Knob:
    return split(name, 0, policy="candidates", candidates=values)


SPEC = DirectConvolution()
