"""Scheduling moves that several lowerings share."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

PARALLEL_ELEMENTS = 8192
"""Below this many elements a parallel launch costs more than it saves."""


def extents(schedule: Schedule, loops: list[Any]) -> list[int]:
    """The constant extents of loops."""
    return [int(schedule.get(loop).extent) for loop in loops]


def vectorize_last(schedule: Schedule, loop: Any, lanes: int) -> None:
    """Vectorise a loop, in pieces of `lanes` (or a smaller power of two) where it is longer.

    A length without such a divisor stays a plain loop: LLVM vectorises that with a tail of its
    own, while a guarded vector would be taken apart lane by lane.
    """
    extent = int(schedule.get(loop).extent)
    if extent <= 1:
        return
    if extent <= lanes:
        schedule.vectorize(loop)
        return
    width = lanes
    while extent % width and width > 4:
        width //= 2
    if extent % width == 0:
        _, inner = schedule.split(loop, [None, width])
        schedule.vectorize(inner)


def spread(
    schedule: Schedule, block: Any, lanes: int, pieces: int, *, tail: int | None = None
) -> None:
    """Parallelise and vectorise a block without reduction.

    The loops from `tail` on are fused and vectorised; without `tail`, as few trailing loops as
    fill the lanes. The others are fused and parallelised when there is enough work for `pieces`
    threads.
    """
    loops = schedule.get_loops(block)
    if not loops:
        return
    sizes = extents(schedule, loops)
    if tail is None:
        tail = len(loops) - 1
        while tail > 0 and prod(sizes[tail:]) < lanes:
            tail -= 1
    inner = schedule.fuse(*loops[tail:]) if tail < len(loops) - 1 else loops[tail]
    outer = loops[:tail]
    if prod(sizes) >= PARALLEL_ELEMENTS and pieces > 1:
        if not outer or prod(sizes[:tail]) < pieces:
            # too few rows: cut the inner loop as well
            head, inner = schedule.split(inner, [None, _share(prod(sizes[tail:]), lanes, pieces)])
            outer = [*outer, head]
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    vectorize_last(schedule, inner, lanes)


def _share(extent: int, lanes: int, pieces: int) -> int:
    """A part of a loop for one piece of work: a divisor of `extent` if one is near."""
    wanted = max(lanes, -(-extent // (2 * pieces)))
    for unit in (lanes, 1):
        for part in range(wanted - wanted % unit, wanted // 4, -unit):
            if part > 0 and extent % part == 0:
                return part
    return -(-wanted // lanes) * lanes


def reduction_split(schedule: Schedule, block: Any) -> tuple[list[Any], list[Any]]:
    """The loops of a block: (spatial, reduction)."""
    kinds = [v.iter_type for v in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    pairs = list(zip(loops, kinds, strict=True))
    spatial = [loop for loop, kind in pairs if kind != tirx.IterVar.CommReduce]
    reduction = [loop for loop, kind in pairs if kind == tirx.IterVar.CommReduce]
    return spatial, reduction
