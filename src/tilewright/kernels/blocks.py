"""Choosing channel blocks and tiles from what a target has; nothing is wired to one width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Settings
from tilewright.graph.network import Array


def channel_blocks(channels: int, lanes: int) -> tuple[int, ...]:
    """Divisors of `channels` that suit vector registers of `lanes`, best first; never empty.

    Whole registers are best; then the largest power-of-two part of one; then any other divisor of
    at most two registers.
    """
    choices = [lanes] if channels % lanes == 0 else []
    part = lanes // 2
    while part >= 4 and not choices:
        if channels % part == 0:
            choices.append(part)
        part //= 2
    odd = [d for d in range(min(channels, 2 * lanes), 0, -1) if channels % d == 0]
    return tuple(dict.fromkeys([*choices, *odd]))


def best_block(channels: int, lanes: int) -> int:
    """The preferred channel block."""
    return channel_blocks(channels, lanes)[0]


def usual_lanes(channels: int, form: Form, lanes: int) -> int:
    """How many output channels to compute together: the result's block where it has one."""
    return channel_block(form) or best_block(channels, lanes)


def lane_counts(channels: int, form: Form, lanes: int) -> tuple[int, ...]:
    """How many output channels to compute together, the preferred number first.

    The result's block where it has one. A plain result is not bound to divisors: where none fills a
    register, whole registers are offered too, and what they compute beyond the last channel is
    dropped.
    """
    usual = usual_lanes(channels, form, lanes)
    torn = not channel_block(form) and usual % lanes
    return (lanes, usual) if torn and channels > lanes else (usual,)


def arriving_block(forms: tuple[Form, ...], operand: int) -> int:
    """The channel block that an operand arrives in; 0 where it is plain, or where the kernel
    computes it itself."""
    return channel_block(forms[operand]) if operand < len(forms) - 1 else 0


def chunk_count(channels: int, lanes: int, groups: int = 1) -> int:
    """Chunks of `lanes` channels that cover all of them, none across the border of two groups."""
    return groups * -(-(channels // groups) // lanes)


def out_tiles(chunks: Sequence[int]) -> tuple[int, ...]:
    """Chunks of a register tile: up to four that divide any of these numbers of chunks."""
    return tuple(tile for tile in (1, 2, 3, 4) if any(count % tile == 0 for count in chunks))


def whole_chunks(weights: Array, lanes: int, groups: int = 1) -> Array:
    """Weights [O, …] with zeros behind the last output channel of each group, up to whole chunks
    of `lanes`."""
    rest = weights.shape[1:]
    apart = weights.reshape(groups, -1, *rest)
    missing = -apart.shape[1] % lanes
    padded = np.pad(apart, ((0, 0), (0, missing), *[(0, 0)] * len(rest))) if missing else apart
    return padded.reshape(-1, *rest)


def tile_sizes(extent: int, *, largest: int, tails: bool = True) -> tuple[int, ...]:
    """Tile sizes for an axis: its divisors up to `largest`, and with `tails` sizes that waste
    little at the end.

    A size is kept if the padded extent is at most 1.15 times the real one.
    """
    divisors = [d for d in range(1, min(extent, largest) + 1) if extent % d == 0]
    if not tails:
        return tuple(divisors)
    near = [
        size
        for size in range(2, min(extent, largest) + 1)
        if -(-extent // size) * size <= 1.15 * extent
    ]
    return tuple(sorted({*divisors, *near}))


def output_block(forms: tuple[Form, ...], settings: Settings) -> int:
    """Output channels computed together: the result's block, or the knob `lanes` where it has
    none."""
    return channel_block(forms[-1]) or int(settings["lanes"])
