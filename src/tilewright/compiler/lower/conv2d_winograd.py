"""Schedule of the Winograd convolutions, whatever their tiles.

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
from functools import reduce
from math import gcd, prod

from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.half_dots import (
    half_dot,
    half_dot_text,
    half_product,
    half_rounding,
    rounding_text,
)
from tilewright.compiler.lower.int16_dots import int16_dot, int16_product
from tilewright.compiler.lower.loops import register_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import added_in_runs, runs_within
from tilewright.compiler.lower.values import Index, selected
from tilewright.compiler.lower.wrapped import wrapped_product, wrapped_sum, wrapped_text
from tilewright.compiler.prefetch import Panel, Tile, mark_ahead
from tilewright.core.element_types import element_type
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.base import FLOAT16, HALF
from tilewright.kernels.conv2d_winograd import WinogradConvolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.halves import PAIR
from tilewright.kernels.ports import chunk_count
from tilewright.kernels.registry import implementation
from tilewright.kernels.winograd_transforms import Matrix, Transform

WHOLE = "int16"
_WIDEST = 16
"""Lanes of the widest dot product of halves, and of the widest rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What the stages are made from: the transforms down the columns and along the rows, and output
    tiles down and across; `chunks` of `lanes` are the result's channels, what the last one has
    beyond them is dropped; `block` are channels of the data, `strip` the rows of tiles that are
    done together, 0 for all; `factors` are multiplied in that element type, `register`
    sums of it in a vector, `run` products to a sum in halves, 0 where sums are singles."""

    conv: Convolution
    vertical: Transform
    horizontal: Transform
    down: int
    across: int
    lanes: int
    chunks: int
    block: int
    strip: int
    factors: str
    register: int
    run: int
    divisor: int

    @property
    def pairs(self) -> bool:
        """Whether factors are multiplied in pairs, by dot products."""
        return self.factors in (HALF, WHOLE)

    @property
    def whole(self) -> bool:
        """Whether factors are whole numbers of 16 bits."""
        return self.factors == WHOLE

    @property
    def dots(self) -> int:
        """Lanes of a dot product."""
        return gcd(self.lanes, _WIDEST)

    @property
    def rounded(self) -> int:
        """Singles that are rounded together."""
        return gcd(self.block, _WIDEST)


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    plan = _planned(program, target)
    half = _back_stage(plan, _product_stage(program, plan, _input_stages(program, plan)))
    rows, columns = plan.vertical.outputs, plan.horizontal.outputs

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        o, lane = program.simplify.split(c, plan.lanes)
        ty, i = tirx.floordiv(y, rows), tirx.floormod(y, rows)
        tx, j = tirx.floordiv(x, columns), tirx.floormod(x, columns)
        terms = [half(n, o, ty, i, v, tx, lane) for v in range(plan.horizontal.positions)]
        if plan.whole:
            return _divided(_wrapped(plan.horizontal.output, j, terms), plan.divisor)
        return _combine(plan.horizontal.output, j, terms)

    schedule = program.schedule(read)
    if plan.strip:
        first = _schedule_strips(schedule, program, plan)
    else:
        first = _schedule_planes(schedule, program, plan, target)
    if plan.pairs:
        schedule.annotate(first, "pragma_import_llvm", _imported(plan, target))
        lane = schedule.get_loops(schedule.get_sblock("product_update"))[-2]
        dot = int16_dot if plan.whole else half_dot
        schedule.tensorize(lane, dot(plan.dots))
    return schedule


def _imported(plan: _Plan, target: Target) -> str:
    """LLVM's text of what the kernel calls."""
    if plan.whole:
        return "".join(map(wrapped_text, {1, plan.lanes}))
    return half_dot_text(target, plan.dots) + rounding_text(plan.rounded)


def _planned(program: Program, target: Target) -> _Plan:
    conv, candidate = convolution(program.workload), program.candidate
    spec: WinogradConvolution = implementation(candidate.implementation)
    form, lanes = spec.form(conv), program.settings["lanes"]
    down, across = form.tiles(conv)
    return _Plan(
        conv=conv,
        vertical=form.vertical,
        horizontal=form.horizontal,
        down=down,
        across=across,
        lanes=lanes,
        chunks=chunk_count(conv.out_channels, lanes),
        block=spec.input_lanes(conv, candidate.forms, target),
        strip=program.settings["strip"],
        factors=spec.factors,
        register=spec.register(conv.computed_in, target),
        run=spec.run(conv),
        divisor=spec.divisor(conv),
    )


