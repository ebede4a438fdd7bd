"""Products of matrices: with constant weights, packed ahead, and of two computed tensors.

A register tile of `tile_rows` × `block` results accumulates over the depth: one value of the data
is broadcast against `block` columns.

The dense layer's weights are packed to [columns/block, depth, block]. With one row the kernel
streams them, and blocks of several vectors hide the latency of the additions. Columns that do not
fill the last chunk are padded with zeros in the packed weights and never written.

Of two computed tensors, with `pack`, the columns of one piece of work are first copied into a
scratch buffer [depth, block], which makes them contiguous where the right matrix is transposed or
arrives through other steps, and fills the last block with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, anchored
from tilewright.kernels.columns import Bools, chosen, column
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.register_tile import (
    TiledProduct,
    TiledSums,
    row_tile_sizes,
    summation_error,
)
from tilewright.kernels.streaming import Unpacked

_STREAMED = 1.2
"""How much faster than usual a stream as long as the weights comes from memory."""
_WAY_BYTES = 4096
"""Of a first cache, assumed to be as on x86 (64 sets of lines of 64 bytes): what lies a multiple of
this apart shares a set."""
_CROWDED = 0.05
"""Of the time, for each line of a tile's rows that its set has no room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """Extents of a product; `data` and `weight` are the value ids of its left and right matrices.

    `row_axis` is the axis of the data that is tiled, `rows` its extent, `leading` those of the
    other leading axes. `row_axis` is None for a vector. The right matrices may be `transposed`.
    """

    data: int
    weight: int
    leading: tuple[int, ...]
    row_axis: int | None
    rows: int
    depth: int
    columns: int
    transposed: bool = False
    groups = 1

    @property
    def summed(self) -> int:
        """Products that a result is the sum of."""
        return self.depth

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return prod(self.leading)

    def blocks(self, lanes: int, vectors: Sequence[int]) -> tuple[int, ...]:
        """Columns that are computed together: so many vectors, no more than hold all columns."""
        widest = -(-self.columns // lanes) * lanes
        return tuple(v * lanes for v in vectors if v * lanes <= widest)


def product(workload: Workload) -> MatrixProduct:
    """Read the extents of a workload anchored on `dense`; the longest axis of the data is tiled."""
    step, (x, w), _ = anchored(workload, "dense")
    *leading, depth = x.shape
    rows = max(leading, default=1)
    row_axis = leading.index(rows) if leading else None
    if row_axis is not None:
        del leading[row_axis]
    return MatrixProduct(
        data=step.inputs[0],
        weight=step.inputs[1],
        leading=tuple(leading),
        row_axis=row_axis,
        rows=rows,
        depth=depth,
        columns=w.shape[1],
    )


def batch_product(workload: Workload) -> MatrixProduct:
    """Read the extents of a workload anchored on `batch_matmul`."""
    step, (x, _), result = anchored(workload, "batch_matmul")
    *leading, rows, columns = result.shape
    return MatrixProduct(
        data=step.inputs[0],
        weight=step.inputs[1],
        leading=tuple(leading),
        row_axis=len(leading),
        rows=rows,
        depth=x.shape[-1],
        columns=columns,
        transposed=bool(step.attribute("transpose_b")),
    )


class _InBlocks(TiledSums):
    """What both have in common: tiles of rows by blocks of columns, plain layouts."""

    tile_rows = ("tile_rows",)
    tile_vectors = ()
    tile_lanes = "block"

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def multiplied_in(self, workload: Workload) -> str:
        """The element type of the factors."""
        return workload.computed_in


class PackedDense(_InBlocks, TiledProduct):
    """Spec of the dense layer for one row and for many."""

    name = "dense_packed"
    anchors = frozenset({"dense"})
    reads_before_writing = True

    def operands(self, workload: Workload) -> MatrixProduct:
        """The extents of the product."""
        return product(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile and order of the parallel axes."""
        dense, lanes = product(workload), target.lanes(workload.computed_in)
        several = dense.rows > 1
        blocks = dense.blocks(lanes, (1, 2, 3, 4) if several else (1, 2, 3, 4, 8))
        return (
            Knob(name="block", values=blocks),
            Knob(name="tile_rows", values=row_tile_sizes(dense.rows)),
            Knob(name="order", values=("columns", "rows") if several else ("columns",)),
        )

    def weight_bytes(self, workload: Workload) -> float:
        """Bytes of a packed weight."""
        return float(element_type(self.multiplied_in(workload)).bytes)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, traffic of the weights."""
        dense = product(workload)
        block, rows = column(settings, "block"), column(settings, "tile_rows")
        row_tiles = np.ceil(dense.rows / rows)
        chunks = np.ceil(dense.columns / block)
        waste = row_tiles * rows * chunks * block / (dense.rows * dense.columns)
        tile = self.tile(settings, target.lanes(workload.computed_in))
        weight_bytes = self.weight_bytes(workload)
        chunk_bytes = weight_bytes * block * dense.depth
        spill = np.where(chunk_bytes > target.cache_bytes(2) / 2, 1.1, 1.0)
        apart = element_type(self.multiplied_in(workload)).bytes * dense.depth
        together = rows * gcd(apart, _WAY_BYTES) / _WAY_BYTES
        crowd = np.maximum(0.0, together - target.cache_bytes(1) / _WAY_BYTES)
        peak = target.operations_per_cycle(self.multiplied_in(workload), tiles=False)
        flop = 2.0 * dense.batch * dense.rows * dense.columns * dense.depth
        passes = np.where(chosen(settings, "order", "rows"), dense.batch * row_tiles, 1.0)
        own = element_type(workload.types[dense.weight].dtype).bytes
        packed = dense.depth * dense.columns
        moved = workload.bytes + packed * (weight_bytes * passes - own)
        return Demand(
            pieces=dense.batch * row_tiles * chunks,
            operations=flop * waste,
            per_cycle=peak / (tile.slowdown * spill * (1.0 + _CROWDED * crowd)),
            traffic={"memory": moved / _STREAMED},
            own_traffic=True,
            hidden=0.9,
            details=tile.details(waste, weight_tile_bytes=chunk_bytes),
        )

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        dense = product(workload)
        block = int(candidate.setting("block"))
        return {dense.weight: (-(-dense.columns // block), dense.depth, block)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K, b], N padded with zeros to whole blocks."""
        dense = product(workload)
        chunks, depth, block = self.packed_shapes(workload, candidate)[dense.weight]
        missing = chunks * block - dense.columns
        weights = constants[dense.weight]
        if missing:
            weights = np.pad(weights, ((0, 0), (0, missing)))
        packed = weights.reshape(depth, chunks, block).transpose(1, 0, 2)
        return {**constants, dense.weight: np.ascontiguousarray(packed)}


