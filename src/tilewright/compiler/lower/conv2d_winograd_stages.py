"""Stages and schedule that the Winograd convolutions share.

    parallel (n, in chunk, tile row): columns of the input transform, then its rows
    parallel (positions, out chunks): product over input channels, register tile of tiles × out
    parallel (n, out chunk, tile row): back transform, epilogue

In strips there is one parallel loop, and all three follow each other within it:

    n, parallel (strip of tile rows): input transform, product, back transform, epilogue

The transforms' matrices enter as selections on unrolled loop variables, so that zeros vanish. An
axis without taps has no stages of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.compiler.prefetch import Panel, Tile, mark_ahead
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Target
from tilewright.kernels.blocks import chunk_count
from tilewright.kernels.conv2d_winograd_forms import Transforms, input_lanes
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.winograd_transforms import Matrix, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What the stages are made from; `lanes` and `block` are channels of result and data,
    `strip` the rows of tiles that are done together, 0 for all."""

    form: Transforms
    conv: Convolution
    lanes: int
    block: int
    strip: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Output tiles down and across."""
        return self.form.tiles(self.conv)

    @property
    def chunks(self) -> int:
        """Chunks of output channels; what the last has beyond the result's channels is dropped."""
        return chunk_count(self.conv.out_channels, self.lanes)


def lower_form(program: Program, target: Target, form: Transforms) -> Schedule:
    """Build and schedule the kernel of a Winograd convolution."""
    conv = convolution(program.workload)
    plan = _Plan(
        form=form,
        conv=conv,
        lanes=int(program.candidate.setting("lanes")),
        block=input_lanes(conv, program.candidate.forms, target.lanes(conv.computed_in)),
        strip=int(program.candidate.setting("strip")),
    )
    product = _product_stage(program, plan, _input_stages(program, plan))
    index = program.workload.anchor_index
    assert index is not None
    kind = program.workload.step_types(index)[1]
    half = _back_stage(plan, product)
    program.set_step(index, Value(type=kind, read=_reader(program, plan, half)))
    schedule = program.schedule()
    if plan.strip:
        _schedule_strips(schedule, program, plan)
    else:
        _schedule_stages(schedule, program, plan, target)
    return schedule


def _entry(values: Row, position: tirx.Expr, dtype: str) -> tirx.Expr:
    """values[position] as selections; a constant once `position` is unrolled."""
    result = tirx.const(float(values[-1]), dtype)
    for number in range(len(values) - 2, -1, -1):
        chosen = tirx.const(float(values[number]), dtype)
        result = tirx.Select(position == number, chosen, result)
    return result


