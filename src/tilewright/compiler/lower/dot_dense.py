"""Schedule of dense layers by dot products.

    [the data copied, rounded or filled up]
    parallel (row tile, column chunk)     # `order` decides which is outside
      slots along the depth
        row, vector of the block          # register tile, unrolled
          column, value of the slot       # one dot-product instruction, or vectorised
      epilogue of the tile

Rows beyond the last one are computed as in `dense_packed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.dense_packed import ahead, finished, tiled
from tilewright.compiler.lower.loops import by_instruction, spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Value, filled
from tilewright.core.targets import Resources, Target
from tilewright.kernels.matrix_products import MatrixProduct, product


def _as_it_is(value: tirx.Expr) -> tirx.Expr:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseDots:
    """What one kind of dot products is made of.

    `terms` values of the data lie in a slot. `product` multiplies one by a weight, as
    `instruction`, the tensor intrinsic of that name, does for all lanes; it is empty where products
    are vectorised instead. Values are `taken` so, into a copy where `copied`. `imported` is LLVM's
    text of what the instruction calls. A weight takes `weight_bytes`.
    """

    terms: int
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
    instruction: str
    copied: bool
    weight_bytes: int
    taken: Callable[[tirx.Expr], tirx.Expr] = _as_it_is
    imported: str = ""


def scheduled(program: Program, dots: DenseDots, target: Target, resources: Resources) -> Schedule:
    """The schedule of a program whose anchor is set."""
    dense, lanes = product(program.workload), target.lanes(program.workload.computed_in)
    schedule = program.schedule()
    if dots.copied:
        spread(schedule, schedule.get_sblock("copy"), lanes, resources.threads)
    nest = tiled(schedule, dense, program.settings, lanes)
    anchor = schedule.get_sblock("accumulator")
    if not dots.instruction:
        schedule.reorder(schedule.get_loops(anchor)[-1], nest.lane)
    if dots.imported:
        schedule.annotate(nest.parallel, "pragma_import_llvm", dots.imported)
    first = ahead(schedule, target, dense, nest, dots.terms, dots.weight_bytes)
    for loop in nest.tile:
        schedule.unroll(loop)
    finished(schedule, dense, nest, lanes)
    if dots.instruction:
        by_instruction(schedule, anchor, first, nest.lane, dots.instruction)
    else:
        schedule.vectorize(nest.lane)
        schedule.decompose_reduction(anchor, first)
    return schedule


def _slots(dense: MatrixProduct, dots: DenseDots) -> int:
    return -(-dense.depth // dots.terms)


def rows_in_slots(
    program: Program,
    data: Value,
    terms: int,
    taken: Callable[[tirx.Expr], tirx.Expr],
    *,
    copied: bool,
) -> Callable[..., tirx.Expr]:
    """Elements of rows as they are `taken`, so many terms in each slot, of which the last is filled
    up with zeros; `copied` to memory first, as the stage `copy`, or where they are."""
    *rows, depth = data.type.shape

    def element(*position: tirx.Expr) -> tirx.Expr:
        *leading, place = position
        return filled(lambda at: taken(data.read([*leading, at])), place, depth, terms)

    shape = (*rows, -(-depth // terms) * terms)
    return program.compute(shape, element, "copy") if copied else element


def accumulated(program: Program, dots: DenseDots) -> te.Tensor:
    """The stage `accumulator`: sums of products, [rows, column chunk, column]."""
    dense, settings, terms = product(program.workload), program.settings, dots.terms
    data, weights = program.operand(dense.data), program.tensors[dense.weight]
    slots, block = _slots(dense, dots), settings["block"]
    *rows, _ = data.type.shape
    source = rows_in_slots(program, data, terms, dots.taken, copied=dots.copied)
    axes = program.reduce_axes(slot=slots, term=terms)
    slot, term = (axis.var for axis in axes)
    covered, axis = list(rows), dense.row_axis
    if axis is not None:
        tile = settings["tile_rows"]
        covered[axis] = -(-dense.rows // tile) * tile

    def compute(*position):
        *leading, chunk, lane = position
        if axis is not None and covered[axis] > dense.rows:
            leading[axis] = tirx.min(leading[axis], dense.rows - 1)
        value = source(*leading, slot * terms + term)
        return te.sum(dots.product(value, weights(chunk, slot, lane, term)), axis=axes)

    return program.compute((*covered, -(-dense.columns // block), block), compute, "accumulator")
