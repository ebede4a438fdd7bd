# pyright: basic
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
    """Vectorise a loop, in pieces of `lanes` where it is longer and divides."""
    extent = int(schedule.get(loop).extent)
    if extent <= 1:
        return
    if extent <= 2 * lanes:
        schedule.vectorize(loop)
        return
    width = lanes
    while extent % width and width > 4:
        width //= 2
    if extent % width:
        width = lanes
    _, inner = schedule.split(loop, [None, width])
    schedule.vectorize(inner)


def spread(schedule: Schedule, block: Any, lanes: int, pieces: int) -> None:
    """Parallelise and vectorise a block without reduction.

    Trailing loops are fused until they fill the lanes; leading loops are fused and parallelised
    when there is enough work for `pieces` threads.
    """
    loops = schedule.get_loops(block)
    if not loops:
        return
    sizes = extents(schedule, loops)
    tail = len(loops) - 1
    while tail > 0 and prod(sizes[tail:]) < lanes:
        tail -= 1
    inner = schedule.fuse(*loops[tail:]) if tail < len(loops) - 1 else loops[tail]
    outer = loops[:tail]
    if prod(sizes) >= PARALLEL_ELEMENTS and pieces > 1:
        if not outer or prod(sizes[:tail]) < pieces:
            # too few rows: cut the inner loop as well
            step = -(-prod(sizes[tail:]) // (4 * pieces))
            step = max(lanes, -(-step // lanes) * lanes)
            head, inner = schedule.split(inner, [None, step])
            outer = [*outer, head]
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    vectorize_last(schedule, inner, lanes)


def reduction_split(schedule: Schedule, block: Any) -> tuple[list[Any], list[Any]]:
    """The loops of a block: (spatial, reduction)."""
    kinds = [v.iter_type for v in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.CommReduce]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    return spatial, reduction
