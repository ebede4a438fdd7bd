"""Fetching the weights that come next while those at hand are used.

A panel of weights is used for several tiles of the result. The first tile meets it in memory and
waits, the others find it in the cache and leave the memory idle: the time to fetch and the time to
multiply add up. Told ahead, the memory delivers the next panel while this one is used.

A lowering marks loops, and the marks are part of its schedule; `with_prefetches` turns them into
instructions right before compiling. A compiler that does not know the marks makes the same kernel
without them.

    AHEAD = [a, d]      on a loop of the reduction: each iteration fetches this tile's share of what
                        it reads of argument `a`, `d` elements further on
    AHEAD = [a, d, 1]   the same, in a branch
    TILE = m            on loops around it: the number of a panel's tile, a loop's variable modulo m
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize, Schedule
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_mutate, structural_walk

from tilewright.core.targets import Target

TILE = "tilewright.tile"
AHEAD = "tilewright.ahead"
_LINE_BYTES, _PAGE_BYTES = 64, 4096
_TO_READ, _SECOND_LEVEL, _DATA = 0, 2, 1
"""What LLVM's prefetch is told; `prefetcht1` on x86, `prfm pldl2keep` on ARM."""
_REPEATED = 3
"""So many times a line may be fetched where an iteration has fewer lines than the panel has tiles.
Further out in the nest there are more of them, but LLVM keeps registers best in innermost loops."""
FAR = 4
"""Weights of less than this part of the second cache gained nothing (inception_v3, densenet201)."""

_APART = 2
"""Where a mark has a third number, fetches are apart."""
_ZERO = tirx.const(0, "int32")

