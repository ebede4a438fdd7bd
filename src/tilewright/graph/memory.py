"""Where every intermediate tensor lies in one arena.

Offline planning with known lifetimes: buffers are placed largest first at the lowest offset that
no buffer alive at the same time overlaps (greedy by size, Pisarchyk and Lee 2020, Efficient Memory
Management for Deep Neural Net Inference).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """A buffer needed from call `first` to call `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are alive at some call."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets in bytes within an arena of `arena_bytes`; `floor_bytes` is the least any plan
    needs: the largest sum of buffers alive at once."""

    offsets: dict[str, int]
    arena_bytes: int
    floor_bytes: int


def aligned(size_bytes: int) -> int:
    """`size_bytes` rounded up to the alignment of vector loads."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place all buffers; deterministic for equal input."""
    placed: list[tuple[int, Lifetime]] = []
    for item in sorted(lifetimes, key=lambda entry: (-entry.bytes, entry.first, entry.name)):
        neighbours = sorted(
            (offset, offset + aligned(other.bytes))
            for offset, other in placed
            if item.overlaps(other)
        )
        position = 0
        for begin, end in neighbours:
            if begin - position >= aligned(item.bytes):
                break
            position = max(position, end)
        placed.append((position, item))
    arena = max((offset + aligned(item.bytes) for offset, item in placed), default=0)
    return MemoryPlan(
        offsets={item.name: offset for offset, item in placed},
        arena_bytes=arena,
        floor_bytes=_floor(lifetimes),
    )


def _floor(lifetimes: Sequence[Lifetime]) -> int:
    changes: dict[int, int] = {}
    for item in lifetimes:
        changes[item.first] = changes.get(item.first, 0) + aligned(item.bytes)
        changes[item.last + 1] = changes.get(item.last + 1, 0) - aligned(item.bytes)
    alive = largest = 0
    for moment in sorted(changes):
        alive += changes[moment]
        largest = max(largest, alive)
    return largest