class TiledBatchMatmul(_InBlocks, Unpacked):
    """Spec of the batched product with a tile in registers."""

    name = "batch_matmul_tiled"
    anchors = frozenset({"batch_matmul"})
    element_types = SINGLE | {"int32"}

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision, or integers of 32 bits."""
        return workload.types[batch_product(workload).data].dtype in self.element_types

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, row tiles per piece of work, whether the right columns are copied."""
        matmul = batch_product(workload)
        blocks = matmul.blocks(target.lanes(workload.computed_in), (1, 2, 3, 4))
        return (
            Knob(name="block", values=blocks),
            Knob(name="tile_rows", values=row_tile_sizes(matmul.rows)),
            Knob(name="row_groups", values=(1, 2, 4) if matmul.rows > 1 else (1,)),
            Knob(name="pack", values=(True, False)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Sums fit the registers; only what is contiguous is read in place."""
        matmul = batch_product(workload)
        row_tiles = np.ceil(matmul.rows / column(settings, "tile_rows"))
        enough = column(settings, "row_groups") <= row_tiles
        whole = matmul.columns % column(settings, "block") == 0
        in_place = whole & (not matmul.transposed)
        fits = super().valid_many(workload, target, resources, forms, settings)
        return fits & enough & (chosen(settings, "pack", True) | in_place)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, cost of copying."""
        matmul = batch_product(workload)
        block, rows = column(settings, "block"), column(settings, "tile_rows")
        row_tiles = np.ceil(matmul.rows / rows)
        groups = np.minimum(column(settings, "row_groups"), row_tiles)
        chunks = np.ceil(matmul.columns / block)
        pieces = matmul.batch * chunks * groups
        covered = np.ceil(row_tiles / groups) * groups * rows
        waste = covered * chunks * block / (matmul.rows * matmul.columns)
        register = target.lanes(workload.computed_in)
        tile = self.tile(settings, register)
        per_value = 1.5 if matmul.transposed else 1.0 / register
        copied = matmul.depth * block * pieces * per_value
        rate = target.operations_per_cycle(self.multiplied_in(workload), tiles=False)
        return Demand(
            pieces=pieces,
            operations=2.0 * matmul.batch * matmul.rows * matmul.depth * matmul.columns * waste,
            per_cycle=rate / tile.slowdown,
            cycles=np.where(chosen(settings, "pack", True), copied, 0.0),
            traffic={"L3": workload.bytes},
            details=tile.details(waste),
        )

    def error_bound(self, workload: Workload) -> float:
        """Summation in single precision; grows slowly with the length of the sum."""
        return summation_error(batch_product(workload).depth)


def in_slots(weights: Array, shape: tuple[int, ...]) -> Array:
    """Weights [K, N] → [N/b, K/width, b, width] of a shape, filled up with zeros."""
    chunks, slots, block, width = shape
    depth, columns = weights.shape
    whole = np.pad(weights, ((0, width * slots - depth), (0, chunks * block - columns)))
    packed = whole.reshape(slots, width, chunks, block).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(packed)


DENSE, BATCH_MATMUL = SPECS = (PackedDense(), TiledBatchMatmul())
