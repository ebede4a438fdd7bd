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

from tilewright.compiler.lower.conv2d_direct_data import source
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.compiler.prefetch import Panel, Tile, mark_ahead
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.blocks import chunk_count, output_block
from tilewright.kernels.conv2d_direct import ragged_groups, reduction
from tilewright.kernels.conv2d_direct_knobs import UNROLLED_LANES
from tilewright.kernels.convolution import Convolution, convolution


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    settings = dict(program.candidate.settings)
    lanes = output_block(program.candidate.forms, settings)
    accumulator = _accumulate(program, conv, lanes)
    index = program.workload.anchor_index
    assert index is not None
    result_type = program.workload.step_types(index)[1]

    def read(position: Index) -> tirx.Expr:
        n, c, h, w = position
        first = tirx.const(0, "int32")
        if ragged_groups(conv, lanes):
            chunks = chunk_count(conv.group_out, lanes)
            first = program.simplify(tirx.floordiv(c, conv.group_out)) * chunks
            c = program.simplify(tirx.floormod(c, conv.group_out))
        chunk = program.simplify(first + tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        return accumulator(n, chunk, h, w, lane)

    program.set_step(index, Value(type=result_type, read=read))
    schedule = program.schedule()
    _schedule(schedule, conv, program, target, resources)
    return schedule


def _rounded(program: Program, conv: Convolution) -> tuple[int, int]:
    """Rows and columns that whole tiles cover; the surplus is computed and dropped."""
    settings = dict(program.candidate.settings)
    height, width = int(settings["tile_height"]), int(settings["tile_width"])
    return -(-conv.out_height // height) * height, -(-conv.out_width // width) * width


def _accumulate(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    """The stage `accumulator`; with cached chunks it adds up blocks of the stage `partial`."""
    settings = dict(program.candidate.settings)
    plane = _rounded(program, conv)
    chunks = chunk_count(conv.out_channels, lanes, conv.groups)
    shape = (conv.batch, chunks, *plane, lanes)
    steps = reduction(conv, settings)
    cached = int(settings["cache_chunks"])
    if not cached:
        return _products(program, conv, shape, steps)
    blocks = steps["chunk"] // cached
    partial = _products(program, conv, shape, {**steps, "chunk": cached}, blocks)
    block = te.reduce_axis((0, blocks), "in_chunk_block")

    def compute(*position):
        return te.sum(partial(block, *position), axis=[block])

    return te.compute(shape, compute, name="accumulator")


def _products(
    program: Program,
    conv: Convolution,
    shape: tuple[int, ...],
    steps: dict[str, int],
    blocks: int = 0,
) -> te.Tensor:
    """Sums of products over `steps`; with `blocks`, one sum per block of chunks in front."""
    data = source(program, conv, (shape[2], shape[3]))
    weights = program.tensors[conv.weight]
    (sh, sw), (dh, dw), lanes = conv.strides, conv.dilation, shape[-1]
    axes = {name: te.reduce_axis((0, extent), name) for name, extent in steps.items()}
    program.simplify.announce([a.var for a in axes.values()], tuple(steps.values()))

    def compute(*position):
        program.simplify.announce(position, (blocks, *shape) if blocks else shape)
        n, o, y, x, lane = position[-5:]
        at = {name: axis.var for name, axis in axes.items()}
        if blocks:
            at["chunk"] = position[0] * steps["chunk"] + at["chunk"]
        channel = at["chunk"] * steps["lane"] + at["lane"]
        if conv.groups > 1:
            group = tirx.floordiv(o, chunk_count(conv.group_out, lanes))
            channel = group * conv.group_in + channel
        product = data.read([n, channel, y * sh + at["ky"] * dh, x * sw + at["kx"] * dw])
        return te.sum(product * weights(o, *at.values(), lane), axis=list(axes.values()))

    if blocks:
        return te.compute((blocks, *shape), compute, name="partial")
    return te.compute(shape, compute, name="accumulator")


def _schedule(
    schedule: Schedule, conv: Convolution, program: Program, target: Target, resources: Resources
) -> None:
    settings = dict(program.candidate.settings)
    if settings["padding"] == "stage":
        _spread_padding(schedule, resources)
    anchor = schedule.get_sblock("accumulator")
    loops = schedule.get_loops(anchor)
    tiles, inside = [], []
    for loop, knob in zip(loops[1:4], ("tile_out", "tile_height", "tile_width"), strict=True):
        outer, inner = schedule.split(loop, [None, settings[knob]])
        tiles.append(outer)
        inside.append(inner)
    pieces, serial = _pieces(conv, settings, loops[0], tiles)
    lane, sums = loops[4], loops[5:]
    between = [*sums, *serial] if settings["cache_chunks"] else [*serial, *sums]
    schedule.reorder(*pieces, *between, *_by_input(inside), lane)
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    _register_tile(schedule, inside, lane)
    home = serial[-1] if serial else parallel
    panel = _panel(conv, program, settings, _panel_tiles(conv, settings, parallel, serial))
    if settings["cache_chunks"]:
        inputs = _partial_sums(schedule, settings, home)
        home = parallel
    else:
        inputs = _unroll(schedule, settings, sums)
    mark_ahead(schedule, target, panel, inputs)
    if settings["padding"] == "piece":
        _pad_piece(schedule, sums[0] if settings["cache_chunks"] else parallel)
    result = schedule.get_sblock("result")
    if ragged_groups(conv, output_block(program.candidate.forms, settings)):
        _gather(schedule, anchor, None if settings["cache_chunks"] else home)
        schedule.decompose_reduction(anchor, sums[0])
        return
    if not settings["cache_chunks"]:
        schedule.set_scope(anchor, 0, "local")
    schedule.reverse_compute_at(result, home, preserve_unit_loops=True)
    if program.result_form != PLAIN:
        schedule.vectorize(schedule.get_loops(result)[-1])
    schedule.decompose_reduction(anchor, sums[0])


def _gather(schedule: Schedule, anchor: Any, home: Any) -> None:
    """Sums leave the registers of a tile at `home`, where they are kept there; the result is made
    of all of them afterwards."""
    if home is not None:
        kept = schedule.cache_write(anchor, 0, "local")
        schedule.reverse_compute_at(kept, home, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(kept)[-1])
    result = schedule.get_loops(schedule.get_sblock("result"))
    schedule.parallel(schedule.fuse(*result[:2]))


def _pieces(
    conv: Convolution, settings: dict[str, Any], n: Any, tiles: list[Any]
) -> tuple[list[Any], list[Any]]:
    """The loops over tiles that are spread over threads, outermost first, and the others."""
    o, y, x = tiles
    cached = bool(settings["cache_chunks"])
    if settings["order"] == "tiles":
        return [n, o, y, x], []
    if settings["order"] == "channels":
        if cached:
            return [n, o], [y, x]
        return ([n, o, y], [x]) if conv.out_height > 1 else ([n, o, y, x], [])
    if conv.out_height > 1 or cached:
        return [n, y, o], [x]
    return [n, y, x, o], []


def _by_input(inside: Sequence[Any]) -> list[Any]:
    """The loops of a register tile with output channels innermost.

    What is read of an input is then needed for one run of multiply-adds only. The other way round
    LLVM keeps the inputs of the whole tile in registers, and large tiles spill.
    """
    channels, *pixels = inside
    return [*pixels, channels]


def _register_tile(schedule: Schedule, inside: list[Any], lane: Any) -> None:
    for loop in inside:
        schedule.unroll(loop)
    schedule.vectorize(lane)


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


def _panel_tiles(
    conv: Convolution, settings: dict[str, Any], parallel: Any, serial: list[Any]
) -> list[Tile]:
    """The loops over the tiles that use the same weights one after the other, and their counts."""
    down = -(-conv.out_height // int(settings["tile_height"]))
    across = -(-conv.out_width // int(settings["tile_width"]))
    if len(serial) == 2:
        return [(serial[0], down), (serial[1], across)]
    alone = settings["order"] == "rows" or settings["cache_chunks"]
    if serial:
        return [(parallel, 1 if alone else down), (serial[0], across)]
    return [(parallel, 1 if alone else down * across)]


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
    _register_tile(schedule, inside, lane)
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


def _spread_padding(schedule: Schedule, resources: Resources) -> None:
    block = schedule.get_sblock("padded")
    loops = schedule.get_loops(block)
    lanes = int(schedule.get(loops[-1]).extent)
    rows = schedule.fuse(*loops[:3])
    if resources.threads > 1:
        schedule.parallel(rows)
    if lanes > 1:
        schedule.vectorize(schedule.get_loops(block)[-1])
