"""The knobs of the direct convolution: which values are worth offering for a shape.

Values are chosen sparingly; docs/reference/knobs.md gives the reason for each knob and the size of
the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.core.forms import Form, channel_block
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Column
from tilewright.kernels.blocks import chunk_count, lane_counts, out_tiles
from tilewright.kernels.columns import Bools, Numbers
from tilewright.kernels.convolution import Convolution, Convolutions
from tilewright.kernels.knobs import Knob, choice, order, split

REDUCTION: tuple[str, ...] = ("chunk", "ky", "kx", "lane")
UNROLLED_LANES = 4
_LARGEST_WIDTH = 32
_LARGEST_HEIGHT = 8
_LARGEST_HEIGHT_WIDE = 4
_WIDE = 16
_FEW_PIECES = 8
_FEW_CHANNELS = 4


def direct_knobs(
    conv: Convolution, target: Target, resources: Resources, forms: tuple[Form, ...]
) -> tuple[Knob, ...]:
    """All knobs; the first value of each of `in_block` to `cache_chunks` is the plain way."""
    lanes = lane_counts(conv.group_out, forms[-1], target.lanes(conv.computed_in))
    chunks = [chunk_count(conv.group_out, count) for count in lanes]
    in_blocks = input_blocks(conv, target, forms)
    orders: list[tuple[str, ...]] = [REDUCTION]
    if prod(conv.kernel) > 1:
        orders.append(("ky", "kx", "chunk", "lane"))
    if conv.kernel[1] > 1:
        orders.append(("chunk", "ky", "lane", "kx"))
    unrolls = ["none", *(["kx"] if conv.kernel[1] > 1 else [])]
    if unrolls_lanes(np.array(in_blocks, dtype=np.float64)).any():
        unrolls.append("lanes")
    tallest = _LARGEST_HEIGHT if conv.out_width < _WIDE else _LARGEST_HEIGHT_WIDE
    cached = _cached_chunks(conv, target, lanes[0], in_blocks[0])
    return (
        choice("lanes", lanes),
        _tile("tile_width", conv.out_width, _LARGEST_WIDTH),
        _tile("tile_height", conv.out_height, tallest),
        _listed("tile_out", out_tiles(chunks)),
        choice("order", _orders(conv, resources, conv.groups * chunks[0])),
        _listed("in_block", in_blocks),
        order("reduce_order", REDUCTION, orders),
        choice("unroll", unrolls),
        choice("padding", ("stage", "piece") if conv.padded else ("none",)),
        choice("cache_chunks", (0, *cached)),
    )


def data_block(conv: Convolution, forms: tuple[Form, ...]) -> int:
    """The channel block the data arrives in where it divides a group, else 0."""
    return int(data_blocks(conv, forms))


def data_blocks(conv: Convolution | Convolutions, forms: tuple[Form, ...]) -> Numbers:
    """`data_block` of one convolution or of many."""
    ports = np.array([*(channel_block(form) for form in forms[:-1]), 0])
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
    fitting = [c for c in range(1, chunks) if c * chunk_bytes <= target.cache_bytes(1) // 2]
    fitting = [c for c in fitting if chunks % c == 0] or [1]
    return (fitting[-1],) if chunks > 1 else ()


def _tile(name: str, extent: int, largest: int) -> Knob:
    """Divisors, and for each number of tiles the least size that needs no more of them where it
    wastes at most 15 %."""
    limit = min(extent, largest)
    divisors = [size for size in range(1, limit + 1) if extent % size == 0]
    sizes = [-(-extent // count) for count in range(1, extent + 1)]
    near = [size for size in sizes if size <= limit and -(-extent // size) * size <= 1.15 * extent]
    return _listed(name, sorted({*divisors, *near}))


def _listed(name: str, values: Sequence[int]) -> Knob:
    return split(name, 0, policy="candidates", candidates=values)
