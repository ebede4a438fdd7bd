"""Schedule of the integer convolution.

parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  column tile
    in chunk, kh, kw, four lanes of it          # reduction
      out chunk, row, column                    # register tile, unrolled
        out lane, input channel                 # one dot-product instruction, or vectorised
    epilogue of the tile, in vectors
    plain results only: the tile is written channel by channel
"""

from __future__ import annotations

from functools import reduce

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.dot_products import byte_dot
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, stored
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.blocks import output_block
from tilewright.kernels.conv2d_int8 import OFFSET, compensated, copied, input_block, quad
from tilewright.kernels.convolution import Convolution, convolution

_KIND = "int32"


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    conv = convolution(program.workload)
    lanes = output_block(program.candidate.forms, dict(program.candidate.settings))
    accumulator = _accumulate(program, conv, lanes)
    offset = compensated(program.workload, dict(program.candidate.settings))
    index = program.workload.anchor_index
    assert index is not None
    result_type = program.workload.step_types(index)[1]

    def read(position: Index) -> tirx.Expr:
        n, c, h, w = position
        chunk = program.simplify(tirx.floordiv(c, lanes))
        lane = program.simplify(tirx.floormod(c, lanes))
        total = accumulator(n, chunk, h, w, lane)
        return total + _compensation(program, chunk, lane, lanes) if offset else total

    program.set_step(index, Value(type=result_type, read=read))
    if program.result_form == PLAIN:
        _stage_epilogue(program, lanes)
    schedule = program.schedule()
    _schedule(schedule, conv, program, resources)
    return schedule


def _stage_epilogue(program: Program, lanes: int) -> None:
    """The result in blocks first: a plain one would be computed lane by lane."""
    last = len(program.workload.steps) - 1
    value = program.step_value(last)
    tensor = program.stage(value, blocked(lanes), "epilogue")
    program.set_step(last, stored(tensor, value.type, blocked(lanes), program.simplify))


