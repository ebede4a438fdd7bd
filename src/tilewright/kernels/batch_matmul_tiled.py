"""Batched matrix product of two computed tensors, tiled in registers.

A tile of `tile_rows` × `block` results accumulates over the depth; one value of the left matrix is
broadcast against `block` columns of the right one. With `pack` the columns of one piece of work
are first copied into a scratch buffer [depth, block], which makes them contiguous where the right
matrix is transposed or arrives through other steps, and fills the last block with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob
from tilewright.kernels.columns import chosen, column
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.register_tile import RegisterTile, row_tile_sizes, summation_error
from tilewright.kernels.streaming import Unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProduct:
    """Extents of a batched product; `left` and `right` are value ids."""

    left: int
    right: int
    transposed: bool
    leading: tuple[int, ...]
    rows: int
    depth: int
    columns: int

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return prod(self.leading)


def batch_product(workload: Workload) -> BatchProduct:
    """Read the extents of a workload anchored on `batch_matmul`."""
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or step.operator != "batch_matmul":
        raise InternalError(f"{workload.key} has no batch_matmul anchor")
    (a, _), result = workload.step_types(index)
    return BatchProduct(
        left=step.inputs[0],
        right=step.inputs[1],
        transposed=bool(step.attribute("transpose_b")),
        leading=result.shape[:-2],
        rows=result.shape[-2],
        depth=a.shape[-1],
        columns=result.shape[-1],
    )


class TiledBatchMatmul(Unpacked):
    """Spec of the batched product with a tile in registers."""

    name = "batch_matmul_tiled"
    anchors = frozenset({"batch_matmul"})
    element_types = SINGLE

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision."""
        return workload.types[batch_product(workload).left].dtype in self.element_types

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, row tiles per piece of work, whether the right columns are copied."""
        matmul = batch_product(workload)
        lanes = target.lanes(workload.computed_in)
        widest = -(-matmul.columns // lanes) * lanes
        blocks = tuple(v * lanes for v in (1, 2, 3, 4) if v * lanes <= widest)
        return (
            Knob(name="block", values=blocks),
            Knob(name="tile_rows", values=row_tile_sizes(matmul.rows)),
            Knob(name="row_groups", values=(1, 2, 4) if matmul.rows > 1 else (1,)),
            Knob(name="pack", values=(True, False)),
        )

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Accumulators fit the registers; only what is contiguous is read in place."""
        matmul = batch_product(workload)
        vectors = int(settings["block"]) // target.lanes(workload.computed_in)
        tiles = -(-matmul.rows // int(settings["tile_rows"]))
        if int(settings["row_groups"]) > tiles:
            return False
        if not settings["pack"] and (matmul.transposed or matmul.columns % int(settings["block"])):
            return False
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
        """Wasted work, what the register tile loses against the peak, cost of copying."""
        matmul = batch_product(workload)
        block = column(settings, "block")
        rows = column(settings, "tile_rows")
        groups = column(settings, "row_groups")
        packed = chosen(settings, "pack", True)
        row_tiles = np.ceil(matmul.rows / rows)
        groups = np.minimum(groups, row_tiles)
        chunks = np.ceil(matmul.columns / block)
        pieces = matmul.batch * chunks * groups
        covered = np.ceil(row_tiles / groups) * groups * rows
        waste = covered * chunks * block / (matmul.rows * matmul.columns)
        register = target.lanes(workload.computed_in)
        tile = RegisterTile(rows, np.ceil(block / register))
        peak = target.operations_per_cycle(workload.computed_in)
        per_value = 1.5 if matmul.transposed else 1.0 / register
        copied = np.where(packed, matmul.depth * block * pieces * per_value, 0.0)
        return Demand(
            pieces=pieces,
            operations=2.0 * matmul.batch * matmul.rows * matmul.depth * matmul.columns * waste,
            per_cycle=peak / tile.slowdown,
            cycles=copied,
            traffic={"L3": workload.bytes},
            details=tile.details(waste),
        )

    def error_bound(self, workload: Workload) -> float:
        """Summation in single precision; grows slowly with the length of the sum."""
        return summation_error(batch_product(workload).depth)


SPEC = TiledBatchMatmul()
