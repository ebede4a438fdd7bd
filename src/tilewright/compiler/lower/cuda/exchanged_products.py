"""The kernel of products whose lanes exchange results: that of `cuda_product`, but for its stores.

row of a thread, vector of neighbours
  turn of a bit
    shuffle                                     # with the lane whose place along the slow axis
                                                # differs in that bit
  row that a lane has now
    epilogue and store of one result, side by side with those of other lanes

A vector of four is a matrix of four lanes along the slow axis by four neighbours.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.cuda.exchanges import exchange
from tilewright.compiler.lower.cuda.products import ProductKernel, lowered
from tilewright.compiler.lower.cuda.statements import buffer, elements, unrolled, where
from tilewright.compiler.lower.cuda.tf32_products import Tf32Kernel
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.exchanged_products import SPEC, TF32_SPEC
from tilewright.kernels.cuda.product_tiles import WARP

Expr = Any


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    if program.candidate.implementation == SPEC.name:
        return lowered(ExchangedKernel, program, SPEC, target)
    return lowered(ExchangedTf32Kernel, program, TF32_SPEC, target)


class ExchangedKernel(ProductKernel):
    """The statements of one kernel."""

    def _written(self) -> None:
        """The sums of a thread, with the epilogue or as one part of several, after each lane has
        given its neighbours to others and got one place of several rows for them."""
        if not self.tiles.exchanges:
            super()._written()
            return
        fast, slow = self.axes
        given, sent = buffer((fast.width,), "given", "local"), buffer((1,), "sent", "local")
        self.line = tirx.floordiv(tirx.floormod(self.thread, WARP), int(self.tiles.lanes_fast))
        own = tirx.floormod(self.line, fast.width)
        with (
            unrolled(slow.thread, "j") as j,
            unrolled(fast.thread // fast.width, "vector") as vector,
        ):
            with elements(fast.width, spelled=True) as place:
                given[place] = self.sums[j * fast.thread + vector * fast.width + place]
            exchange(given, sent, self.line, int(self.tiles.lanes_fast))
            outer, inner = self.program.simplify.split(j, slow.width)
            lane = tirx.floordiv(self.mine[1], fast.width) * fast.width
            first = self.first[1] + (outer * slow.threads + lane) * slow.width + inner
            at_fast = self.first[0] + self._at(0, vector) + own
            with unrolled(fast.width, "row") as row:
                self._row(first + row * slow.width, at_fast, given[row])

    def _row(self, at_slow: Expr, at_fast: Expr, total: Expr) -> None:
        """One result, or one part of it."""
        fast, slow = self.axes
        index = partial(self._index, self.matrix, at_slow, at_fast)
        inside = (
            at_slow < slow.extent if slow.extent % slow.tile else None,
            at_fast < fast.extent if fast.extent % fast.tile else None,
        )
        with where(*inside, *self.factors.beyond(self.matrix, index())):
            if self.parts is None:
                self._results(1, lambda _: total, lambda _: index())
            else:
                self.parts[self.part, self.matrix, at_slow, at_fast] = total


class ExchangedTf32Kernel(ExchangedKernel, Tf32Kernel):
    """The same on the matrix units."""
