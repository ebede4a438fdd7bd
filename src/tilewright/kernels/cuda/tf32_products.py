"""Products of matrices on the matrix units of GPUs, with factors rounded to tf32.

The tiles are those of `cuda_product`, but a warp computes a tile of its own: by instructions that
multiply 16 rows of depth 8 by 8 columns, whose factors and sums lie in the registers of all of its
lanes (PTX ISA, `mma.sync.m16n8k8`). Columns lie along the axis along which results lie side by
side, so that a lane has two of them at a time, and four lanes write a whole sector.

Factors are rounded to ten bits behind the point once, on their way to shared memory; sums are
singles. That is what is wrong by more than the usual errors of sums, so the implementation competes
only where an error as large as that is allowed (`--max-error`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Column
from tilewright.cost.floors import Work, least_work
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob, anchored
from tilewright.kernels.cuda.product_costs import Arithmetic
from tilewright.kernels.cuda.product_tiles import VECTOR, Product, Tiles, product
from tilewright.kernels.cuda.products import CudaProducts, up_to

ROWS, COLUMNS, DEPTH = 16, 8, 8
"""Of one instruction: rows lie along the slow axis, columns along the fast one."""
LANES_SLOW, LANES_FAST = 8, 4
"""How the lanes of a warp lie in the sums of an instruction: each has two of either axis."""
GROUPS = 8
"""Of lanes that read factors of the same rows or columns at four depths."""
_SLOW_TILES, _FAST_TILES = (16, 32, 64, 128, 256), (8, 16, 32, 64, 128, 256)
_SLOW_WARPS, _FAST_WARPS = (16, 32, 64), (8, 16, 32, 64)
_TF32 = "tf32"
_ROUNDING = 3.0
"""Instructions: a comparison, an addition and a mask."""
_ROUNDED = 2.0**-11
"""Of a factor, relative to it: ten bits behind the point, to the nearest."""
_CUT_OFF = 2.0**-23
"""Of the sum of one instruction, relative to sum |w||x| so far: it is cut off to single precision,
and so are its terms before they are added up (Fasi et al., "Numerical behavior of NVIDIA tensor
cores", 2021)."""


class WarpTiles(Tiles):
    """How a product is cut for matrix units: the sums of a thread are those that it has in the
    instructions of its warp."""

    @property
    def whole(self) -> Any:
        """Whether there are warps along both axes."""
        return (self.threads_fast >= LANES_FAST) & (self.threads_slow >= LANES_SLOW)

    @property
    def lanes_fast(self) -> Any:
        """Lanes of a warp along the fast axis."""
        return LANES_FAST

    @property
    def lanes_slow(self) -> Any:
        """Lanes of a warp along the slow axis."""
        return LANES_SLOW

    @property
    def widths(self) -> tuple[Any, Any]:
        """Neighbouring results that a thread has along either axis."""
        return COLUMNS // LANES_FAST, ROWS // LANES_SLOW

    def pitches(self, product: Product) -> tuple[Any, Any]:
        """Elements from one depth to the next of either tile in shared memory: with four more than
        a tile has, lanes that read neighbours at four depths, two apart, meet in no bank."""
        return self.fast + VECTOR, self.slow + VECTOR


def _multiplications(tiles: Tiles) -> Column:
    """Instructions of a warp in a step that multiply."""
    of_slow, of_fast = tiles.thread_slow * LANES_SLOW // ROWS, tiles.thread_fast * LANES_FAST
    return tiles.depth // DEPTH * of_slow * (of_fast // COLUMNS)


def _lines(tiles: Tiles) -> Column:
    """What the lanes of a warp read of shared memory in a step, a single of each a line."""
    return tiles.depth // DEPTH * (2 * tiles.thread_slow + tiles.thread_fast)


def _issued(tiles: Tiles) -> Column:
    loads = tiles.depth // DEPTH * (tiles.thread_slow + tiles.thread_fast)
    return _multiplications(tiles) + loads


def rounded_where_read(tiles: Tiles) -> Column:
    """Instructions of a warp in a step where factors are rounded in the registers that they are
    multiplied from."""
    read = tiles.depth // DEPTH * (2 * tiles.thread_slow + tiles.thread_fast)
    return _issued(tiles) + _ROUNDING * read


ARITHMETIC = Arithmetic(
    element=_TF32,
    registers=(19.2, 0.92, 0.71, 0.92),
    lines=_lines,
    issued=_issued,
    converting=_ROUNDING,
)
"""Registers are fitted to what ptxas reports of 60 settings (sm_90): wrong by 15 % on average, by
28 % at the ninth decile."""


class CudaTf32Products(CudaProducts):
    """Spec of the kernel."""

    name = "cuda_product_tf32"
    arithmetic = ARITHMETIC
    most_sums = 128

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Products of singles on a GPU that multiplies matrices of them, from sm_80 on."""
        _, operands, result = anchored(workload)
        return (
            target.unit(_TF32) is not None
            and {kind.dtype for kind in (*operands, result)} == {"float32"}
            and super().applies(workload, target, resources)
        )

    def error_bound(self, workload: Workload) -> float:
        """That of both factors' rounding, of sums that are cut off every eight terms, and of what
        follows."""
        sums = -(-product(workload).depth // DEPTH) * _CUT_OFF
        return 2 * _ROUNDED + _ROUNDED**2 + sums + super().error_bound(workload)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """What the definition demands, at the speed of the matrix units."""
        work, unit = least_work(workload, target), target.unit(_TF32)
        if unit is None:
            return work
        return replace(
            work, speed=unit.operations_per_cycle / target.operations_per_cycle("float32")
        )

    def tile_knobs(self, shape: Product) -> tuple[Knob, ...]:
        """The tiles of a block and of a warp."""
        fast, slow = ("rows", "columns") if shape.along_rows else ("columns", "rows")
        sizes = {
            f"tile_{fast}": up_to(shape.fast, _FAST_TILES),
            f"tile_{slow}": up_to(shape.slow, _SLOW_TILES),
            f"warp_{fast}": up_to(shape.fast, _FAST_WARPS),
            f"warp_{slow}": up_to(shape.slow, _SLOW_WARPS),
        }
        return tuple(Knob(name=name, values=sizes[name], kind="split") for name in sorted(sizes))

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        return warp_tiles_of(shape, setting)


def warp_tiles_of(
    shape: Product, setting: Callable[[str], Any], kind: type[WarpTiles] = WarpTiles
) -> WarpTiles:
    """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
    fast, slow = ("rows", "columns") if shape.along_rows else ("columns", "rows")
    return kind(
        fast=setting(f"tile_{fast}"),
        slow=setting(f"tile_{slow}"),
        thread_fast=setting(f"warp_{fast}") // LANES_FAST,
        thread_slow=setting(f"warp_{slow}") // LANES_SLOW,
        depth=setting("tile_depth"),
        stages=setting("stages"),
        split=setting("split"),
        by_taps=setting("by_taps"),
    )


SPEC = CudaTf32Products()