def _rounded(program: Program, conv: Convolution) -> tuple[int, int]:
    """Rows and columns that whole tiles cover; the surplus is computed and dropped."""
    settings = dict(program.candidate.settings)
    height, width = int(settings["tile_height"]), int(settings["tile_width"])
    return -(-conv.out_height // height) * height, -(-conv.out_width // width) * width


def _source(program: Program, conv: Convolution, plane: tuple[int, int]):
    """A function from (n, chunk, row, column, lane) to a byte: of a copy with its border of zeros,
    or of the data itself with the surplus clamped to the last row and column."""
    arguments = len(program.workload.arguments)
    forms, settings = program.candidate.forms, dict(program.candidate.settings)
    block = input_block(conv, forms, arguments, settings)
    reach = tuple(
        (extent - 1) * stride + (kernel - 1) * dilation + 1
        for extent, stride, kernel, dilation in zip(
            plane, conv.strides, conv.kernel, conv.dilation, strict=True
        )
    )
    if copied(conv, forms, arguments, settings):
        return _copy(program, conv, reach, block)
    data = program.operand(conv.data)
    last = (conv.in_height - 1, conv.in_width - 1)

    def read(n, chunk, y, x, lane):
        if reach[0] - 1 > last[0]:
            y = tirx.min(y, tirx.const(last[0], "int32"))
        if reach[1] - 1 > last[1]:
            x = tirx.min(x, tirx.const(last[1], "int32"))
        return data.read([n, chunk * block + lane, y, x])

    return read


def _copy(program: Program, conv: Convolution, reach: tuple[int, ...], block: int) -> te.Tensor:
    data = program.operand(conv.data)
    top, left = conv.padding[:2]
    n, c, h, w = data.type.shape
    physical = (n, -(-c // block), *reach, block)

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], physical)
        channel = chunk * block + lane
        guards = []
        if conv.padded or reach[0] > h or reach[1] > w:
            guards += [y >= top, y < h + top, x >= left, x < w + left]
        if c % block:
            guards.append(channel < c)
        value = data.read([n, channel, y - top, x - left])
        if not guards:
            return value
        return tirx.if_then_else(tirx.all(*guards), value, tirx.const(0, data.type.dtype))

    return te.compute(physical, compute, name="copy")


def _accumulate(program: Program, conv: Convolution, lanes: int) -> te.Tensor:
    plane = _rounded(program, conv)
    source = _source(program, conv, plane)
    weights = program.tensors[conv.weight]
    settings = dict(program.candidate.settings)
    width = quad(settings)
    block = input_block(conv, program.candidate.forms, len(program.workload.arguments), settings)
    inside, quads = -(-conv.group_in // block), block // width
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    sizes = {"in_chunk": inside, "ky": kh, "kx": kw, "quad": quads, "byte": width}
    axes = [te.reduce_axis((0, extent), name) for name, extent in sizes.items()]
    chunk, ky, kx, quarter, byte = (axis.var for axis in axes)
    program.simplify.announce([axis.var for axis in axes], tuple(sizes.values()))
    offset = OFFSET if compensated(program.workload, settings) else 0

    def compute(n, o, y, x, lane):
        shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
        program.simplify.announce([n, o, y, x, lane], shape)
        first = chunk
        if conv.groups > 1:
            first = tirx.floordiv(o * lanes, conv.group_out) * inside + chunk
        value = source(n, first, y * sh + ky * dh, x * sw + kx * dw, quarter * width + byte)
        wide = tirx.Cast(_KIND, value)
        if offset:
            wide = wide + tirx.const(offset, _KIND)
        slot = ((chunk * kh + ky) * kw + kx) * quads + quarter
        return te.sum(wide * tirx.Cast(_KIND, weights(o, slot, lane, byte)), axis=axes)

    chunks = conv.out_channels // lanes
    return te.compute((conv.batch, chunks, *plane, lanes), compute, name="accumulator")


def _compensation(program: Program, chunk: tirx.Expr, lane: tirx.Expr, lanes: int) -> tirx.Expr:
    """-128 Σw of a channel, from the weights' last slot: byte 0 of all lanes, then byte 1, …"""
    weights = program.tensors[convolution(program.workload).weight]
    last, width = int(weights.shape[1]) - 1, int(weights.shape[3])
    parts = []
    for byte in range(4):
        place = lane + byte * lanes
        part = weights(chunk, last, tirx.floordiv(place, width), tirx.floormod(place, width))
        low = tirx.Cast(_KIND, part) & tirx.const(255, _KIND)
        parts.append(low << tirx.const(8 * byte, _KIND))
    return reduce(lambda a, b: a | b, parts)


def _schedule(
    schedule: Schedule, conv: Convolution, program: Program, resources: Resources
) -> None:
    settings = dict(program.candidate.settings)
    names = {str(schedule.get(b).name_hint) for b in schedule.get_child_blocks(
        schedule.get_sblock("root"))}  # fmt: skip
    if "copy" in names:
        _spread_copy(schedule, resources)
    anchor = schedule.get_sblock("accumulator")
    n, o, y, x, lane, chunk, ky, kx, quarter, byte = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    y_outer, y_inner = schedule.split(y, [None, settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    serial = [x_outer] if conv.out_height > 1 else []
    pixels = [y_outer] if serial else [y_outer, x_outer]
    pieces = [n, o_outer, *pixels] if settings["order"] == "channels" else [n, *pixels, o_outer]
    tile = (y_inner, x_inner, o_inner)
    inside = (lane, byte) if quad(settings) > 1 else (byte, lane)
    schedule.reorder(*pieces, *serial, chunk, ky, kx, quarter, *tile, *inside)
    parallel = schedule.fuse(*pieces)
    schedule.parallel(parallel)
    for loop in tile:
        schedule.unroll(loop)
    schedule.set_scope(anchor, 0, "local")
    _place_results(schedule, names, serial[0] if serial else parallel)
    if quad(settings) == 1:
        schedule.vectorize(lane)
        schedule.decompose_reduction(anchor, chunk)
        return
    start = schedule.decompose_reduction(anchor, chunk)
    schedule.vectorize(schedule.get_loops(start)[-1])
    lanes = output_block(program.candidate.forms, settings)
    schedule.tensorize(lane, byte_dot(lanes, program.operand(conv.data).type.dtype))


def _place_results(schedule: Schedule, names: set[str], loop) -> None:
    """What follows the sums goes into the tile; in vectors where it is in blocks."""
    vectors = ["epilogue", "result"] if "epilogue" in names else ["result"]
    for name in vectors:
        block = schedule.get_sblock(name)
        schedule.reverse_compute_at(block, loop, preserve_unit_loops=True)
        if name == "epilogue":
            schedule.set_scope(block, 0, "local")
    schedule.vectorize(schedule.get_loops(schedule.get_sblock(vectors[0]))[-1])


def _spread_copy(schedule: Schedule, resources: Resources) -> None:
    block = schedule.get_sblock("copy")
    loops = schedule.get_loops(block)
    lanes = int(schedule.get(loops[-1]).extent)
    rows = schedule.fuse(*loops[:3])
    if resources.threads > 1:
        schedule.parallel(rows)
    if lanes > 1:
        schedule.vectorize(schedule.get_loops(block)[-1])
