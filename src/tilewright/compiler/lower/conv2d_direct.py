"""Schedule of the direct convolution.

parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  [border of zeros for this piece]              # `padding` = piece
  column tile
    in chunk, kh, kw, in lane                   # reduction, in `reduce_order`
      out chunk, row, column                    # register tile, unrolled
        out lane                                # vectorised
    epilogue of the tile

With `cache_chunks`, partial sums are kept for all tiles of a piece:

parallel (n, out chunk tile) or (n, row tile, out chunk tile)
  block of in chunks                            # its weights stay in the first cache
    [border of zeros for this block]
    row tile, column tile
      reduction over the block, as above
      add to the partial sums
  epilogue of the piece

Where chunks of lanes end beyond the last channel of several groups, the epilogue is a pass of its
own over the whole result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.conv2d_windows import (
    clamped,
    panel_tiles,
    shared_tiles,
    with_border,
)
from tilewright.compiler.lower.loops import (
    fill_ahead,
    finish_tile,
    gather,
    register_tile,
    share_out,
)
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.compiler.prefetch import Panel, Tile, mark_ahead
from tilewright.core.forms import CHANNELS_LAST, PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_direct import UNROLLED_LANES, data_block, ragged_groups, reduction
from tilewright.kernels.convolution import Convolution, Plane, convolution, whole_tiles
from tilewright.kernels.ports import chunk_count, output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    lanes = output_block(program.candidate.forms, program.settings)
    accumulator = _accumulator(program, conv, lanes)

    def ragged(position: Index) -> tirx.Expr:
        n, c, h, w = position
        group, within = program.simplify.split(c, conv.group_out)
        chunk, lane = program.simplify.split(within, lanes)
        first = group * chunk_count(conv.group_out, lanes)
        return accumulator(n, program.simplify(first + chunk), h, w, lane)

    apart = ragged_groups(conv, lanes)
    schedule = program.schedule(ragged if apart else program.in_blocks(accumulator, 1, lanes))
    if program.settings["padding"] == "stage":
        fill_ahead(schedule, "padded", resources.threads)
    home, loop = _schedule(schedule, conv, program, target)
    anchor, cached = schedule.get_sblock("accumulator"), program.settings["cache_chunks"]
    if apart:
        gather(schedule, anchor, None if cached else home)
    else:
        within = program.result_form not in (PLAIN, CHANNELS_LAST)
        last = finish_tile(schedule, anchor, home, vectors=within, in_registers=not cached)
        if program.result_form == CHANNELS_LAST:
            schedule.vectorize(schedule.split(last, [None, lanes])[1])
    schedule.decompose_reduction(anchor, loop)
    return schedule


def _accumulator(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    """The stage `accumulator`; with cached chunks it adds up blocks of the stage `partial`."""
    plane = whole_tiles(conv, program.settings)
    shape = (conv.batch, chunk_count(conv.out_channels, lanes, conv.groups), *plane, lanes)
    steps = reduction(conv, program.settings)
    cached = program.settings["cache_chunks"]
    if not cached:
        return _products(program, conv, shape, steps)
    blocks = steps["chunk"] // cached
    partial = _products(program, conv, shape, {**steps, "chunk": cached}, blocks)
    (block,) = program.reduce_axes(in_chunk_block=blocks)
    return te.compute(
        shape, lambda *position: te.sum(partial(block, *position), axis=[block]), name="accumulator"
    )


def _source(program: Program, conv: Convolution, plane: Plane) -> Value:
    """The input as whole tiles read it: with its border of zeros as the stage `padded`, or with
    the surplus clamped to the last row and column."""
    if not conv.padded:
        return clamped(program, conv, plane)
    block = data_block(conv, program.candidate.forms) or program.settings["in_block"]
    return program.kept(with_border(program, conv, plane), blocked(block), "padded")


def _products(
    program: Program,
    conv: Convolution,
    shape: tuple[int, ...],
    steps: dict[str, int],
    blocks: int = 0,
) -> te.Tensor:
    """Sums of products over `steps`; with `blocks`, one sum per block of chunks in front."""
    data = _source(program, conv, shape[2:4])
    weights = program.tensors[conv.weight]
    (sh, sw), (dh, dw), lanes = conv.strides, conv.dilation, shape[-1]
    axes = program.reduce_axes(**steps)

    def compute(*position):
        n, o, y, x, lane = position[-5:]
        at = {name: axis.var for name, axis in zip(steps, axes, strict=True)}
        if blocks:
            at["chunk"] = position[0] * steps["chunk"] + at["chunk"]
        channel = at["chunk"] * steps["lane"] + at["lane"]
        if conv.groups > 1:
            group = tirx.floordiv(o, chunk_count(conv.group_out, lanes))
            channel = group * conv.group_in + channel
        product = data.read([n, channel, y * sh + at["ky"] * dh, x * sw + at["kx"] * dw])
        return te.sum(product * weights(o, *at.values(), lane), axis=axes)

    whole, name = ((blocks, *shape), "partial") if blocks else (shape, "accumulator")
    return program.compute(whole, compute, name)


def _schedule(
    schedule: Schedule, conv: Convolution, program: Program, target: Target
) -> tuple[Any, Any]:
    """Everything before the results; the loop that these are computed in, and the outermost loop
    over inputs."""
    settings = program.settings
    anchor = schedule.get_sblock("accumulator")
    n, *plane, lane = schedule.get_loops(anchor)[:5]
    sums = schedule.get_loops(anchor)[5:]
    knobs = ("tile_out", "tile_height", "tile_width")
    tiles, inside = zip(
        *(
            schedule.split(loop, [None, settings[knob]])
            for loop, knob in zip(plane, knobs, strict=True)
        ),
        strict=True,
    )
    pieces, serial = shared_tiles(conv, settings, n, tiles)
    between = [*sums, *serial] if settings["cache_chunks"] else [*serial, *sums]
    schedule.reorder(*pieces, *between, *_by_input(inside), lane)
    parallel = share_out(schedule, pieces)
    register_tile(schedule, inside, lane)
    home = serial[-1] if serial else parallel
    panel = _panel(conv, program, settings, panel_tiles(conv, settings, parallel, serial))
    padding_home = parallel
    if settings["cache_chunks"]:
        inputs = _partial_sums(schedule, settings, home)
        home, padding_home = parallel, sums[0]
    else:
        inputs = _unroll(schedule, settings, sums)
    mark_ahead(schedule, target, panel, inputs)
    if settings["padding"] == "piece":
        _pad_piece(schedule, padding_home)
    return home, sums[0]


def _by_input(inside: Sequence[Any]) -> list[Any]:
    """The loops of a register tile with output channels innermost.

    What is read of an input is then needed for one run of multiply-adds only. The other way round
    LLVM keeps the inputs of the whole tile in registers, and large tiles spill.
    """
    channels, *pixels = inside
    return [*pixels, channels]


def _unroll(schedule: Schedule, settings: dict[str, Any], sums: list[Any]) -> list[Any]:
    """Spell out the loop over the kernel's columns, or a few input lanes; returns all loops."""
    names = str(settings["reduce_order"]).split(",")
    loops = list(sums)
    if settings["unroll"] == "kx":
        schedule.unroll(sums[names.index("kx")])
    if settings["unroll"] == "lanes":
        at = names.index("lane")
        loops[at : at + 1] = schedule.split(sums[at], [None, UNROLLED_LANES])
        schedule.unroll(loops[at + 1])
    return loops


