"""The kernel of products on the matrix units: that of `cuda_product`, but for its sums.

depth of an instruction within a step
  fragments of either tile, from shared memory into the registers of all lanes
  row of instructions, column of them
    mma.sync                                    # sums of a warp, four in each lane

Which depths, rows and columns of a tile an instruction gets in which order does not matter, as long
as its factors and sums agree. Where the manual of PTX has depths t and t + 4 for lane t of four,
they are 2t and 2t + 1 here: lanes that read at the same time meet in no bank. Where it has rows g
and g + 8, they are 2g and 2g + 1: a lane reads both at once. Both of one depth become neighbours in
registers, as the instruction wants them; of columns, it wants both depths of one side by side.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.cuda.products import ProductKernel, lowered
from tilewright.compiler.lower.cuda.statements import SINGLE, buffer, elements, unrolled
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.product_tiles import WARP
from tilewright.kernels.cuda.tf32_products import DEPTH, GROUPS, LANES_FAST, LANES_SLOW, SPEC

Expr = Any
_ROUND = """
__device__ __forceinline__ float tf32_rounded(float value) {
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
"""

_MULTIPLY = """
__device__ __forceinline__ void tf32_multiplied(
    float* upper, float* lower, const float* slow, const float* fast) {
  asm volatile(
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
    : "r"(__float_as_uint(slow[0])), "r"(__float_as_uint(slow[1])),
      "r"(__float_as_uint(slow[2])), "r"(__float_as_uint(slow[3])),
      "r"(__float_as_uint(fast[0])), "r"(__float_as_uint(fast[1])));
}
"""


def rounded(value: Expr) -> Expr:
    """A factor in tf32."""
    return cuda_func_call("tf32_rounded", value, source_code=_ROUND, return_type=SINGLE)


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    return lowered(Tf32Kernel, program, SPEC, target)


class Tf32Kernel(ProductKernel):
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
                fetched[i] = rounded(fetched[i])
        super()._put(stage)

    def _multiply(self, stage: int) -> None:
        """Add a step to the sums."""
        fast, slow = self.axes
        with unrolled(self.tiles.depth // DEPTH, "k") as k:
            self._load(stage, k)
            with (
                unrolled(slow.thread // 2, "row") as row,
                unrolled(fast.thread // 2, "column") as column,
            ):
                upper = 2 * row * fast.thread + 2 * column
                places = (
                    *(self.sums[upper], self.sums[upper + fast.thread]),
                    *(self.read[1][4 * row], self.read[0][2 * column]),
                )
                pointers = map(tirx.address_of, places)
                build.evaluate(cuda_func_call("tf32_multiplied", *pointers, source_code=_MULTIPLY))

    def _load(self, stage: int, k: Expr) -> None:
        """The fragments of either tile for instructions of one depth: of each lane, for either half
        of the depth, what it has of neighbours."""
        simplify = self.program.simplify
        warp, lane = simplify.split(self.thread, WARP)
        group, within = simplify.split(lane, LANES_FAST)
        across = self.axes[0].threads // LANES_FAST
        warps = (tirx.floormod(warp, across), tirx.floordiv(warp, across))
        lanes = (LANES_FAST, LANES_SLOW)
        for axis, tile, into, mine, beside in zip(
            self.axes, self.shared[stage], self.read, warps, lanes, strict=True
        ):
            own = axis.width * beside // GROUPS
            first = (mine * GROUPS + group) * own
            with (
                unrolled(axis.thread // axis.width, "vector") as vector,
                unrolled(2, "half") as half,
                elements(own) as each,
            ):
                depth = k * DEPTH + within * 2 + half
                at = vector * (axis.threads * axis.width) + first + each
                into[(vector * 2 + half) * own + each] = tile[depth * axis.pitch + at]