Tile = tuple[Any, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Weights that are used for several tiles one after the other.

    `argument` is their number, `size` the elements of all weights, `distance` from one panel to the
    next, `run` those read in a step of the reduction. `tiles` are the loops over a panel's tiles,
    outermost first, each with the number of tiles it counts: its variable modulo that number. With
    `apart` the fetches are in a branch of their own: among several steps of dot products that are
    spelled out they make LLVM load the weights of all of these first, and registers spill.
    """

    argument: int
    size: int
    distance: int
    run: int
    tiles: Sequence[Tile]
    element_bytes: int = 4
    apart: bool = False


def mark_ahead(schedule: Schedule, target: Target, panel: Panel, sums: Sequence[Any]) -> None:
    """Mark the loops of a reduction, outermost first, to fetch the next panel ahead, if it pays."""
    tiles = prod(count for _, count in panel.tiles)
    if tiles < 2 or panel.element_bytes * panel.size < target.cache_bytes(2) // FAR:
        return
    lines = panel.element_bytes * panel.run / _LINE_BYTES
    at = None
    for loop in reversed(sums):
        if tirx.ForKind(schedule.get(loop).kind) == tirx.ForKind.SERIAL:
            at = loop
            if _REPEATED * lines >= tiles:
                break
        lines *= int(schedule.get(loop).extent)
    if at is None:
        return
    for loop, count in panel.tiles:
        if count > 1:
            schedule.annotate(loop, TILE, count)
    apart = [1] if panel.apart else []
    schedule.annotate(at, AHEAD, [panel.argument, panel.distance, *apart])


def mark_stream(schedule: Schedule, target: Target, sums: Any, argument: int, size: int) -> None:
    """Mark the loop of a reduction that reads bytes in their order, once, to fetch what comes a
    page later, if it pays. Where an iteration does more than load, the processor does not look far
    enough ahead by itself: of codes that four rows share it took 6 GB/s, and takes 10 so."""
    if size >= target.cache_bytes(2) // FAR:
        schedule.annotate(sums, AHEAD, [argument, _PAGE_BYTES])


def with_prefetches(module: tvm.IRModule) -> tvm.IRModule:
    """The module with its marks turned into instructions."""
    functions = {variable: _rewritten(function) for variable, function in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def _rewritten(function: Any) -> Any:
    """Rebuilds what is around marked loops."""
    if not isinstance(function, tirx.PrimFunc):
        return function
    tiles: list[Tile] = []  # the marks passed on the way in

    def visit(loop: Any, mutator: Any) -> Any:
        marks: dict[str, Any] = dict(loop.annotations)
        counted, ahead = marks.pop(TILE, None), marks.pop(AHEAD, None)
        if counted is None and ahead is None:
            return mutator.default_mutate(loop)
        if counted is not None:
            tiles.append((loop.loop_var, int(counted)))
        body = mutator.mutate(loop.body)
        if ahead is not None:
            weights, distance = function.params[int(ahead[0])], int(ahead[1])
            fetches = _fetches(body, weights, distance, tiles)
            if len(ahead) > _APART:
                fetches = [_in_a_branch(fetches, body, weights, distance)]
            body = tirx.SeqStmt([*fetches, body])
        if counted is not None:
            tiles.pop()
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, marks
        )

    return function.with_body(structural_mutate(function.body, (tirx.For, visit)))


def tile_number(tiles: Sequence[Tile]) -> Any:
    """The number of a panel's tile, by the loops over them, outermost first."""
    found = tirx.const(0, "int32")
    for variable, count in tiles:
        found = found * count + tirx.floormod(variable, count)
    return found


def _in_a_branch(fetches: Sequence[Any], body: Any, weights: Any, distance: int) -> Any:
    """The fetches, where there is a next panel."""
    loops, indices = _reading(body, weights)
    place = _place(weights, [_at(index, dict.fromkeys(loops, _ZERO)) for index in indices])
    more = place < prod(int(extent) for extent in weights.shape) - distance
    return tirx.IfThenElse(more, tirx.SeqStmt([*fetches, tirx.Evaluate(_ZERO)]), None)


def _fetches(body: Any, weights: Any, distance: int, tiles: Sequence[Tile]) -> list[Any]:
    """Instructions for a tile's share of the lines that `body` reads of `weights`."""
    loops, indices = _reading(body, weights)
    element_bytes = tvm.DataType(str(weights.dtype)).bits // 8
    run, jumps = _runs(weights, loops, indices)
    lines_of_run = -(-run * element_bytes // _LINE_BYTES)
    tile, count_of_tiles = tile_number(tiles), prod(count for _, count in tiles)
    lines = lines_of_run * prod(count for _, count in jumps)
    share, together = -(-lines // count_of_tiles), max(1, count_of_tiles // lines)
    first = [_at(index, dict.fromkeys(loops, _ZERO)) for index in indices]
    start, simplify = tirx.address_of(weights[tuple(first)]), Analyzer().simplify
    fetches = []
    for number in range(share):
        line = tirx.floordiv(tile, together) * share + number
        offset = distance * element_bytes + tirx.floormod(line, lines_of_run) * _LINE_BYTES
        line = tirx.floordiv(line, lines_of_run)
        for stride, count in jumps:
            offset += tirx.floormod(line, count) * (stride * element_bytes)
            line = tirx.floordiv(line, count)
        address = tirx.handle_add_byte_offset(start, simplify(offset))
        how = (_TO_READ, _SECOND_LEVEL, _DATA)
        fetches.append(tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *how)))
    return fetches


def _reading(body: Any, weights: Any) -> tuple[dict[Any, int], list[Any]]:
    """Variables and extents of the loops in `body`, and the indices at which it reads `weights`, in
    terms of loop variables."""
    loops: dict[Any, int] = {}
    values: dict[Any, Any] = {}
    found: list[list[Any]] = []

    def enter_loop(loop: Any) -> None:
        loops[loop.loop_var] = int(loop.extent)

    def enter_block(node: Any) -> None:
        values.update(zip((a.var for a in node.block.iter_vars), node.iter_values, strict=True))
        for match in node.block.match_buffers:  # an instruction's operand, read as a whole
            if match.source.source.same_as(weights):
                *outer, last = (_at(part.min, values) for part in match.source.region)
                element = tirx.Var("element", "int32")
                loops[element] = prod(int(part.extent) for part in match.source.region)
                found.append([*outer, last + element])

    def read(load: Any) -> None:
        if load.source.same_as(weights):
            found.append([_at(index, values) for index in load.indices])

    callbacks = [(tirx.For, enter_loop), (SBlockRealize, enter_block), (TensorLoad, read)]
    structural_walk(body, callbacks, order="pre")
    return loops, found[0]


def _runs(
    weights: Any, loops: dict[Any, int], indices: Sequence[Any]
) -> tuple[int, list[tuple[int, int]]]:
    """How many elements the loops read in one run, and the strides and counts of such runs."""
    place = _place(weights, indices)
    simplify, still = Analyzer().simplify, dict.fromkeys(loops, _ZERO)
    first, one = _at(place, still), tirx.const(1, "int32")
    strides = [
        (int(simplify(_at(place, {**still, variable: one}) - first)), extent)
        for variable, extent in loops.items()
    ]
    run, jumps = 1, []
    for stride, extent in sorted(strides):
        if stride == run:
            run *= extent
        elif stride and extent > 1:
            jumps.append((stride, extent))
    return run, jumps


def _place(weights: Any, indices: Sequence[Any]) -> Any:
    """The number of an element in memory."""
    place = _ZERO
    for extent, index in zip(weights.shape, indices, strict=True):
        place = place * extent + index
    return place


def _at(index: Any, values: dict[Any, Any]) -> Any:
    """An index expression with variables replaced."""
    return structural_map(index, (tirx.Var, lambda variable: values.get(variable, variable)))
