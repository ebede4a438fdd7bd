"""Layouts that kernels can read and write: what the graph tuner chooses from.

Every kernel reads and writes through index maps, so more combinations work than are worth
offering. What is offered are whole registers of channels, two and four of them, and plain; ports
of one shape agree unless the anchor stands between them. Blocks and tiles follow from what a target
has; nothing is wired to one width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import CHANNELS_LAST, PLAIN, Form, blocked, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Target
from tilewright.graph.network import Array, TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload


def channel_blocks(channels: int, lanes: int) -> tuple[int, ...]:
    """Divisors of `channels` that suit vector registers of `lanes`, best first; never empty.

    Whole registers are best; then the largest power-of-two part of one; then any other divisor of
    at most two registers.
    """
    part = gcd(channels, lanes)
    best = [part] if part >= min(lanes, 4) else []
    odd = [d for d in range(min(channels, 2 * lanes), 0, -1) if channels % d == 0]
    return tuple(dict.fromkeys([*best, *odd]))


def best_block(channels: int, lanes: int) -> int:
    """The preferred channel block."""
    return channel_blocks(channels, lanes)[0]


def own_block(form: Form) -> int:
    """Channels that lie in a block of their own; 0 where none do (`plain`), or all (`acdb`)."""
    return 0 if form == CHANNELS_LAST else channel_block(form)


def usual_lanes(channels: int, form: Form, lanes: int) -> int:
    """How many output channels to compute together: the result's block where it has one."""
    return own_block(form) or best_block(channels, lanes)


def lane_counts(channels: int, form: Form, lanes: int) -> tuple[int, ...]:
    """How many output channels to compute together, the preferred number first.

    The result's block where it has one. A plain result is not bound to divisors: where none fills a
    register, whole registers are offered too, and what they compute beyond the last channel is
    dropped.
    """
    usual = usual_lanes(channels, form, lanes)
    torn = not own_block(form) and usual % lanes
    return (lanes, usual) if torn and channels > lanes else (usual,)


def instruction_lanes(
    channels: int, form: Form, usual: tuple[int, ...], able: tuple[int, ...]
) -> tuple[int, ...]:
    """How many output channels to compute together by an instruction that is `able` to do it for
    some numbers of lanes: the first of the `usual` ones if it is, otherwise, of a plain result, up
    to as many as cover the channels."""
    if own_block(form) or usual[0] in able:
        return usual[:1] if usual[0] in able else ()
    most = min((lanes for lanes in able if lanes >= channels), default=max(able, default=0))
    return tuple(sorted(lanes for lanes in able if lanes <= most))


def arriving_block(forms: tuple[Form, ...], operand: int) -> int:
    """The channel block that an operand arrives in; 0 where it is plain, or where the kernel
    computes it itself."""
    return own_block(forms[operand]) if operand < len(forms) - 1 else 0