def _panel(
    conv: Convolution, program: Program, settings: dict[str, Any], tiles: list[Tile]
) -> Panel:
    """The weights of a tile's channels, or their part in a block of chunks."""
    shape = [int(extent) for extent in program.tensors[conv.weight].shape]
    distance = int(settings["tile_out"]) * prod(shape[1:])
    if settings["cache_chunks"]:
        chunk = 1 + str(settings["reduce_order"]).split(",").index("chunk")
        distance = int(settings["cache_chunks"]) * prod(shape[chunk + 1 :])
    return Panel(
        argument=conv.weight,
        size=prod(shape),
        distance=distance,
        run=int(settings["tile_out"]) * shape[-1],
        tiles=tiles,
    )


def _partial_sums(schedule: Schedule, settings: dict[str, Any], home: Any) -> list[Any]:
    """Compute one tile's sums over a block of chunks in registers where they are added up; returns
    the loops over inputs."""
    partial = schedule.get_sblock("partial")
    schedule.compute_at(partial, home, preserve_unit_loops=True)
    count = len(str(settings["reduce_order"]).split(","))
    loops = schedule.get_loops(partial)
    sums, (_, *inside, lane) = loops[-count:], loops[-count - 5 : -count]
    schedule.reorder(*sums, *_by_input(inside), lane)
    register_tile(schedule, inside, lane)
    inputs = _unroll(schedule, settings, sums)
    schedule.set_scope(partial, 0, "local")
    schedule.decompose_reduction(partial, sums[0])
    return inputs


def _pad_piece(schedule: Schedule, home: Any) -> None:
    """Make the border of zeros for what one piece reads, in memory of the thread's own."""
    block = schedule.get_sblock("padded")
    schedule.compute_at(block, home, preserve_unit_loops=True)
    lane = schedule.get_loops(block)[-1]
    if int(schedule.get(lane).extent) > 1:
        schedule.vectorize(lane)
