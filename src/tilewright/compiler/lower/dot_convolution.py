"""Schedule of convolutions by dot products.

[the input rounded, in blocks, with its border of zeros]
parallel (n, out chunk tile, row tile)          # `order` decides which is outside
  column tile
    in chunk, kh, kw, some lanes of it          # reduction
      out chunk, row, column                    # register tile, unrolled
        out lane, input channel                 # one dot-product instruction, or vectorised
    epilogue of the tile, in vectors
    plain results only: the tile is written channel by channel
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from operator import mul
from typing import Any

from tvm import DataType, te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.byte_dots import code_of, word_of_codes
from tilewright.compiler.lower.conv2d_windows import clamped, panel_tiles, shared_tiles
from tilewright.compiler.lower.loops import finish_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import Factors
from tilewright.compiler.prefetch import Panel, Tile, mark_ahead
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_dots import DotConvolution, widened
from tilewright.kernels.convolution import Convolution, Plane, convolution, reach, whole_tiles
from tilewright.kernels.ports import chunk_count, output_block


def as_it_is(value: tirx.Expr) -> tirx.Expr:
    """Elements as they are multiplied."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """What one kind of dot products is made of.

    `product` multiplies an element of the input by a weight, as `instruction`, the tensor intrinsic
    of that name, does for all lanes; it is empty where products are vectorised instead. Elements of
    the input are `taken` so. `imported` is LLVM's text of what the instruction
    calls. With `pixels` the input is copied as words of four codes, so many at a time.
    """

    spec: DotConvolution
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = mul
    instruction: str = ""
    taken: Callable[[tirx.Expr], tirx.Expr] = as_it_is
    imported: str = ""
    border: int = 0
    pixels: int = 0


def accumulated(program: Program, dots: Dots) -> te.Tensor:
    """The stage `accumulator`: sums of products, [n, out chunk, row, column, lane]."""
    shape, steps, factors_at = factors(program, dots)
    axes = program.reduce_axes(**steps)
    at = {name: axis.var for name, axis in zip(steps, axes, strict=True)}

    def compute(n, o, y, x, lane):
        return te.sum(dots.product(*factors_at((n, o, y, x, lane), at)), axis=axes)

    return program.compute(shape, compute, "accumulator")


def factors(program: Program, dots: Dots) -> tuple[tuple[int, ...], dict[str, int], Factors]:
    """The shape of the sums, [n, out chunk, row, column, lane], the steps of each by name, the
    outermost first, and what is multiplied at a position and a step."""
    conv, settings = convolution(program.workload), program.settings
    plane, spec = whole_tiles(conv, settings), dots.spec
    lanes = output_block(program.candidate.forms, settings)
    weights, terms = program.tensors[conv.weight], spec.terms(settings)
    block = spec.input_block(conv, program.candidate.forms, settings)
    fold = spec.folded(conv, program.candidate.forms, settings)
    conv = widened(conv, fold)
    source = _source(program, dots, conv, plane, block, fold)
    inside, slots = -(-conv.group_in // block), fold * block // terms
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.strides, conv.dilation
    steps = {"in_chunk": inside, "ky": kh, "kx": kw // fold, "slot": slots, "term": terms}

    def factors_at(position, at):
        n, o, y, x, lane = position
        chunk, ky, kx, slot, term = (at[name] for name in steps)
        first = chunk
        if conv.groups > 1:
            first = tirx.floordiv(o * lanes, conv.group_out) * inside + chunk
        column = x * sw + kx * (fold * dw)
        value = source(n, first, y * sh + ky * dh, column, slot * terms + term)
        place = ((chunk * kh + ky) * (kw // fold) + kx) * slots + slot
        return value, weights(o, place, lane, term)

    shape = (conv.batch, chunk_count(conv.out_channels, lanes, conv.groups), *plane, lanes)
    return shape, steps, factors_at


def _source(
    program: Program, dots: Dots, conv: Convolution, plane: Plane, block: int, fold: int
) -> Callable[..., tirx.Expr]:
    """A function from (n, chunk, row, column, lane) to an element: of a copy with its border of
    zeros, or of the data itself with the surplus clamped to the last row and column. In a copy for
    `fold` taps, lanes go on with those of the next columns."""
    if not dots.spec.copied(conv, program.candidate.forms, program.settings):
        beyond = dots.spec.overruns(conv, program.candidate.forms, program.settings)
        data = program.operand(conv.data) if beyond else clamped(program, conv, plane)
        return lambda n, chunk, y, x, lane: dots.taken(data.read([n, chunk * block + lane, y, x]))
    if dots.pixels:
        return _words(program, dots, conv, plane)
    data = program.operand(conv.data)
    rows, columns = reach(conv, plane)
    top, left = conv.padding[:2]
    n, c, h, w = data.type.shape
    together = gcd(c, block)

    def compute(n, chunk, y, x, lane):
        channel = chunk * block + lane
        guards = []
        if conv.padded or rows > h or columns > w:
            guards += [y >= top, y < h + top, x >= left, x < w + left]
        if c % block:  # the same for all that lie in a vector
            guards.append(chunk * block + tirx.floordiv(lane, together) * together < c)
        value = dots.taken(data.read([n, channel, y - top, x - left]))
        if not guards:
            return value
        return tirx.if_then_else(tirx.all(*guards), value, tirx.const(dots.border, value.ty.dtype))

    chunks = -(-c // block)
    if fold == 1:
        return program.compute((n, chunks, rows, columns, block), compute, "copy")

    def flat(n, chunk, y, place):
        return compute(n, chunk, y, *program.simplify.split(place, block))

    copy = program.compute((n, chunks, rows, columns * block), flat, "copy")
    return lambda n, chunk, y, x, lane: copy(n, chunk, y, x * block + lane)


def _words(
    program: Program, dots: Dots, conv: Convolution, plane: Plane
) -> Callable[..., tirx.Expr]:
    """As `_source`: of a copy of words [n, row, column], each the codes of a pixel. A border on the
    left is as wide as whole vectors, so that a vector is of data or of the border alone."""
    data, vector = program.operand(conv.data), dots.pixels
    n, c, h, w = data.type.shape
    rows, columns = reach(conv, plane)
    top, left = conv.padding[:2]
    ahead = -(-left // vector)
    width = -(-(ahead * vector - left + columns) // vector) * vector

    def compute(n, y, x):
        at = tirx.floordiv(x, vector)
        guards = [y >= top, y < h + top, at >= ahead, at < ahead + w // vector]
        read = (dots.taken(data.read([n, k, y - top, x - ahead * vector])) for k in range(c))
        border = tirx.const(dots.border * 0x01010101, "uint32")
        return tirx.if_then_else(tirx.all(*guards), word_of_codes([*read]), border)

    copy = program.compute((n, rows, width), compute, "copy")

    def code(n, chunk, y, x, lane):
        word = copy(n, y, x + (ahead * vector - left))
        return code_of(word, program.simplify(lane), "uint8")

    return code


def filled(schedule: Schedule, channels: int, block: int, threads: int) -> None:
    """Spread the copy of the input over threads, as many lanes in a vector as are channels or
    none."""
    *outer, lane = schedule.get_loops(schedule.get_sblock("copy"))
    share_out(schedule, outer[:3], threads)
    together = gcd(channels, block)
    if int(schedule.get(lane).extent) > together:
        lane = schedule.split(lane, [None, together])[1]
    if together > 1:
        schedule.vectorize(lane)


def scheduled(program: Program, dots: Dots, target: Target, resources: Resources) -> Schedule:
    """The schedule of a program whose anchor is set."""
    conv, settings = convolution(program.workload), program.settings
    with_epilogue(program, output_block(program.candidate.forms, settings))
    schedule = program.schedule()
    if dots.spec.copied(conv, program.candidate.forms, settings):
        block = dots.spec.input_block(conv, program.candidate.forms, settings)
        if dots.pixels:
            *rows, column = schedule.get_loops(schedule.get_sblock("copy"))
            share_out(schedule, rows, resources.threads)
            schedule.vectorize(schedule.split(column, [None, dots.pixels])[1])
        else:
            filled(schedule, conv.in_channels, block, resources.threads)
    anchor = schedule.get_sblock("accumulator")
    n, o, y, x, lane, chunk, ky, kx, slot, term = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    y_outer, y_inner = schedule.split(y, [None, settings["tile_height"]])
    x_outer, x_inner = schedule.split(x, [None, settings["tile_width"]])
    pieces, serial = shared_tiles(conv, settings, n, (o_outer, y_outer, x_outer))
    tile = (y_inner, x_inner, o_inner)
    inside = (lane, term) if dots.instruction else (term, lane)
    schedule.reorder(*pieces, *serial, chunk, ky, kx, slot, *tile, *inside)
    parallel = share_out(schedule, pieces)
    if dots.imported:
        schedule.annotate(parallel, "pragma_import_llvm", dots.imported)
    panel = _panel(program, panel_tiles(conv, settings, parallel, serial))
    mark_ahead(schedule, target, panel, (chunk, ky, kx, slot))
    for loop in tile:
        schedule.unroll(loop)
    finished(program, schedule, serial[0] if serial else parallel)
    if not dots.instruction:
        schedule.vectorize(lane)
        schedule.decompose_reduction(anchor, chunk)
        return schedule
    start = schedule.decompose_reduction(anchor, chunk)
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.tensorize(lane, dots.instruction)
    return schedule


def _panel(program: Program, tiles: Sequence[Tile]) -> Panel:
    """The weights of a register tile's channels."""
    weight = convolution(program.workload).weight
    shape = [int(extent) for extent in program.tensors[weight].shape]
    chunks = int(program.settings["tile_out"])
    return Panel(
        argument=weight,
        size=prod(shape),
        distance=chunks * prod(shape[1:]),
        run=chunks * prod(shape[2:]),
        tiles=tiles,
        element_bytes=DataType(str(program.tensors[weight].dtype)).bits // 8,
        apart=True,
    )


def with_epilogue(program: Program, lanes: int) -> None:
    """Compute a plain result in blocks first, where they divide it: it would be computed lane by
    lane."""
    if _in_blocks_first(program, lanes):
        last = len(program.workload.types) - 1
        program.values[last] = program.kept(program.operand(last), blocked(lanes), "epilogue")


def _in_blocks_first(program: Program, lanes: int) -> bool:
    whole = convolution(program.workload).out_channels % lanes == 0
    return program.result_form == PLAIN and whole


def finished(program: Program, schedule: Schedule, home: Any) -> None:
    """The results of a tile behind its sums, within the loop `home`."""
    plain = program.result_form == PLAIN
    if _in_blocks_first(program, output_block(program.candidate.forms, program.settings)):
        epilogue = schedule.get_sblock("epilogue")
        schedule.reverse_compute_at(epilogue, home, preserve_unit_loops=True)
        schedule.set_scope(epilogue, 0, "local")
        schedule.vectorize(schedule.get_loops(epilogue)[-1])
    finish_tile(schedule, schedule.get_sblock("accumulator"), home, vectors=not plain)
