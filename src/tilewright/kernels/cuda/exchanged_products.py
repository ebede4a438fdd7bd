"""Products of matrices on GPUs whose lanes exchange results before they write them.

Where the lines of a result are no multiple of four long, as the planes of an image of odd height,
they begin anywhere in memory, and a thread of `cuda_product` writes its four neighbours one by one.
A store of its warp touches many sectors of 32 bytes and fills none of them, so that each sector is
written several times. Here four lanes with four neighbours each turn them by shuffles:

    lane    had                    has then
    0       row 0, places 0 to 3   place 0 of rows 0 to 3
    1       row 1, places 0 to 3   place 1 of rows 0 to 3

A warp then writes up to 32 results side by side with each store. All else is as in `cuda_product`.

On the matrix units, a lane has two neighbours of either axis, so that two lanes exchange one, and a
warp writes eight results side by side of four lines, instead of four with gaps of eight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import anchored
from tilewright.kernels.columns import Bools
from tilewright.kernels.cuda.product_tiles import VECTOR, WARP, Product, Tiles, product, tiles_of
from tilewright.kernels.cuda.products import CudaProducts
from tilewright.kernels.cuda.tf32_products import CudaTf32Products, WarpTiles, warp_tiles_of


class ExchangedTiles(Tiles):
    """How a product is cut where lanes exchange results: each gives the neighbours that it has to
    as many lanes along the slow axis."""

    @property
    def exchanges(self) -> Any:
        """In how many turns lanes exchange sums before they are written."""
        return np.log2(self.widths[0])

    def stored(self, product: Product) -> tuple[Any, Any, Any]:
        """Of a warp that writes: lanes that share a line, how far apart in it they begin, and
        results that each writes at once."""
        return self.lanes_fast * self.widths[0], 1, 1


class ExchangedWarpTiles(ExchangedTiles, WarpTiles):
    """The same for the sums of matrix units."""


def exchangeable(tiles: Tiles, valid: Bools) -> Bools:
    """Which of the `valid` settings have whole warps, neighbours to exchange, and as many lanes to
    exchange them with."""
    safe, (width, _) = tiles.where(valid), tiles.widths
    lanes = np.where(valid, safe.lanes_slow, 0)
    return valid & (width > 1) & (lanes >= width) & (lanes * safe.lanes_fast == WARP)


class ExchangedProducts(CudaProducts):
    """Spec of the kernel."""

    name = "cuda_product_exchanged"
    together = VECTOR
    """Neighbours that a thread writes at once where lines of the result allow."""

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Products of singles with lines of the result that no vector divides in one of the forms
        that it may have; results of a transposed convolution do not lie side by side."""
        step, operands, result = anchored(workload)
        return (
            {kind.dtype for kind in (*operands, result)} == {"float32"}
            and step.operator != "conv2d_transpose"
            and super().applies(workload, target, resources)
            and bool(self.port_forms(workload, target, resources))
        )

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[tuple[Form, ...], ...]:
        """Those of `cuda_product` in which lines of the result begin anywhere."""
        offered = super().port_forms(workload, target, resources)
        return tuple(f for f in offered if product(workload, f).vector < self.together)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Those of `cuda_product` that are `exchangeable`."""
        tiles = self._columns(product(workload, forms), settings)
        return exchangeable(tiles, super().valid_many(workload, target, resources, forms, settings))

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        return tiles_of(shape, setting, ExchangedTiles)


class ExchangedTf32Products(ExchangedProducts, CudaTf32Products):
    """Spec of the kernel on the matrix units."""

    name = "cuda_product_tf32_exchanged"
    together = 2

    def tiles(self, shape: Product, setting: Callable[[str], Any]) -> Tiles:
        """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
        return warp_tiles_of(shape, setting, ExchangedWarpTiles)


SPEC, TF32_SPEC = SPECS = (ExchangedProducts(), ExchangedTf32Products())
