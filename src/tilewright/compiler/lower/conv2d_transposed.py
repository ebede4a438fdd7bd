"""Schedule of the transposed convolution.

input with its border                           # parallel, a stage of its own
parallel (n, out chunk tile, row position)      # `order` decides which is outside
  column tile
    row phase, column phase
      in chunk, tap, tap, slot                  # reduction
        out chunk, column                       # register tile, unrolled
          out lane, term                        # vectorised, or by dot products
    epilogue of all phases of the tile
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from operator import mul
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import by_instruction, finish_tile, gather, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.run_sums import Factors
from tilewright.compiler.lower.values import Read, stepped
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_transposed import (
    SPEC,
    GatheringTransposedConvolution,
    transposed_convolution,
)
from tilewright.kernels.ports import chunk_count, output_block

STEPS = ("in_chunk", "tap_y", "tap_x", "slot", "term")
"""Loops over a sum: blocks of the input, taps down and across, slots of a block, what is multiplied
together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredDots:
    """What one kind of products is made of: the `spec`, how the data's values are `taken` into the
    copy, in whose `border` all is that number, and the `product` of one and a weight. It is what
    `instruction`, the tensor intrinsic of that name, computes for all lanes; empty where products
    are vectorised. `imported` is LLVM's text of what the instruction calls."""

    spec: GatheringTransposedConvolution
    taken: Callable[[Any], tirx.Expr] = lambda value: value
    border: int = 0
    product: Callable[[Any, Any], tirx.Expr] = mul
    instruction: str = ""
    imported: str = ""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    dots = GatheredDots(spec=SPEC)
    return scheduled(program, dots, of_result(program, accumulated(program, dots)))


def accumulated(program: Program, dots: GatheredDots) -> te.Tensor:
    """The stage `accumulator`: sums of products, [n, out chunk, row position, row phase, column
    position, column phase, lane]."""
    shape, steps, factors_at = factors(program, dots)
    axes = program.reduce_axes(**steps)
    at = {name: axis.var for name, axis in zip(steps, axes, strict=True)}

    def compute(*position):
        return te.sum(dots.product(*factors_at(position, at)), axis=axes)

    return program.compute(shape, compute, "accumulator")


def of_result(program: Program, accumulator: te.Tensor) -> Read:
    """Reads sums at positions of the result."""
    conv = transposed_convolution(program.workload)
    lanes, split = int(accumulator.shape[-1]), program.simplify.split

    def read(position: Any) -> tirx.Expr:
        n, c, y, x = position
        chunk, lane = lane_of(program, c, lanes)
        return accumulator(
            n, chunk, *split(y, conv.rows.count), *split(x, conv.columns.count), lane
        )

    return read


def lane_of(program: Program, channel: tirx.Expr, lanes: int) -> tuple[tirx.Expr, tirx.Expr]:
    """The chunk of an output channel, and its place there."""
    conv = transposed_convolution(program.workload)
    if conv.group_out % lanes == 0 or conv.groups == 1:
        return program.simplify.split(channel, lanes)
    group, within = program.simplify.split(channel, conv.group_out)
    chunk, lane = program.simplify.split(within, lanes)
    return program.simplify(group * chunk_count(conv.group_out, lanes) + chunk), lane


def scheduled(program: Program, dots: GatheredDots, read: Read) -> Schedule:
    """The schedule of a program whose anchor's result is read so."""
    schedule = program.schedule(read)
    nest = tiled(program, schedule, dots.spec)
    if dots.imported:
        schedule.annotate(nest.parallel, "pragma_import_llvm", dots.imported)
    for loop in nest.tile:
        schedule.unroll(loop)
    finished(program, schedule, nest)
    if dots.instruction:
        by_instruction(schedule, nest.anchor, nest.steps[0], nest.lane, dots.instruction)
    else:
        schedule.vectorize(nest.lane)
        schedule.decompose_reduction(nest.anchor, nest.steps[0])
    return schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """The loops of the block `anchor`, which adds up: the `parallel` one, that over tiles of
    columns (`home`), those over `steps` of a sum, those over a register `tile`, and lanes."""

    anchor: Any
    parallel: Any
    home: Any
    steps: list[Any]
    tile: list[Any]
    lane: Any


def finished(program: Program, schedule: Schedule, nest: Nest) -> None:
    """The results of a tile behind its sums, or all of them behind all sums."""
    lanes = output_block(program.candidate.forms, program.settings)
    if transposed_convolution(program.workload).gathered(lanes):
        gather(schedule, nest.anchor, nest.home)
    else:
        finish_tile(schedule, nest.anchor, nest.home, vectors=program.result_form != PLAIN)