def _combine(matrix: Matrix, position: tirx.Expr, terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """sum over columns c of matrix[position][c] * terms[c]."""
    columns = zip(zip(*matrix, strict=True), terms, strict=True)
    summands = (
        selected(column, position, mathematics.dtype(term)) * term for column, term in columns
    )
    return reduce(lambda total, summand: total + summand, summands)


def _wrapped(matrix: Matrix, position: tirx.Expr, terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """The same, of which the lowest 32 bits are kept."""
    columns = zip(zip(*matrix, strict=True), terms, strict=True)
    summands = (wrapped_product(selected(c, position, "int32"), term) for c, term in columns)
    return reduce(wrapped_sum, summands)


def _divided(total: tirx.Expr, divisor: int) -> tirx.Expr:
    """What times `divisor` has these lowest bits: its odd part is divided by as in numbers modulo
    2³², its power of two by a shift."""
    power = divisor & -divisor
    inverse = pow(divisor // power, -1, 2**32)
    signed = inverse - 2**32 if inverse >= 2**31 else inverse
    product = wrapped_product(tirx.const(signed, "int32"), total)
    return product >> tirx.const(power.bit_length() - 1, "int32")


def _input_stages(program: Program, plan: _Plan) -> te.Tensor:
    conv, block = plan.conv, plan.block
    vertical, horizontal = plan.vertical, plan.horizontal
    data = program.operand(conv.data)
    top, left = conv.padding[:2]
    chunks = conv.in_channels // block

    def pixel(n, channel, y, x):
        row, column = y - top, x - left
        inside = tirx.all(row >= 0, row < conv.in_height, column >= 0, column < conv.in_width)
        value = data.read([n, channel, row, column])
        return tirx.if_then_else(inside, value, tirx.const(0, data.type.dtype))

    def of_tile(n, chunk, ty, r, x, lane):
        return pixel(n, chunk * block + lane, ty * vertical.outputs + r, x)

    width = horizontal.outputs * plan.across + horizontal.taps - 1
    shape = (conv.batch, chunks, plan.down, vertical.positions, width, block)
    read = of_tile
    if plan.whole:
        read = te.compute(shape, lambda *at: tirx.Cast(WHOLE, of_tile(*at)), name="input_pixels")

    def columns(n, chunk, ty, e, x, lane):
        terms = [read(n, chunk, ty, r, x, lane) for r in range(vertical.positions)]
        return _combine(vertical.input, e, terms)

    half = program.compute(shape, columns, "input_columns")

    def rows(e, v, chunk, tile, lane):
        n = tirx.floordiv(tile, plan.down * plan.across)
        ty = tirx.floordiv(tirx.floormod(tile, plan.down * plan.across), plan.across)
        first = tirx.floormod(tile, plan.across) * horizontal.outputs
        terms = [half(n, chunk, ty, e, first + r, lane) for r in range(horizontal.positions)]
        return _combine(horizontal.input, v, terms)

    count = conv.batch * plan.down * plan.across
    tiled = (vertical.positions, horizontal.positions, chunks, count, block)
    if plan.run:
        return te.compute(tiled, lambda *at: tirx.Cast(FLOAT16, rows(*at)), name="input_tiles")
    if plan.whole or not plan.pairs:
        return te.compute(tiled, rows, name="input_tiles")
    singles = te.compute(tiled, rows, name="input_rows")
    return te.compute(tiled, lambda *at: mathematics.nearest_half(singles(*at)), name="input_tiles")


def _product_stage(program: Program, plan: _Plan, transformed: te.Tensor) -> te.Tensor:
    conv, block = plan.conv, plan.block
    down, across = plan.vertical.positions, plan.horizontal.positions
    weights = program.tensors[conv.weight]
    count = conv.batch * plan.down * plan.across
    shape = (down, across, plan.chunks, count, plan.lanes)
    if plan.run:

        def factors(position, at):
            e, v, o, tile, lane = position
            inner = at["run"] * plan.run + at["term"]
            place = (e * across + v, o, at["chunk"] * block + inner, lane)
            return transformed(e, v, at["chunk"], tile, inner), weights(*place)

        runs = {"chunk": conv.in_channels // block, "run": block // plan.run}
        return added_in_runs(program, shape, runs, {"term": plan.run}, factors, "product")
    terms = PAIR if plan.pairs else 1
    extents = {"in_chunk": conv.in_channels // block, "in_lane": block // terms}
    if plan.pairs:
        extents["term"] = terms
    axes = program.reduce_axes(**extents)
    chunk, inner = axes[:2]
    of_pair = int16_product if plan.whole else half_product

    def product(e, v, o, tile, lane):
        place = (e * across + v, o, chunk * (block // terms) + inner, lane)
        if not plan.pairs:
            return te.sum(transformed(e, v, chunk, tile, inner) * weights(*place), axis=axes)
        value = transformed(e, v, chunk, tile, inner * terms + axes[2])
        return te.sum(of_pair(value, weights(*place, axes[2])), axis=axes)

    return te.compute(shape, product, name="product")


def _back_stage(plan: _Plan, product: te.Tensor) -> te.Tensor:
    vertical, horizontal = plan.vertical, plan.horizontal

    def columns(*index):
        n, o, ty, i, v, tx, lane = index
        tile = (n * plan.down + ty) * plan.across + tx
        terms = [product(e, v, o, tile, lane) for e in range(vertical.positions)]
        combine = _wrapped if plan.whole else _combine
        return combine(vertical.output, i, terms)

    tiles = (plan.down, vertical.outputs, horizontal.positions, plan.across)
    shape = (plan.conv.batch, plan.chunks, *tiles, plan.lanes)
    return te.compute(shape, columns, name="output_columns")


def _schedule_planes(schedule: Schedule, program: Program, plan: _Plan, target: Target) -> LoopRV:
    """Every stage over the whole plane, each with a parallel loop of its own; the first one."""
    first = share_out(schedule, _schedule_input(schedule, plan))
    inputs, tiles = _schedule_product(schedule, program, plan, parallel=True)
    mark_ahead(schedule, target, _panel(program, plan, tiles), inputs)
    share_out(schedule, _schedule_result(schedule, program, plan))
    return first


def _schedule_strips(schedule: Schedule, program: Program, plan: _Plan) -> LoopRV:
    """One parallel loop over strips of rows of tiles, with all stages inside; that loop."""
    _, strip, _, _ = _schedule_result(schedule, program, plan)
    schedule.parallel(strip)
    schedule.compute_at(schedule.get_sblock("product"), strip, preserve_unit_loops=True)
    _schedule_product(schedule, program, plan, parallel=False)
    schedule.compute_at(schedule.get_sblock("input_tiles"), strip, preserve_unit_loops=True)
    _schedule_input(schedule, plan)
    return strip


def _schedule_input(schedule: Schedule, plan: _Plan) -> tuple[LoopRV, LoopRV]:
    """Both halves of the input transform; returns its outer loops, over chunks and rows."""
    half = schedule.get_sblock("input_columns")
    e, v, chunk, tile, lane = schedule.get_loops(schedule.get_sblock("input_tiles"))[-5:]
    tile_row, tx = schedule.split(tile, [None, plan.across])
    schedule.reorder(chunk, tile_row, tx, e, v, lane)
    if plan.pairs and not plan.whole:
        _round_tiles(schedule, plan, e, v, lane)
    else:
        register_tile(schedule, [v], lane)
    if plan.horizontal.trivial:
        schedule.unroll(e)
        schedule.compute_inline(half)
        return chunk, tile_row
    schedule.compute_at(half, tile_row, preserve_unit_loops=True)
    row, column, lane = schedule.get_loops(half)[-3:]
    schedule.reorder(column, row)
    register_tile(schedule, [row], lane)
    if plan.whole:
        pixels = schedule.get_sblock("input_pixels")
        schedule.compute_at(pixels, tile_row, preserve_unit_loops=True)
        schedule.vectorize(schedule.get_loops(pixels)[-1])
    return chunk, tile_row


def _round_tiles(schedule: Schedule, plan: _Plan, e: LoopRV, v: LoopRV, lane: LoopRV) -> None:
    """The input transform's last half in registers, and its rounding."""
    singles = schedule.get_sblock("input_rows")
    schedule.compute_at(singles, e, preserve_unit_loops=True)
    schedule.set_scope(singles, 0, "local")
    register_tile(schedule, [schedule.get_loops(singles)[-4]], schedule.get_loops(singles)[-1])
    schedule.unroll(v)
    schedule.tensorize(schedule.split(lane, [None, plan.rounded])[1], half_rounding(plan.rounded))


def _panel(program: Program, plan: _Plan, tiles: list[Tile]) -> Panel:
    """The transformed weights of a register tile's channels at one position."""
    weights = [int(extent) for extent in program.tensors[plan.conv.weight].shape]
    wide = program.settings["tile_out"]
    return Panel(
        argument=plan.conv.weight,
        size=prod(weights),
        distance=wide * prod(weights[2:]),
        run=wide * prod(weights[3:]),
        tiles=tiles,
        element_bytes=element_type(plan.factors).bytes,
    )


def _schedule_product(
    schedule: Schedule, program: Program, plan: _Plan, *, parallel: bool
) -> tuple[list[LoopRV], list[Tile]]:
    """The product's register tile; its outer loops, all but one, are shared out if `parallel`.

    Returns the loops over inputs, and the one over tiles that use the same weights.
    """
    settings = program.settings
    block = schedule.get_sblock("product")
    if plan.run:
        return _schedule_runs(schedule, program, plan, parallel=parallel)
    pair = [schedule.get_loops(block)[-1]] if plan.pairs else []
    e, v, o, tile, lane, chunk, inner = schedule.get_loops(block)[-7 - len(pair) :][:7]
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    t_outer, t_inner = schedule.split(tile, [None, settings["tile_rows"]])
    local = schedule.cache_write(block, 0, "local")
    outer, serial = (o_outer, t_outer) if settings["order"] == "channels" else (t_outer, o_outer)
    vectors = []
    if plan.pairs:
        vector, lane = schedule.split(lane, [None, plan.dots])
        vectors = [vector]
    tile_loops = (t_inner, o_inner, *vectors)
    schedule.reorder(e, v, outer, serial, chunk, inner, *tile_loops, lane, *pair)
    if parallel:
        share_out(schedule, [e, v, outer])
    for loop in tile_loops:
        schedule.unroll(loop)
    schedule.reverse_compute_at(local, serial, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(local)[-1])
    if not plan.pairs:
        schedule.vectorize(lane)
    start = schedule.decompose_reduction(block, chunk)
    if plan.pairs:
        schedule.vectorize(schedule.get_loops(start)[-1])
    same = int(schedule.get(serial).extent) if settings["order"] == "channels" else 1
    return [chunk, inner], [(serial, same)]


def _schedule_runs(
    schedule: Schedule, program: Program, plan: _Plan, *, parallel: bool
) -> tuple[list[LoopRV], list[Tile]]:
    """The same with a register tile of halves, which is widened and added run by run."""
    settings = program.settings
    block = schedule.get_sblock("product")
    e, v, o, tile, lane, chunk, run = schedule.get_loops(block)[-7:]
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    t_outer, t_inner = schedule.split(tile, [None, settings["tile_rows"]])
    outer, serial = (o_outer, t_outer) if settings["order"] == "channels" else (t_outer, o_outer)
    schedule.reorder(e, v, outer, serial, chunk, run, t_inner, o_inner, lane)
    if parallel:
        share_out(schedule, [e, v, outer])
    register_tile(schedule, [t_inner, o_inner], lane)
    runs_within(schedule, run, gcd(plan.lanes, plan.register), channels=-3)
    schedule.decompose_reduction(block, chunk)
    same = int(schedule.get(serial).extent) if settings["order"] == "channels" else 1
    return [chunk, run], [(serial, same)]


def _schedule_result(
    schedule: Schedule, program: Program, plan: _Plan
) -> tuple[LoopRV, LoopRV, LoopRV, LoopRV]:
    """Back transform and epilogue; returns the loops over images, strips, chunks and rows."""
    result = schedule.get_sblock("result")
    half = schedule.get_sblock("output_columns")
    plain = program.result_form == PLAIN
    if plain or program.result_form == CHANNELS_LAST:
        n, *axes = schedule.get_loops(result)
        channel, y, x = axes if plain else (axes[-1], *axes[:-1])
        chunk, lane = schedule.split(channel, [None, plan.lanes])
    else:
        n, chunk, y, x, lane = schedule.get_loops(result)
    rows, i = schedule.split(y, [None, plan.vertical.outputs])
    strip, ty = schedule.split(rows, [None, plan.strip or plan.down])
    tx, j = schedule.split(x, [None, plan.horizontal.outputs])
    one_axis = plan.vertical.trivial or plan.horizontal.trivial
    in_registers = plan.whole and not plain
    inner = (tx, i, j) if one_axis or in_registers else (i, tx, j)
    if plain:
        schedule.reorder(n, strip, chunk, ty, lane, *inner)
    else:
        schedule.reorder(n, strip, chunk, ty, *inner, lane)
        schedule.vectorize(lane)
    schedule.unroll(j)
    if one_axis or in_registers:
        schedule.unroll(i)
    if one_axis:
        schedule.compute_inline(half)
        return n, strip, chunk, ty
    if in_registers:
        schedule.compute_at(half, tx, preserve_unit_loops=True)
        schedule.set_scope(half, 0, "local")
        row, v, _, half_lane = schedule.get_loops(half)[-4:]
        register_tile(schedule, [row, v], half_lane)
        return n, strip, chunk, ty
    schedule.compute_at(half, ty, preserve_unit_loops=True)
    # loops below the one over rows of tiles: row, v, across, half_lane
    row, v, across, half_lane = schedule.get_loops(half)[-4:]
    schedule.reorder(v, across, row, half_lane)
    register_tile(schedule, [row], half_lane)
    return n, strip, chunk, ty
