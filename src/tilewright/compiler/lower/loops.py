"""Scheduling moves that several lowerings share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import gcd, prod
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
    width = gcd(extent, lanes)
    if 1 < extent <= lanes:
        schedule.vectorize(loop)
    elif extent > lanes and width >= min(4, lanes):
        schedule.vectorize(schedule.split(loop, [None, width])[1])


def share_out(schedule: Schedule, loops: Sequence[Any], threads: int = 2) -> Any:
    """Fuse loops into one, parallel unless there is but one of the `threads`; that loop."""
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    if threads > 1:
        schedule.parallel(fused)
    return fused


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
        filling = (at for at in range(len(loops) - 1, 0, -1) if prod(sizes[at:]) >= lanes)
        tail = next(filling, 0)
    inner = schedule.fuse(*loops[tail:]) if tail < len(loops) - 1 else loops[tail]
    outer = loops[:tail]
    if prod(sizes) >= PARALLEL_ELEMENTS and pieces > 1:
        if not outer or prod(sizes[:tail]) < pieces:
            # too few rows: cut the inner loop as well
            head, inner = schedule.split(inner, [None, _share(prod(sizes[tail:]), lanes, pieces)])
            outer = [*outer, head]
        share_out(schedule, outer, pieces)
    vectorize_last(schedule, inner, lanes)


def _share(extent: int, lanes: int, pieces: int) -> int:
    """A part of a loop for one piece of work: a divisor of `extent` if one is near."""
    wanted = max(lanes, -(-extent // (2 * pieces)))
    least = wanted // 4
    near = chain(range(wanted - wanted % lanes, least, -lanes), range(wanted, least, -1))
    return next((part for part in near if extent % part == 0), -(-wanted // lanes) * lanes)


def reduction_split(schedule: Schedule, block: Any) -> tuple[list[Any], list[Any]]:
    """The loops of a block, but for those it was placed in: (spatial, reduction)."""
    kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
    pairs = list(zip(schedule.get_loops(block)[-len(kinds) :], kinds, strict=True))
    reduction = [loop for loop, kind in pairs if kind == tirx.IterVar.CommReduce]
    return [loop for loop, kind in pairs if kind != tirx.IterVar.CommReduce], reduction


def register_tile(schedule: Schedule, loops: Sequence[Any], lane: Any) -> None:
    """Spell out the loops of a tile, its lanes in vectors."""
    for loop in loops:
        schedule.unroll(loop)
    schedule.vectorize(lane)


def finish_tile(
    schedule: Schedule, anchor: Any, home: Any, *, vectors: bool, in_registers: bool = True
) -> Any:
    """Compute the result of a tile within the loop `home`, in `vectors` along its last loop; that
    loop. The sums of the block `anchor` stay `in_registers` until then."""
    if in_registers:
        schedule.set_scope(anchor, 0, "local")
    result = schedule.get_sblock("result")
    schedule.reverse_compute_at(result, home, preserve_unit_loops=True)
    last = schedule.get_loops(result)[-1]
    if vectors:
        schedule.vectorize(last)
    return last


def gather(schedule: Schedule, anchor: Any, home: Any) -> None:
    """Sums leave the registers of a tile at `home`, where they are kept there; the result is made
    of all of them afterwards."""
    if home is not None:
        kept = schedule.cache_write(anchor, 0, "local")
        schedule.reverse_compute_at(kept, home, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(kept)[-1])
    share_out(schedule, schedule.get_loops(schedule.get_sblock("result"))[:2])


def by_instruction(schedule: Schedule, anchor: Any, step: Any, lane: Any, intrinsic: str) -> None:
    """Compute the sums of the block `anchor` by a tensor intrinsic for the loops from `lane` on;
    `step` is the outermost loop over steps of the sums."""
    start = schedule.decompose_reduction(anchor, step)
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.tensorize(lane, intrinsic)


def fill_ahead(schedule: Schedule, name: str, threads: int) -> None:
    """Spread a stage in blocks of channels over threads by images, chunks and rows, its lanes in a
    vector."""
    *outer, lane = schedule.get_loops(schedule.get_sblock(name))
    share_out(schedule, outer[:3], threads)
    if int(schedule.get(lane).extent) > 1:
        schedule.vectorize(lane)
