"""Dense layer with constant weights packed to [columns/b, depth, b].

Rows are the longest leading axis of the data. A register tile of `tile_rows` × b accumulates
while one value of the data is broadcast against b columns; with one row the kernel streams its
weights, and b of several vectors hides the latency of the additions. Columns that do not fill the
last chunk are padded with zeros in the packed weights and never written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.columns import chosen, column
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.register_tile import RegisterTile, TiledProduct, row_tile_sizes

_STREAMED = 1.2
"""How much faster than usual a stream as long as the weights comes from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Extents of a dense workload; `data` and `weight` are value ids.

    `row_axis` is the axis of the data that is tiled, `rows` its extent, `outer` the product of the
    other leading axes. `row_axis` is None for a vector.
    """

    data: int
    weight: int
    row_axis: int | None
    outer: int
    rows: int
    depth: int
    columns: int
    groups: int = 1

    @property
    def summed(self) -> int:
        """Products that a result is the sum of."""
        return self.depth


def product(workload: Workload) -> Product:
    """Read the extents of a workload anchored on `dense`."""
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or step.operator != "dense":
        raise InternalError(f"{workload.key} has no dense anchor")
    (x, w), _ = workload.step_types(index)
    leading = x.shape[:-1]
    rows = max(leading, default=1)
    return Product(
        data=step.inputs[0],
        weight=step.inputs[1],
        row_axis=leading.index(rows) if leading else None,
        outer=prod(leading) // rows,
        rows=rows,
        depth=w.shape[0],
        columns=w.shape[1],
    )


class PackedDense(TiledProduct):
    """Spec of the dense layer for one row and for many."""

    name = "dense_packed"
    anchors = frozenset({"dense"})

    def operands(self, workload: Workload) -> Product:
        """The extents of the product."""
        return product(workload)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile and order of the parallel axes."""
        dense = product(workload)
        lanes = target.lanes(workload.computed_in)
        widest = -(-dense.columns // lanes) * lanes
        vectors = (1, 2, 3, 4) if dense.rows > 1 else (1, 2, 4, 8)
        blocks = tuple(v * lanes for v in vectors if v * lanes <= widest)
        several = dense.rows > 1
        return (
            Knob(name="block", values=blocks),
            Knob(name="tile_rows", values=row_tile_sizes(dense.rows)),
            Knob(name="order", values=("columns", "rows") if several else ("columns",)),
        )

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Accumulators and the weights beside them fit the registers."""
        vectors = -(-int(settings["block"]) // target.lanes(workload.computed_in))
        tile = RegisterTile(int(settings["tile_rows"]), vectors)
        return bool(tile.fits_beside(target.vector_registers))

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
        block = column(settings, "block")
        rows = column(settings, "tile_rows")
        by_rows = chosen(settings, "order", "rows")
        row_tiles = np.ceil(dense.rows / rows)
        chunks = np.ceil(dense.columns / block)
        pieces = dense.outer * row_tiles * chunks
        waste = row_tiles * rows * chunks * block / (dense.rows * dense.columns)
        tile = RegisterTile(rows, np.ceil(block / target.lanes(workload.computed_in)))
        chunk_bytes = 4.0 * block * dense.depth
        spill = np.where(chunk_bytes > target.cache_bytes(2) / 2, 1.1, 1.0)
        peak = target.operations_per_cycle(workload.computed_in)
        flop = 2.0 * dense.outer * dense.rows * dense.columns * dense.depth
        passes = np.where(by_rows, dense.outer * row_tiles, 1.0)
        moved = workload.bytes + 4.0 * dense.depth * dense.columns * (passes - 1.0)
        return Demand(
            pieces=pieces,
            operations=flop * waste,
            per_cycle=peak / (tile.slowdown * spill),
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


SPEC = PackedDense()
