"""The kernel of products whose tiles come by asynchronous copies: that of `cuda_product`, but for
its steps.

tiles of the first steps, one stage less than there are     # on their way
step along the depth
  wait until the step's own tiles are there                 # copies of this thread, then a barrier:
                                                            # those of all, and all are done with
                                                            # the step before
  tiles of a later step where those of the step before were # on their way
  sums

A step's copies are a group, even one without any, so that as many groups as ever are younger than
the one that is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.cuda.copies import awaited, copied, grouped
from tilewright.compiler.lower.cuda.exchanged_products import ExchangedKernel
from tilewright.compiler.lower.cuda.products import lowered
from tilewright.compiler.lower.cuda.statements import buffer, named, unrolled, where
from tilewright.compiler.lower.cuda.tf32_products import Tf32Kernel, rounded
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.async_products import SPEC, TF32_SPEC

Expr = Any


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    if program.candidate.implementation == SPEC.name:
        return lowered(AsyncKernel, program, SPEC, target)
    return lowered(AsyncTf32Kernel, program, TF32_SPEC, target)


@dataclass(frozen=True)
class _Part:
    """The elements of an array from one on."""

    array: Any
    first: Expr

    def __getitem__(self, at: Expr) -> Expr:
        return self.array[self.first + at]


class AsyncKernel(ExchangedKernel):
    """The statements of one kernel."""

    def _stages(self, scope: str) -> None:
        tiles = self.tiles
        self.tiles_of = [
            buffer((tiles.stages * tiles.depth * axis.pitch,), f"{axis.name}_tiles", scope)
            for axis in self.axes
        ]

    def _summed(self) -> None:
        """All steps."""
        stages, ahead, simplify = self.tiles.stages, self.tiles.ahead, self.program.simplify
        for step in range(ahead):
            self._copy(step, step)
            grouped()
        with named(build.serial(0, self.steps), "step") as step:
            simplify.announce([step], [self.steps])
            awaited(ahead - 1)
            build.evaluate(tirx.op.tvm_storage_sync("shared"))
            with where(step < self.steps - ahead):
                self._copy(step + ahead, tirx.floormod(step + ahead, stages))
            grouped()
            self.shared = {0: self._parts_of(tirx.floormod(step, stages))}
            self._multiply(0)

    def _parts_of(self, stage: Expr) -> list[_Part]:
        """Both tiles of a stage."""
        return [
            _Part(tiles, stage * (self.tiles.depth * axis.pitch))
            for axis, tiles in zip(self.axes, self.tiles_of, strict=True)
        ]

    def _copy(self, step: Expr, stage: Expr) -> None:
        """Begin to copy what a thread copies of both tiles of a step; zeros beyond the extents."""
        number = self.part * self.steps + step
        for axis, first, tile in zip(self.axes, self.first, self._parts_of(stage), strict=True):
            for _, place, depth, there in self._accesses(axis):
                value, asked = self._factor(axis, number, first + place, depth, 0)
                into = tirx.address_of(tile[depth * axis.pitch + place])
                with where(there):
                    copied(into, tirx.address_of(value), axis.vector, asked)


class AsyncTf32Kernel(AsyncKernel, Tf32Kernel):
    """The same on the matrix units."""

    def _load(self, stage: int, k: Expr) -> None:
        """The fragments of either tile, rounded in registers."""
        super()._load(stage, k)
        sizes = (self.axes[0].thread, 2 * self.axes[1].thread)
        for read, size in zip(self.read, sizes, strict=True):
            with unrolled(size, "i") as i:
                read[i] = rounded(read[i])
