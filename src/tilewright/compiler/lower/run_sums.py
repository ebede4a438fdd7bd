"""Sums of products of float16: halves within a run, singles from run to run.

accumulator[…] += float32(partial[run, …])      partial[run, …] += x · w, in registers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.loops import extents, reduction_split, register_tile
from tilewright.compiler.lower.program import Program
from tilewright.kernels.base import FLOAT16

At = Mapping[str, tirx.Expr]
Factors = Callable[[Sequence[tirx.Expr], At], tuple[tirx.Expr, tirx.Expr]]
"""The factors, in halves, of a product at a position of the result and a place in the sum."""


def added_in_runs(
    program: Program,
    shape: tuple[int, ...],
    runs: Mapping[str, int],
    inside: Mapping[str, int],
    factors: Factors,
    name: str = "accumulator",
) -> te.Tensor:
    """The stage called `name`, which adds up the stage `partial`: one sum over the axes `inside` a
    run for each of the `runs`; axes have names and extents."""
    inner = program.reduce_axes(**inside)

    def within(*position):
        at = dict(zip(runs, position, strict=False))
        at |= {name: axis.var for name, axis in zip(inside, inner, strict=True)}
        value, weight = factors(position[len(runs) :], at)
        return te.sum(value * weight, axis=inner)

    partial = program.compute((*runs.values(), *shape), within, "partial")
    outer = program.reduce_axes(**runs)

    def widened(*position):
        part = partial(*(axis.var for axis in outer), *position)
        return te.sum(mathematics.out_of_half(part, FLOAT16), axis=outer)

    return program.compute(shape, widened, name)


def runs_within(schedule: Schedule, step: Any, lanes: int, *, channels: int = -2) -> None:
    """Compute the run of a tile in registers where it is added up, in the loop `step` over runs.
    Of the loops over the result, the one at `channels` becomes the innermost but for lanes."""
    partial = schedule.get_sblock("partial")
    schedule.compute_at(partial, step, preserve_unit_loops=True)
    spatial, sums = reduction_split(schedule, partial)
    column = spatial.pop()
    inside = spatial.pop(channels + 1)
    vector, lane = schedule.split(column, [None, lanes])
    tile = [*spatial, inside, vector]
    schedule.reorder(*sums, *tile, lane)
    several = [
        loop for loop, extent in zip(tile, extents(schedule, tile), strict=True) if extent > 1
    ]
    register_tile(schedule, several, lane)
    schedule.set_scope(partial, 0, "local")
    schedule.decompose_reduction(partial, sums[0])
