"""Schedule of Winograd F(4×4, 3×3).

    parallel (n, in chunk, tile row): columns of the input transform, then its rows
    parallel (36 positions, out chunks): product over input channels, register tile of tiles × out
    parallel (n, out chunk, tile row): back transform, epilogue

The transforms' matrices enter as selections on unrolled loop variables, so that zeros vanish.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.core.records import Device
from tilewright.graph.layout import PLAIN
from tilewright.kernels.conv2d_winograd import (
    INPUT_TILE,
    INPUT_TRANSFORM,
    OUTPUT_TILE,
    OUTPUT_TRANSFORM,
    input_lanes,
    tiles,
)
from tilewright.kernels.convolution import Convolution, convolution


def lower(program: Program, device: Device) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    lanes = int(program.candidate.setting("lanes"))
    block = input_lanes(conv, program.candidate.layouts, device.lanes_f32)
    transformed = _input_stages(program, conv, block)
    product = _product_stage(program, conv, transformed, (lanes, block))
    index = program.workload.anchor_index
    assert index is not None
    kind = program.workload.step_types(index)[1]
    half = _back_stage(conv, product, lanes)
    program.set_step(index, Value(type=kind, read=_reader(program, half, lanes)))
    schedule = program.schedule()
    _schedule_input(schedule, device)
    _schedule_product(schedule, program, device)
    _schedule_result(schedule, program, device)
    return schedule


def _entry(values: Sequence[int], position: tirx.Expr) -> tirx.Expr:
    """values[position] as selections; a constant once `position` is unrolled."""
    result = tirx.const(float(values[-1]), "float32")
    for number in range(len(values) - 2, -1, -1):
        chosen = tirx.const(float(values[number]), "float32")
        result = tirx.Select(position == number, chosen, result)
    return result


def _combine(
    matrix: Sequence[Sequence[int]], position: tirx.Expr, terms: Sequence[tirx.Expr]
) -> tirx.Expr:
    """sum over rows r of matrix[r][position] * terms[r]."""
    total = None
    for row, term in zip(matrix, terms, strict=True):
        summand = _entry(row, position) * term
        total = summand if total is None else total + summand
    assert total is not None
    return total


def _input_stages(program: Program, conv: Convolution, block: int) -> te.Tensor:
    data = program.operand(conv.data)
    down, across = tiles(conv)
    top, left = conv.padding[:2]
    width = OUTPUT_TILE * across + 2
    chunks = conv.in_channels // block
    shape = (conv.batch, chunks, down, INPUT_TILE, width, block)

    def pixel(n, channel, y, x):
        row, column = y - top, x - left
        inside = tirx.all(row >= 0, row < conv.in_height, column >= 0, column < conv.in_width)
        value = data.read([n, channel, row, column])
        return tirx.if_then_else(inside, value, tirx.const(0, "float32"))

    def columns(n, chunk, ty, e, x, lane):
        program.simplify.announce([n, chunk, ty, e, x, lane], shape)
        channel = chunk * block + lane
        terms = [pixel(n, channel, ty * OUTPUT_TILE + r, x) for r in range(INPUT_TILE)]
        return _combine(INPUT_TRANSFORM, e, terms)

    half = te.compute(shape, columns, name="input_columns")
    count = conv.batch * down * across

    def rows(e, v, chunk, tile, lane):
        n = tirx.floordiv(tile, down * across)
        ty = tirx.floordiv(tirx.floormod(tile, down * across), across)
        tx = tirx.floormod(tile, across)
        terms = [half(n, chunk, ty, e, tx * OUTPUT_TILE + r, lane) for r in range(INPUT_TILE)]
        return _combine(INPUT_TRANSFORM, v, terms)

    return te.compute((INPUT_TILE, INPUT_TILE, chunks, count, block), rows, name="input_tiles")


def _product_stage(
    program: Program, conv: Convolution, transformed: te.Tensor, blocks: tuple[int, int]
) -> te.Tensor:
    lanes, block = blocks
    weights = program.tensors[conv.weight]
    down, across = tiles(conv)
    chunk = te.reduce_axis((0, conv.in_channels // block), "in_chunk")
    inner = te.reduce_axis((0, block), "in_lane")
    shape = (
        INPUT_TILE,
        INPUT_TILE,
        conv.out_channels // lanes,
        conv.batch * down * across,
        lanes,
    )
    return te.compute(
        shape,
        lambda e, v, o, tile, lane: te.sum(
            transformed(e, v, chunk, tile, inner)
            * weights(e * INPUT_TILE + v, o, chunk * block + inner, lane),
            axis=[chunk, inner],
        ),
        name="product",
    )


def _back_stage(conv: Convolution, product: te.Tensor, lanes: int) -> te.Tensor:
    down, across = tiles(conv)

    def columns(*index):
        n, o, ty, i, v, tx, lane = index
        tile = (n * down + ty) * across + tx
        terms = [product(e, v, o, tile, lane) for e in range(INPUT_TILE)]
        return _combine(OUTPUT_TRANSFORM, i, terms)

    shape = (
        conv.batch,
        conv.out_channels // lanes,
        down,
        OUTPUT_TILE,
        INPUT_TILE,
        across,
        lanes,
    )
    return te.compute(shape, columns, name="output_columns")


def _reader(program: Program, half: te.Tensor, lanes: int):
    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        o = program.simplify(tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        ty, i = tirx.floordiv(y, OUTPUT_TILE), tirx.floormod(y, OUTPUT_TILE)
        tx, j = tirx.floordiv(x, OUTPUT_TILE), tirx.floormod(x, OUTPUT_TILE)
        terms = [half(n, o, ty, i, v, tx, lane) for v in range(INPUT_TILE)]
        return _combine(OUTPUT_TRANSFORM, j, terms)

    return read


def _schedule_input(schedule: Schedule, device: Device) -> None:
    tiles_block = schedule.get_sblock("input_tiles")
    e, v, chunk, tile, lane = schedule.get_loops(tiles_block)
    half = schedule.get_sblock("input_columns")
    n, ic, ty, he, x, hl = schedule.get_loops(half)
    rows = int(schedule.get(n).extent) * int(schedule.get(ty).extent)
    across = int(schedule.get(tile).extent) // rows
    tile_row, tx = schedule.split(tile, [None, across])
    schedule.reorder(chunk, tile_row, tx, e, v, lane)
    outer = schedule.fuse(chunk, tile_row)
    schedule.parallel(outer)
    schedule.unroll(v)
    schedule.vectorize(lane)
    schedule.compute_at(half, outer, preserve_unit_loops=True)
    loops = schedule.get_loops(half)
    schedule.reorder(loops[-2], loops[-3])
    schedule.unroll(loops[-3])
    schedule.vectorize(loops[-1])


def _schedule_product(schedule: Schedule, program: Program, device: Device) -> None:
    settings = dict(program.candidate.settings)
    block = schedule.get_sblock("product")
    e, v, o, tile, lane, chunk, inner = schedule.get_loops(block)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    t_outer, t_inner = schedule.split(tile, [None, settings["tile_rows"]])
    local = schedule.cache_write(block, 0, "local")
    if settings["order"] == "channels":
        schedule.reorder(e, v, o_outer, t_outer, chunk, inner, o_inner, t_inner, lane)
        parallel, serial = schedule.fuse(e, v, o_outer), t_outer
    else:
        schedule.reorder(e, v, t_outer, o_outer, chunk, inner, o_inner, t_inner, lane)
        parallel, serial = schedule.fuse(e, v, t_outer), o_outer
    schedule.parallel(parallel)
    schedule.unroll(o_inner)
    schedule.unroll(t_inner)
    schedule.vectorize(lane)
    schedule.reverse_compute_at(local, serial, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(local)[-1])
    schedule.decompose_reduction(block, chunk)


def _schedule_result(schedule: Schedule, program: Program, device: Device) -> None:
    result = schedule.get_sblock("result")
    half = schedule.get_sblock("output_columns")
    if program.result_layout == PLAIN:
        n, channel, y, x = schedule.get_loops(result)
        chunk, lane = schedule.split(channel, [None, program.candidate.setting("lanes")])
    else:
        n, chunk, y, x, lane = schedule.get_loops(result)
    ty, i = schedule.split(y, [None, OUTPUT_TILE])
    tx, j = schedule.split(x, [None, OUTPUT_TILE])
    if program.result_layout == PLAIN:
        schedule.reorder(n, chunk, ty, lane, i, tx, j)
    else:
        schedule.reorder(n, chunk, ty, i, tx, j, lane)
        schedule.vectorize(lane)
    outer = schedule.fuse(n, chunk, ty)
    schedule.parallel(outer)
    schedule.unroll(j)
    schedule.compute_at(half, outer, preserve_unit_loops=True)
    # loops below the parallel one: row, v, across, lane
    row, v, across, half_lane = schedule.get_loops(half)[-4:]
    schedule.reorder(v, across, row, half_lane)
    schedule.unroll(row)
    schedule.vectorize(half_lane)