def _combine(matrix: Matrix, position: tirx.Expr, terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """sum over columns c of matrix[position][c] * terms[c]."""
    total = None
    for column, term in zip(zip(*matrix, strict=True), terms, strict=True):
        summand = _entry(column, position, mathematics.dtype(term)) * term
        total = summand if total is None else total + summand
    assert total is not None
    return total


def _input_stages(program: Program, plan: _Plan) -> te.Tensor:
    conv, block = plan.conv, plan.block
    vertical, horizontal = plan.form.vertical, plan.form.horizontal
    data = program.operand(conv.data)
    down, across = plan.tiles
    top, left = conv.padding[:2]
    width = horizontal.outputs * across + horizontal.taps - 1
    chunks = conv.in_channels // block
    shape = (conv.batch, chunks, down, vertical.positions, width, block)

    def pixel(n, channel, y, x):
        row, column = y - top, x - left
        inside = tirx.all(row >= 0, row < conv.in_height, column >= 0, column < conv.in_width)
        value = data.read([n, channel, row, column])
        return tirx.if_then_else(inside, value, tirx.const(0, data.type.dtype))

    def columns(n, chunk, ty, e, x, lane):
        program.simplify.announce([n, chunk, ty, e, x, lane], shape)
        channel = chunk * block + lane
        first = ty * vertical.outputs
        terms = [pixel(n, channel, first + r, x) for r in range(vertical.positions)]
        return _combine(vertical.input, e, terms)

    half = te.compute(shape, columns, name="input_columns")
    count = conv.batch * down * across

    def rows(e, v, chunk, tile, lane):
        n = tirx.floordiv(tile, down * across)
        ty = tirx.floordiv(tirx.floormod(tile, down * across), across)
        first = tirx.floormod(tile, across) * horizontal.outputs
        terms = [half(n, chunk, ty, e, first + r, lane) for r in range(horizontal.positions)]
        return _combine(horizontal.input, v, terms)

    tiled = (vertical.positions, horizontal.positions, chunks, count, block)
    return te.compute(tiled, rows, name="input_tiles")


def _product_stage(program: Program, plan: _Plan, transformed: te.Tensor) -> te.Tensor:
    conv, lanes, block = plan.conv, plan.lanes, plan.block
    vertical, horizontal = plan.form.vertical, plan.form.horizontal
    weights = program.tensors[conv.weight]
    down, across = plan.tiles
    chunk = te.reduce_axis((0, conv.in_channels // block), "in_chunk")
    inner = te.reduce_axis((0, block), "in_lane")
    shape = (
        vertical.positions,
        horizontal.positions,
        plan.chunks,
        conv.batch * down * across,
        lanes,
    )
    return te.compute(
        shape,
        lambda e, v, o, tile, lane: te.sum(
            transformed(e, v, chunk, tile, inner)
            * weights(e * horizontal.positions + v, o, chunk * block + inner, lane),
            axis=[chunk, inner],
        ),
        name="product",
    )


def _back_stage(plan: _Plan, product: te.Tensor) -> te.Tensor:
    conv, lanes = plan.conv, plan.lanes
    vertical, horizontal = plan.form.vertical, plan.form.horizontal
    down, across = plan.tiles

    def columns(*index):
        n, o, ty, i, v, tx, lane = index
        tile = (n * down + ty) * across + tx
        terms = [product(e, v, o, tile, lane) for e in range(vertical.positions)]
        return _combine(vertical.output, i, terms)

    shape = (conv.batch, plan.chunks, down, vertical.outputs, horizontal.positions, across, lanes)
    return te.compute(shape, columns, name="output_columns")


def _reader(program: Program, plan: _Plan, half: te.Tensor):
    down, across = plan.form.vertical.outputs, plan.form.horizontal.outputs

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        o = program.simplify(tirx.floordiv(c, plan.lanes))
        lane = program.simplify(tirx.floormod(c, plan.lanes))
        ty, i = tirx.floordiv(y, down), tirx.floormod(y, down)
        tx, j = tirx.floordiv(x, across), tirx.floormod(x, across)
        terms = [half(n, o, ty, i, v, tx, lane) for v in range(plan.form.horizontal.positions)]
        return _combine(plan.form.horizontal.output, j, terms)

    return read


def _schedule_stages(schedule: Schedule, program: Program, plan: _Plan, target: Target) -> None:
    """Every stage over the whole plane, each with a parallel loop of its own."""
    chunk, tile_row = _schedule_input(schedule, plan)
    schedule.parallel(schedule.fuse(chunk, tile_row))
    inputs, tiles = _schedule_product(schedule, program, parallel=True)
    mark_ahead(schedule, target, _panel(program, plan, tiles), inputs)
    schedule.parallel(schedule.fuse(*_schedule_result(schedule, program, plan)))


def _schedule_strips(schedule: Schedule, program: Program, plan: _Plan) -> None:
    """One parallel loop over strips of rows of tiles, with all stages inside."""
    _, strip, _, _ = _schedule_result(schedule, program, plan)
    schedule.parallel(strip)
    schedule.compute_at(schedule.get_sblock("product"), strip, preserve_unit_loops=True)
    _schedule_product(schedule, program, parallel=False)
    schedule.compute_at(schedule.get_sblock("input_tiles"), strip, preserve_unit_loops=True)
    _schedule_input(schedule, plan)


def _schedule_input(schedule: Schedule, plan: _Plan) -> tuple[LoopRV, LoopRV]:
    """Both halves of the input transform; returns its outer loops, over chunks and rows."""
    tiles_block = schedule.get_sblock("input_tiles")
    half = schedule.get_sblock("input_columns")
    e, v, chunk, tile, lane = schedule.get_loops(tiles_block)[-5:]
    tile_row, tx = schedule.split(tile, [None, plan.tiles[1]])
    schedule.reorder(chunk, tile_row, tx, e, v, lane)
    schedule.unroll(v)
    schedule.vectorize(lane)
    if plan.form.horizontal.trivial:
        schedule.unroll(e)
        schedule.compute_inline(half)
        return chunk, tile_row
    schedule.compute_at(half, tile_row, preserve_unit_loops=True)
    loops = schedule.get_loops(half)
    schedule.reorder(loops[-2], loops[-3])
    schedule.unroll(loops[-3])
    schedule.vectorize(loops[-1])
    return chunk, tile_row


def _panel(program: Program, plan: _Plan, tiles: list[Tile]) -> Panel:
    """The transformed weights of a register tile's channels at one position."""
    weights = [int(extent) for extent in program.tensors[plan.conv.weight].shape]
    wide = int(program.candidate.setting("tile_out"))
    return Panel(
        argument=plan.conv.weight,
        size=prod(weights),
        distance=wide * prod(weights[2:]),
        run=wide * weights[-1],
        tiles=tiles,
    )


def _schedule_product(
    schedule: Schedule, program: Program, *, parallel: bool
) -> tuple[list[LoopRV], list[Tile]]:
    """The product's register tile; its outer loops, all but one, are shared out if `parallel`.

    Returns the loops over inputs, and the one over tiles that use the same weights.
    """
    settings = dict(program.candidate.settings)
    block = schedule.get_sblock("product")
    e, v, o, tile, lane, chunk, inner = schedule.get_loops(block)[-7:]
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    t_outer, t_inner = schedule.split(tile, [None, settings["tile_rows"]])
    local = schedule.cache_write(block, 0, "local")
    outer, serial = (o_outer, t_outer) if settings["order"] == "channels" else (t_outer, o_outer)
    schedule.reorder(e, v, outer, serial, chunk, inner, t_inner, o_inner, lane)
    if parallel:
        schedule.parallel(schedule.fuse(e, v, outer))
    schedule.unroll(o_inner)
    schedule.unroll(t_inner)
    schedule.vectorize(lane)
    schedule.reverse_compute_at(local, serial, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(local)[-1])
    schedule.decompose_reduction(block, chunk)
    same = int(schedule.get(serial).extent) if settings["order"] == "channels" else 1
    return [chunk, inner], [(serial, same)]


def _schedule_result(
    schedule: Schedule, program: Program, plan: _Plan
) -> tuple[LoopRV, LoopRV, LoopRV, LoopRV]:
    """Back transform and epilogue; returns the loops over images, strips, chunks and rows."""
    result = schedule.get_sblock("result")
    half = schedule.get_sblock("output_columns")
    plain = program.result_form == PLAIN
    if plain:
        n, channel, y, x = schedule.get_loops(result)
        chunk, lane = schedule.split(channel, [None, program.candidate.setting("lanes")])
    else:
        n, chunk, y, x, lane = schedule.get_loops(result)
    rows, i = schedule.split(y, [None, plan.form.vertical.outputs])
    strip, ty = schedule.split(rows, [None, plan.strip or plan.tiles[0]])
    tx, j = schedule.split(x, [None, plan.form.horizontal.outputs])
    one_axis = plan.form.vertical.trivial or plan.form.horizontal.trivial
    inner = (tx, i, j) if one_axis else (i, tx, j)
    if plain:
        schedule.reorder(n, strip, chunk, ty, lane, *inner)
    else:
        schedule.reorder(n, strip, chunk, ty, *inner, lane)
        schedule.vectorize(lane)
    schedule.unroll(j)
    if one_axis:
        schedule.unroll(i)
        schedule.compute_inline(half)
        return n, strip, chunk, ty
    schedule.compute_at(half, ty, preserve_unit_loops=True)
    # loops below the one over rows of tiles: row, v, across, half_lane
    row, v, across, half_lane = schedule.get_loops(half)[-4:]
    schedule.reorder(v, across, row, half_lane)
    schedule.unroll(row)
    schedule.vectorize(half_lane)
    return n, strip, chunk, ty
