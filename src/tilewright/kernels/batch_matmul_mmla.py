"""Batched products by ARM's products of matrices: of singles with products of bfloat16, and of
codes.

left     [.., rows, depth], in a copy of whole tiles and lines where it is none
right    [depth/4, block, 4], of codes [depth/8, block, 8], of each chunk of columns a copy in the
         thread's own memory
sums     of a tile of rows and columns, two by two in a register
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.batch_matmul_amx import AmxBatchCodes, AmxBatchHalves, AmxBatchMatmul
from tilewright.kernels.columns import column
from tilewright.kernels.matrix_products import batch_product
from tilewright.kernels.mmla import (
    CODE_UNIT,
    HALF_UNIT,
    LANES,
    VECTORS,
    WORD_BYTES,
    TilesOfRows,
    gain,
)
from tilewright.kernels.register_tile import row_tile_sizes


class MmlaBatchMatmul(TilesOfRows, AmxBatchMatmul):
    """What both have in common."""

    line_bytes = word_bytes = WORD_BYTES

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Sums down and across."""
        matmul = batch_product(workload)
        return (
            Knob(name="block", values=matmul.blocks(LANES, VECTORS)),
            Knob(name="tile_rows", values=row_tile_sizes(matmul.rows)),
        )

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Products of whole tiles at the rate of dot products, faster as far as registers are full,
        and copies of both sides."""
        matmul, tile = batch_product(workload), self.tile(settings, LANES)
        rows, depth, chunks = self._extents(workload, settings)
        block, apart = column(settings, "block"), np.ones(len(settings), dtype=np.bool_)
        faster = gain(target, self.dtype, tile, column(settings, "tile_rows"), apart)
        products = Demand(
            pieces=matmul.batch * chunks,
            operations=2.0 * matmul.batch * rows * depth * chunks * block,
            per_cycle=target.operations_per_cycle(self.dtype, tiles=False) * faster / tile.slowdown,
            traffic={"L3": workload.bytes},
            details=tile.details(rows * chunks * block / (matmul.rows * matmul.columns)),
        )
        return self.with_copies(workload, forms, settings, products)


class _OfHalves(MmlaBatchMatmul, AmxBatchHalves):
    """Of singles with products of bfloat16."""

    name = "batch_matmul_mmla"
    unit = HALF_UNIT


class _OfCodes(MmlaBatchMatmul, AmxBatchCodes):
    """Of codes, signed or not, with signed ones: exact."""

    name = "batch_matmul_mmla_int8"
    unit = CODE_UNIT


OF_HALVES, OF_CODES = SPECS = (_OfHalves(), _OfCodes())
"""Both specs."""
