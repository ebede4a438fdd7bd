"""Dense layers by ARM's products of matrices: of singles with products of bfloat16, and of codes.

    data     [rows, depth], in a copy where rows are no whole tiles or the depth no whole lines
    weights  [columns/block, depth/4, block, 4] of bfloat16, [.., depth/8, .., 8] of codes: two
             columns of a slot are a register as they lie
    sums     of a tile of rows and columns, two by two in a register

One row would leave half of each register empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import column
from tilewright.kernels.dense_amx import AmxCodes, AmxDense, AmxHalves
from tilewright.kernels.dense_int8 import COPY_CYCLES
from tilewright.kernels.halves import ROUNDING_CYCLES
from tilewright.kernels.matrix_products import PackedDense, product
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


class MmlaDense(TilesOfRows, AmxDense):
    """What both have in common."""

    line_bytes = word_bytes = WORD_BYTES
    dtype: str

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Sums down and across, and the order of the parallel axes."""
        dense = product(workload)
        return (
            Knob(name="block", values=dense.blocks(LANES, VECTORS)),
            Knob(name="tile_rows", values=row_tile_sizes(dense.rows)),
            Knob(name="order", values=("columns", "rows")),
        )

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As of other dense layers, faster as far as registers are full, and the copy."""
        found = PackedDense.demand(self, workload, target, resources, forms, settings)
        tile, rows = self.tile(settings, LANES), column(settings, "tile_rows")
        apart = np.ones(len(settings), dtype=np.bool_)
        moves = np.array([self.copied(workload, forms, s) for s in settings])
        each = ROUNDING_CYCLES if self.dtype == HALF else COPY_CYCLES
        return replace(
            found,
            per_cycle=found.per_cycle * gain(target, self.dtype, tile, rows, apart),
            cycles=np.where(moves, each * workload.types[product(workload).data].elements, 0.0),
            launches=1.0 + moves,
        )


class _OfHalves(MmlaDense, AmxHalves):
    """Of singles with products of bfloat16."""

    name = "dense_mmla"
    unit, dtype = HALF_UNIT, HALF


class _OfCodes(MmlaDense, AmxCodes):
    """Of codes, signed or not, with signed weights: exact."""

    name = "dense_mmla_int8"
    unit, dtype = CODE_UNIT, "int8"


OF_HALVES, OF_CODES = SPECS = (_OfHalves(), _OfCodes())
"""Both specs."""
