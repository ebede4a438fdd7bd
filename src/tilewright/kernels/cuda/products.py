"""Products of matrices on GPUs: dense layers, batched products, convolutions as implicit products.

A block of threads computes a tile of the result. Step by step along the depth, it copies a tile of
either operand into shared memory, from where each thread reads what its own tile in registers takes
part in. A convolution has a row for each place of its result, a column for each output channel and
a depth of input channels by taps: what a row reads is found while it is copied, and no matrix of
patches is ever in memory (implicit GEMM: Chetlur et al., "cuDNN: Efficient Primitives for Deep
Learning", 2014). A transposed convolution is as many products as its stride has phases.

Everything that a tile has beyond an extent is copied as zero and never written, so extents need not
be divisible by anything. Where the result has few tiles, `split` blocks share the depth of one, and
a second kernel adds up what they found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, Numbers, column
from tilewright.kernels.cuda.images import ImageKernels, image_ports
from tilewright.kernels.cuda.product_costs import ORDINARY, demand_of
from tilewright.kernels.cuda.product_tiles import (
    READERS,
    SINGLE_BYTES,
    WARP,
    Product,
    Tiles,
    behind,
    is_costly,
    product,
    tiles_of,
)
from tilewright.kernels.ports import Ports

_TILES, _DEPTHS, _SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (8, 16, 32), (1, 2, 4, 8, 16, 32)
_SMALLEST_TILE = 8
_THREAD_TILES = (1, 2, 4, 8)
_MOST_THREADS, _MOST_SUMS, _MOST_FETCHED = 256, 64, 32
"""Of a block; of a thread, in registers and on their way to shared memory."""
FLOATS = frozenset({"float32", "float16", "bfloat16"})
MOST_ELEMENTS = 2**31
_MOST_COSTLY = 2
"""Functions of a factor: more of them make the compiler very slow."""


class CudaProducts(ImageKernels):
    """Spec of the kernel."""

    name = "cuda_product"
    anchors = frozenset(READERS)
    arithmetic = ORDINARY
    most_sums = _MOST_SUMS
    stages: tuple[int, ...] = (1, 2)

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Floats of at most 32 bits, of sizes that 32-bit positions count, with elementwise steps
        of the product's shape behind it."""
        _, operands, result = anchored(workload)
        kinds = (*operands, result)
        sizes = [kind.elements for kind in (*kinds, *workload.types)]
        return (
            {kind.dtype for kind in kinds} <= FLOATS
            and min(*sizes, self.product(workload).depth) > 0
            and max(sizes) < MOST_ELEMENTS
            and is_pointwise(workload)
        )

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Images of convolutions also with their channels last; all else row-major."""
        if anchored(workload)[0].operator in ("conv2d", "conv2d_transpose"):
            return image_ports(workload)
        return super().port_forms(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """The tiles of a block and of a thread, pairs of tiles in shared memory, parts of the
        depth, and its order."""
        shape = self.product(workload, forms)
        parts = -(-shape.depth // _DEPTHS[0])
        by_taps = shape.taps > 1 and shape.channels >= _DEPTHS[0]
        return (
            *self.tile_knobs(shape),
            Knob(name="tile_depth", values=up_to(shape.depth, _DEPTHS), kind="split"),
            Knob(name="stages", values=self.stages),
            Knob(name="split", values=up_to(parts, _SPLITS), kind="split"),
            Knob(name="by_taps", values=(False, True) if by_taps else (False,)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Whole threads, as many as a block may have, with registers and shared memory for all of
        them; every block has a part of the depth, and there are not too many blocks."""
        shape, limits = self.product(workload, forms), target.limits
        tiles = self._columns(shape, settings)
        whole = tiles.whole & (tiles.thread_fast * tiles.thread_slow <= self.most_sums)
        few = min(WARP, prod(_sizes(each)[-1] for each in (shape.rows, shape.columns)))
        fits = whole & (tiles.threads >= few) & (tiles.threads <= _MOST_THREADS)
        safe = tiles.where(fits)
        steps, used = safe.steps(shape), self.arithmetic.registers_of(shape, safe)
        fits &= sum(safe.fetched(shape)) <= _MOST_FETCHED
        fits &= safe.shared_bytes(shape) <= limits.block_shared_bytes
        fits &= used * safe.threads <= limits.registers
        fits &= steps > safe.ahead
        fits &= (safe.split - 1) * steps < safe.all_steps(shape)
        fits &= safe.blocks(shape) <= limits.grid[0]
        results = shape.batch * shape.rows * shape.columns
        return fits & ((safe.split == 1) | (safe.split * results < MOST_ELEMENTS))

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """The blocks of the product, and of the sum of parts where there are several."""
        shape = self.product(workload, forms)
        tiles = self._columns(shape, settings)
        return demand_of(workload, shape, tiles, target, self.arithmetic)

    def product(self, workload: Workload, forms: tuple[Form, ...] = ()) -> Product:
        """The extents of a workload in memory of these forms."""
        return product(workload, forms)

    def tile_knobs(self, shape: Product) -> tuple[Knob, ...]:
        """The tiles of a block and of a thread."""
        return (*_tile_knobs("rows", shape.rows), *_tile_knobs("columns", shape.columns))

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        return tiles_of(shape, setting)

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """What several blocks find of one sum."""
        shape, split = self.product(workload, candidate.forms), int(candidate.setting("split"))
        found = split * shape.batch * shape.rows * shape.columns * SINGLE_BYTES
        return Workspaces(shared=(found,) if split > 1 else ())

    def _columns(self, shape: Product, settings: Sequence[Settings]) -> Tiles:
        def values(name: str) -> Numbers:
            return column(settings, name).astype(np.int64)

        return self.tiles(shape, values)


def is_pointwise(workload: Workload) -> bool:
    """Whether all that depends on the anchor is elementwise, in its shape, and all else elementwise
    or moved, with few functions."""
    first, after, costly = len(workload.arguments), behind(workload), 0
    place, shape = workload.anchor_index or 0, anchored(workload)[2].shape
    for index, step in enumerate(workload.steps):
        operator, value = OPERATORS[step.operator], first + index
        if value in after:
            if not operator.elementwise or workload.types[value].shape != shape:
                return False
        elif index != place:
            costly += is_costly(workload, value)
            if not (operator.elementwise or operator.movement):
                return False
    return costly <= _MOST_COSTLY and workload.result.shape == shape


def up_to(extent: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values up to the first that reaches an extent."""
    reaching = next((value for value in values if value >= extent), values[-1])
    return tuple(value for value in values if value <= reaching)


def _sizes(extent: int) -> tuple[int, ...]:
    """Of tiles of a block."""
    sizes = up_to(extent, _TILES)
    return tuple(size for size in sizes if size >= min(_SMALLEST_TILE, sizes[-1]))


def _tile_knobs(name: str, extent: int) -> tuple[Knob, Knob]:
    sizes = _sizes(extent)
    return (
        Knob(name=f"tile_{name}", values=sizes, kind="split"),
        Knob(name=f"thread_{name}", values=up_to(sizes[-1], _THREAD_TILES), kind="split"),
    )


SPEC = CudaProducts()
