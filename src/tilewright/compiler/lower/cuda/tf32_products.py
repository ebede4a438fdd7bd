"""The kernel of products on the matrix units: that of `cuda_product`, but for its sums.

depth of an instruction within a step
  fragments of either tile, from shared memory into the registers of all lanes
  row of instructions, column of them
    mma.sync                                    # sums of a warp, four in each lane

Which eight depths an instruction gets in which order does not matter as long as both factors agree:
lane t of four has depths 2t and 2t + 1 of them where the manual of PTX says t and t + 4, so that
lanes that read at the same time meet in no bank.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.cuda.products import ProductKernel, lowered
from tilewright.compiler.lower.cuda.statements import SINGLE, buffer, unrolled
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.tf32_products import COLUMNS, DEPTH, LANES_FAST, LANES_SLOW, SPEC

Expr = Any
_OF_SLOW, _OF_FAST, _SUMS = 4, 2, 4
"""Registers of an instruction."""

_ROUND = """
__device__ __forceinline__ float tf32_rounded(float value) {
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
"""

_MULTIPLY = """
__device__ __forceinline__ void tf32_multiplied(float* sums, const float* slow, const float* fast) {
  asm volatile(
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
    : "r"(__float_as_uint(slow[0])), "r"(__float_as_uint(slow[1])),
      "r"(__float_as_uint(slow[2])), "r"(__float_as_uint(slow[3])),
      "r"(__float_as_uint(fast[0])), "r"(__float_as_uint(fast[1])));
}
"""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    return lowered(_Kernel, program, SPEC, target)


class _Kernel(ProductKernel):
    """The statements of one kernel."""

    def _buffers(self) -> None:
        super()._buffers()
        tiles = self.tiles
        sizes = {"fast": tiles.thread_fast, "slow": 2 * tiles.thread_slow}
        self.read = [buffer((size,), f"{name}_read", "local") for name, size in sizes.items()]

    def _put(self, stage: int) -> None:
        """What was fetched, rounded, into shared memory."""
        for axis, fetched in zip(self.axes, self.fetched, strict=True):
            with unrolled(axis.accesses * axis.vector, "i") as i:
                fetched[i] = cuda_func_call(
                    "tf32_rounded", fetched[i], source_code=_ROUND, return_type=SINGLE
                )
        super()._put(stage)

    def _multiply(self, stage: int) -> None:
        """Add a step to the sums."""
        fast, slow = self.read
        with unrolled(self.tiles.depth // DEPTH, "k") as k:
            self._load(stage, k)
            with (
                unrolled(self.tiles.thread_slow // 2, "j") as j,
                unrolled(self.tiles.thread_fast // 2, "i") as i,
            ):
                at = (
                    tirx.address_of(self.sums[self.place(2 * j, 2 * i)]),
                    tirx.address_of(slow[j * _OF_SLOW]),
                    tirx.address_of(fast[i * _OF_FAST]),
                )
                build.evaluate(cuda_func_call("tf32_multiplied", *at, source_code=_MULTIPLY))

    def _load(self, stage: int, k: Expr) -> None:
        """The fragments of either tile for instructions of one depth."""
        simplify = self.program.simplify
        warp, lane = simplify.split(self.thread, LANES_FAST * LANES_SLOW)
        group, within = simplify.split(lane, LANES_FAST)
        across = self.axes[0].threads // LANES_FAST
        warps = (tirx.floormod(warp, across), tirx.floordiv(warp, across))
        for number, (axis, tile, into) in enumerate(
            zip(self.axes, self.shared[stage], self.read, strict=True)
        ):
            tall = axis.threads * axis.width
            first = warps[number] * COLUMNS + group
            with unrolled(axis.tile // tall, "vector") as vector, unrolled(2, "half") as half:
                depth = k * DEPTH + within * 2 + half
                outer, row = (vector // 2, vector % 2) if number else (vector, 0)
                of_instruction = _OF_SLOW if number else _OF_FAST
                at = outer * of_instruction + half * (of_instruction // 2) + row
                into[at] = tile[depth * axis.pitch + vector * tall + first]

    def place(self, slow: Expr, fast: Expr) -> Expr:
        """Where a sum lies among those of its thread: four of an instruction follow each other."""
        instruction = slow // 2 * (self.tiles.thread_fast // 2) + fast // 2
        return instruction * _SUMS + slow % 2 * 2 + fast % 2
