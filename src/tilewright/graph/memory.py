"""Where every intermediate tensor lies in one arena.

Offline planning: buffers are placed largest first at the lowest offset where none is that may be in
use at the same time (greedy by size, Pisarchyk and Lee 2020, Efficient Memory Management for Deep
Neural Net Inference). Two buffers share memory where all calls of one have ended before
any call of the other begins. That follows from what the calls wait for, not from their numbers:
of two calls that wait for nothing of each other, either may be first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Memory that some calls read or write: bit n of `calls` stands for call n."""

    name: str
    bytes: int
    calls: int

    @property
    def first(self) -> int:
        """The first of its calls."""
        return (self.calls & -self.calls).bit_length() - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets in bytes within an arena of `arena_bytes`."""

    offsets: dict[str, int]
    arena_bytes: int


def aligned(size_bytes: int) -> int:
    """`size_bytes` rounded up to the alignment of vector loads."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(buffers: Sequence[Buffer], earlier: Sequence[int]) -> MemoryPlan:
    """Place all buffers; deterministic for equal input.

    `earlier` tells for each call which ones have ended when it begins, as bits.
    """
    behind = {item.name: _ended_before(item, earlier) for item in buffers}
    placed: list[tuple[int, Buffer]] = []
    for item in sorted(buffers, key=lambda entry: (-entry.bytes, entry.first, entry.name)):
        neighbours = sorted(
            (offset, offset + aligned(other.bytes))
            for offset, other in placed
            if item.calls & ~behind[other.name] and other.calls & ~behind[item.name]
        )
        position = 0
        for begin, end in neighbours:
            if begin - position >= aligned(item.bytes):
                break
            position = max(position, end)
        placed.append((position, item))
    return MemoryPlan(
        offsets={item.name: offset for offset, item in placed},
        arena_bytes=max((offset + aligned(item.bytes) for offset, item in placed), default=0),
    )


def _ended_before(buffer: Buffer, earlier: Sequence[int]) -> int:
    """The calls that have ended before any call of a buffer begins, as bits."""
    found, left = -1, buffer.calls
    while left:
        lowest = left & -left
        found &= earlier[lowest.bit_length() - 1]
        left ^= lowest
    return found