def dividing_block(forms: tuple[Form, ...], operand: int, channels: int) -> int:
    """The channel block that an operand arrives in where it divides `channels`, else 0."""
    block = arriving_block(forms, operand)
    return block if block and channels % block == 0 else 0


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
    sizes, most = range(1, min(extent, largest) + 1), 1.15 * extent if tails else extent
    return tuple(size for size in sizes if -(-extent // size) * size <= most)


def output_block(forms: tuple[Form, ...], settings: Settings) -> int:
    """Output channels computed together: the result's block, or the knob `lanes` where it has
    none."""
    return own_block(forms[-1]) or int(settings["lanes"])


Ports = tuple[Form, ...]
_SINGLE = "float32"
_JOINING = frozenset({"concat", "slice", "pad"})
_IMAGE_RANK = 4


def form_options(kind: TensorType, target: Target, *, groups: int = 1) -> Ports:
    """Layouts worth considering for a tensor, the usual one first and plain last.

    Images [n, c, h, w] may be blocked by as many channels as one, two or four registers hold;
    where not even one register's worth divides them, by what does. No block straddles two of the
    `groups` of channels. Everything else is plain, and so is all where there are no registers.
    """
    if not target.vector_bytes or len(kind.shape) != _IMAGE_RANK or kind.shape[1] == 1:
        return (PLAIN,)
    channels = kind.shape[1] // groups
    lanes = target.lanes(element_type(kind.dtype).computed_in)
    whole = [b for b in (lanes, 2 * lanes, 4 * lanes) if channels % b == 0]
    blocks = whole or [b for b in channel_blocks(channels, lanes)[:2] if b > 1]
    return (*(blocked(block) for block in blocks), PLAIN)


def single_ports(workload: Workload) -> frozenset[int]:
    """The ports of data in single precision, and that of a result in it."""
    kinds = [(a.type.dtype, a.role) for a in workload.arguments] + [(workload.result.dtype, "data")]
    return frozenset(i for i, kind in enumerate(kinds) if kind == (_SINGLE, "data"))


def multiplied(workload: Workload) -> tuple[int, ...]:
    """The arguments of data in single precision that the anchor reads, or where it reads what the
    subgraph computes, all of them."""
    anchor = workload.anchor
    singles = sorted(single_ports(workload) - {len(workload.arguments)})
    read = [index for index in singles if anchor is None or index in anchor.inputs]
    return tuple(read or singles)


class Widening:
    """The part of a spec of kernels that read and write everything through `Program`: all singles
    may lie in memory as halves."""

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """Everything that is computed and in single precision."""
        return single_ports(workload)


def plain_ports(workload: Workload) -> tuple[Ports, ...]:
    """Row-major everywhere."""
    return ((PLAIN,) * (len(workload.arguments) + 1),)


def anchored_ports(
    workload: Workload, target: Target, data: int, *, groups: int = 1
) -> tuple[Ports, ...]:
    """The anchor's data (argument `data`) in any layout, the result in any whose blocks lie within
    one of its `groups`; operands of the result's shape follow the result, all others are plain.

    Data that the subgraph computes itself comes as the result is.
    """
    if data >= len(workload.arguments):
        return _alike(workload, form_options(workload.result, target, groups=groups))
    arriving = form_options(workload.arguments[data].type, target)
    leaving = form_options(workload.result, target, groups=groups)
    arguments = range(len(workload.arguments))
    return tuple(
        (*(read if i == data else _following(workload, i, written) for i in arguments), written)
        for read, written in product(arriving, leaving)
    )


def alike_ports(workload: Workload, target: Target) -> tuple[Ports, ...]:
    """One layout for the result and all operands with its channels.

    Operands of a concatenation or a slice take the same block where it divides their channels.
    Where data moves otherwise, the first operand may come in any layout.
    """
    moves = any(
        OPERATORS[step.operator].movement and step.operator not in _JOINING
        for step in workload.steps
    )
    if moves and workload.arguments[0].role == "data":
        return anchored_ports(workload, target, 0)
    return _alike(workload, form_options(workload.result, target))


def _alike(workload: Workload, results: Ports) -> tuple[Ports, ...]:
    arguments = range(len(workload.arguments))
    found = [(*(_agreeing(workload, i, form) for i in arguments), form) for form in results]
    return tuple(dict.fromkeys(found))


def _following(workload: Workload, index: int, written: Form) -> Form:
    """`written` for data of the result's shape."""
    argument = workload.arguments[index]
    alike = argument.role == "data" and argument.type.shape == workload.result.shape
    return written if alike else PLAIN


def _agreeing(workload: Workload, index: int, written: Form) -> Form:
    """`written` for image data whose channels it divides."""
    argument = workload.arguments[index]
    shape = argument.type.shape
    if argument.role != "data" or len(shape) != _IMAGE_RANK or written == PLAIN:
        return PLAIN
    return written if shape[1] % channel_block(written) == 0 and shape[1] > 1 else PLAIN