def tiled(program: Program, schedule: Schedule, spec: GatheringTransposedConvolution) -> Nest:
    """The input copied, and the loops over sums in their order."""
    conv, settings = transposed_convolution(program.workload), program.settings
    block = spec.input_block(conv, program.candidate.forms, settings)
    *outer, vector = schedule.get_loops(schedule.get_sblock("padded"))
    together = gcd(conv.group_in, block)
    if together < block:
        vector = schedule.split(vector, [None, together])[1]
    share_out(schedule, outer)
    schedule.vectorize(vector)
    anchor = schedule.get_sblock("accumulator")
    n, o, qy, ry, qx, rx, lane, *steps = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    x_outer, x_inner = schedule.split(qx, [None, settings["tile_width"]])
    pieces = [n, o_outer, qy] if settings["order"] == "channels" else [n, qy, o_outer]
    term = steps[len(STEPS) - 1 :]
    steps = steps[: len(STEPS) - 1]
    schedule.reorder(*pieces, x_outer, ry, rx, *steps, x_inner, o_inner, lane, *term)
    parallel = share_out(schedule, pieces)
    return Nest(
        anchor=anchor,
        parallel=parallel,
        home=x_outer,
        steps=steps,
        tile=[o_inner, x_inner],
        lane=lane,
    )


def factors(
    program: Program, dots: GatheredDots
) -> tuple[tuple[int, ...], dict[str, int], Factors]:
    """The shape of the sums, the steps of each by name, the outermost first, and what is multiplied
    at a position and a step."""
    conv, settings = transposed_convolution(program.workload), program.settings
    spec, weights = dots.spec, program.tensors[conv.weight]
    block = spec.input_block(conv, program.candidate.forms, settings)
    terms, rows, columns = spec.terms(settings), conv.rows, conv.columns
    lanes = output_block(program.candidate.forms, settings)
    across = -(-columns.positions // settings["tile_width"]) * settings["tile_width"]
    (top, bottom), (left, right) = rows.border(rows.positions), columns.border(across)
    padded = _padded(program, dots, block, (top, left, bottom, right))
    inside, slots = conv.inside(block), block // terms
    steps = dict(zip(STEPS, (inside, rows.taps, columns.taps, slots, terms), strict=True))

    def factors_at(position, at):
        n, o, qy, ry, qx, rx, lane = position
        chunk, ty, tx, slot, term = (at[name] for name in STEPS)
        first = chunk
        if conv.groups > 1:
            group = tirx.floordiv(o, chunk_count(conv.group_out, lanes))
            first = program.simplify(group) * inside + chunk
        y = qy + stepped(rows.base, ry) + top - ty * rows.advance
        x = qx + stepped(columns.base, rx) + left - tx * columns.advance
        phase = (o * rows.count + ry) * columns.count + rx
        place = ((chunk * rows.taps + ty) * columns.taps + tx) * slots + slot
        return padded(n, first, y, x, slot * terms + term), weights(phase, place, lane, term)

    plane = (rows.positions, rows.count, across, columns.count)
    chunks = chunk_count(conv.out_channels, lanes, conv.groups)
    return (conv.batch, chunks, *plane, lanes), steps, factors_at


def _padded(
    program: Program, dots: GatheredDots, block: int, padding: tuple[int, ...]
) -> te.Tensor:
    """The input with its border, in blocks of channels, behind the last of which in each group
    there may be zeros: [n, block, row, column, channel of it]."""
    conv = transposed_convolution(program.workload)
    data, (top, left, bottom, right) = program.operand(conv.data), padding
    inside, together = conv.inside(block), gcd(conv.group_in, block)
    *_, height, width = data.type.shape

    def compute(n, chunk, y, x, lane):
        guards = [y >= top, y < height + top, x >= left, x < width + left]
        channel = chunk * block + lane
        if together < block:
            group, part = program.simplify.split(chunk, inside)
            channel = group * conv.group_in + part * block + lane
            # the same for all that lie in a vector
            vector = tirx.floordiv(lane, together) * together
            guards.append(part * block + vector < conv.group_in)
        value = dots.taken(data.read([n, channel, y - top, x - left]))
        border = tirx.const(dots.border, value.ty.dtype)
        return tirx.if_then_else(tirx.all(*guards), value, border)

    plane = (height + top + bottom, width + left + right)
    return program.compute((conv.batch, conv.groups * inside, *plane, block), compute, "padded")
