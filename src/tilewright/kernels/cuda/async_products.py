"""Products of matrices on GPUs whose tiles come by asynchronous copies.

A thread of `cuda_product` loads what it copies into registers and writes it to shared memory from
there. From sm_80 on, a GPU does both by itself (PTX ISA, `cp.async`): a thread only says from where
to where, and waits for all copies of a step together. With `stages` tiles of each operand in shared
memory, those of `stages` - 1 steps are on their way while one is multiplied:

    step          0    1    2    3          with three stages
    waits for     0    1    2    3
    copies        2    3    4    5          0 and 1 before the first
    multiplies    0    1    2    3

What lies side by side in memory and in the tile is copied 16 or 8 bytes at a time. What comes along
the depth is written across, element by element: neighbouring lanes have neighbouring elements.
Beyond an extent nothing is read, and zeros are written. Factors are copied as they are: singles,
read from an argument without any arithmetic; on the matrix units they are rounded where they are
read from shared memory.

Where lines of a result begin anywhere, lanes exchange results as in `cuda_product_exchanged`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, anchored
from tilewright.kernels.columns import Bools
from tilewright.kernels.cuda.base import has_async_copies, is_from_argument
from tilewright.kernels.cuda.exchanged_products import (
    ExchangedTiles,
    ExchangedWarpTiles,
    exchangeable,
)
from tilewright.kernels.cuda.product_costs import ORDINARY
from tilewright.kernels.cuda.product_tiles import VECTOR, Operand, Product, Tiles, product, tiles_of
from tilewright.kernels.cuda.products import CudaProducts
from tilewright.kernels.cuda.tf32_products import (
    ARITHMETIC,
    CudaTf32Products,
    WarpTiles,
    rounded_where_read,
    warp_tiles_of,
)

_STAGES, _SHORTEST = (2, 3, 4), 8
"""Pairs of tiles in shared memory; the depth of the smallest step."""


class AsyncTiles(Tiles):
    """How a product is cut whose tiles come by asynchronous copies."""

    @property
    def surplus(self) -> Any:
        """Steps whose tiles a block copies at most without multiplying them."""
        return 0

    def vector(self, operand: Operand, extent: Any) -> Any:
        """Elements of an operand that are copied at once, of a tile of that extent."""
        if operand.along_depth:
            return np.ones_like(self.depth)
        return np.minimum(operand.vector, extent)

    def in_registers(self, product: Product) -> Any:
        """Accesses that copy both tiles: a thread has their places in registers, no elements."""
        return sum(self.copied(product))


class AsyncExchangedTiles(AsyncTiles, ExchangedTiles):
    """The same where lanes exchange results."""


class AsyncWarpTiles(AsyncTiles, WarpTiles):
    """By matrix units."""


class AsyncExchangedWarpTiles(AsyncTiles, ExchangedWarpTiles):
    """The same where lanes exchange results."""


class AsyncProducts(CudaProducts):
    """Spec of the kernel."""

    name = "cuda_product_async"
    arithmetic = replace(ORDINARY, registers=(23.6, 1.23, 1.03, 0.0))
    """Registers are fitted to what ptxas reports of 48 settings among the best quarter of estimates
    (sm_90): wrong by 14 % on average, by 30 % at the ninth decile."""
    stages = _STAGES
    together = VECTOR
    """Neighbours that a thread writes at once where lines of the result allow."""

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Products of singles that are read without arithmetic, in several steps, from sm_80 on."""
        step, operands, result = anchored(workload)
        return (
            has_async_copies(target)
            and {kind.dtype for kind in (*operands, result)} <= SINGLE
            and all(is_from_argument(workload, value) for value in step.inputs[:2])
            and super().applies(workload, target, resources)
            and product(workload).depth > _SHORTEST
        )

    def tile_knobs(self, shape: Product) -> tuple[Knob, ...]:
        """The tiles of a block and of a thread, which has several results of an axis if it can."""
        return tuple(
            replace(knob, values=knob.values[1:] or knob.values)
            if knob.name.startswith("thread_")
            else knob
            for knob in super().tile_knobs(shape)
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Those of `cuda_product` with as many steps as stages; where lanes exchange results, those
        that are `exchangeable`."""
        valid = super().valid_many(workload, target, resources, forms, settings)
        tiles = self._columns(product(workload, forms), settings)
        return exchangeable(tiles, valid) if isinstance(tiles, ExchangedTiles) else valid

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        kind = AsyncExchangedTiles if self._exchanges(shape) else AsyncTiles
        return tiles_of(shape, setting, kind)

    def _exchanges(self, shape: Product) -> bool:
        """Whether lines of the result lie side by side and begin anywhere."""
        return shape.vector < self.together and not shape.phased


class AsyncTf32Products(AsyncProducts, CudaTf32Products):
    """Spec of the kernel on the matrix units."""

    name = "cuda_product_tf32_async"
    arithmetic = replace(
        ARITHMETIC, registers=(28.5, 1.01, 0.81, 0.0), issued=rounded_where_read, converting=0.0
    )
    """Registers are fitted to 48 settings, too: wrong by 11 % on average, by 25 % at the ninth
    decile."""
    together = 2

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        kind = AsyncExchangedWarpTiles if self._exchanges(shape) else AsyncWarpTiles
        return warp_tiles_of(shape, setting, kind)


SPEC, TF32_SPEC = SPECS = (AsyncProducts(), AsyncTf32Products())
