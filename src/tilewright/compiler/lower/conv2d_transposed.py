"""Schedule of the transposed convolution.

input with its border                           # parallel, a stage of its own
parallel (n, out chunk tile, row position)      # `order` decides which is outside
  column tile
    row phase, column phase
      in chunk, tap, tap, in lane               # reduction
        out chunk, column                       # register tile, unrolled
          out lane                              # vectorised, or by dot products
    epilogue of all phases of the tile
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import mul
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import finish_tile, share_out
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, bordered, selected, stepped
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.kernels.conv2d_transposed import (
    SPEC,
    GatheringTransposedConvolution,
    TransposedConvolution,
    transposed_convolution,
)
from tilewright.kernels.ports import output_block

_STEPS = 4
"""Loops over steps of a sum: chunks of the input, taps down and across, lanes of a chunk."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    schedule, anchor, first, lane = tiled(program, GatheredDots(SPEC))
    schedule.vectorize(lane)
    schedule.decompose_reduction(anchor, first)
    return schedule


@dataclass(frozen=True, slots=True)
class GatheredDots:
    """What one kind of products is made of: the `spec`, how many of the data's values, as they are
    `taken` in a `kind` of element, are multiplied together, and the `product` of one and a
    weight."""

    spec: GatheringTransposedConvolution
    terms: int = 1
    kind: str = ""
    taken: Callable[[Any], tirx.Expr] = lambda value: value
    product: Callable[[Any, Any], tirx.Expr] = mul


def tiled(program: Program, dots: GatheredDots) -> tuple[Schedule, Any, Any, Any]:
    """The schedule but for what computes the lanes: that, the block of the sums, and its loops over
    steps and over lanes, behind which lie the terms where there are several."""
    conv = transposed_convolution(program.workload)
    lanes = output_block(program.candidate.forms, program.settings)
    accumulator = _accumulator(program, conv, dots, lanes)

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        split = program.simplify.split
        chunk, lane = split(c, lanes)
        return accumulator(
            n, chunk, *split(y, conv.rows.count), *split(x, conv.columns.count), lane
        )

    schedule, settings = program.schedule(read), program.settings
    *outer, _, vector = schedule.get_loops(schedule.get_sblock("padded"))
    share_out(schedule, outer)
    schedule.vectorize(vector)
    anchor = schedule.get_sblock("accumulator")
    n, o, qy, ry, qx, rx, lane, *reduction = schedule.get_loops(anchor)
    o_outer, o_inner = schedule.split(o, [None, settings["tile_out"]])
    x_outer, x_inner = schedule.split(qx, [None, settings["tile_width"]])
    pieces = [n, o_outer, qy] if settings["order"] == "channels" else [n, qy, o_outer]
    steps, terms = reduction[:_STEPS], reduction[_STEPS:]
    schedule.reorder(*pieces, x_outer, ry, rx, *steps, x_inner, o_inner, lane, *terms)
    share_out(schedule, pieces)
    for loop in (o_inner, x_inner):
        schedule.unroll(loop)
    finish_tile(schedule, anchor, x_outer, vectors=program.result_form != PLAIN)
    return schedule, anchor, steps[0], lane


def _accumulator(
    program: Program, conv: TransposedConvolution, dots: GatheredDots, lanes: int
) -> te.Tensor:
    block = dots.spec.input_block(conv, program.candidate.forms)
    weights = program.tensors[conv.weight]
    rows, columns = conv.rows, conv.columns
    tile = program.settings["tile_width"]
    across = -(-columns.positions // tile) * tile
    (top, bottom), (left, right) = rows.border(rows.positions), columns.border(across)
    operand = program.operand(conv.data)
    kind = TensorType(operand.type.shape, dots.kind or operand.type.dtype)
    taken = Value(kind, lambda position: dots.taken(operand.read(position)))
    data = bordered(taken, (top, left, bottom, right))
    padded = program.stage(data, blocked(block), "padded")
    taps = {"tap_y": rows.taps, "tap_x": columns.taps}
    many = {"term": dots.terms} if dots.terms > 1 else {}
    axes = program.reduce_axes(
        in_chunk=conv.group_in // block, **taps, in_lane=block // dots.terms, **many
    )
    inputs, ty, tx, inner, *term = (axis.var for axis in axes)
    base = stepped if term else partial(selected, dtype="int32")
    place = inner * dots.terms + term[0] if term else inner

    def compute(*position):
        n, o, qy, ry, qx, rx, lane = position
        chunk = inputs
        if conv.groups > 1:
            group = program.simplify(tirx.floordiv(o * lanes, conv.group_out))
            chunk = group * (conv.group_in // block) + inputs
        y = qy + base(rows.base, ry) + top - ty * rows.advance
        x = qx + base(columns.base, rx) + left - tx * columns.advance
        weight = weights(o, ry, rx, inputs, ty, tx, inner, lane, *term)
        return te.sum(dots.product(padded(n, chunk, y, x, place), weight), axis=axes)

    plane = (rows.positions, rows.count, across, columns.count)
    shape = (conv.batch, conv.out_channels // lanes, *plane, lanes)
    return program.compute(shape, compute, "accumulator")
