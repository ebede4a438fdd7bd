"""Batched product of singles with products of bfloat16 in tile registers.

left     [.., rows, depth], in a copy of whole tiles where it is none: 16 or 32 rows, whole lines
right    [depth/2, block, 2], of each chunk of columns a copy in the thread's own memory
sums     up to 2 × 2 registers of 16 × 16, which stay there over the whole depth
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import HALF_UNIT, LINE_BYTES, ROWS, has_unit, product_cycles
from tilewright.kernels.base import HALF, SINGLE, Knob
from tilewright.kernels.batch_matmul_bfloat16 import Bfloat16BatchMatmul
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.halves import ROUNDING_CYCLES
from tilewright.kernels.matrix_products import batch_product

DEPTH = LINE_BYTES // 2
"""Values of a line of a register."""
_CYCLES_OF_A_MOVE = (0.5, 1.5)
"""Of an element of a right matrix that is paired with that of the next row, or of the next column
where it is transposed."""


def covered(workload: Workload, settings: Settings) -> tuple[int, int, int]:
    """Rows and depth in whole tiles, and chunks of columns."""
    matmul, tile = batch_product(workload), int(settings["tile_rows"])
    whole = (-(-matmul.rows // tile) * tile, -(-matmul.depth // DEPTH) * DEPTH)
    return (*whole, -(-matmul.columns // int(settings["block"])))


def filled(workload: Workload, forms: tuple[Form, ...], settings: Settings) -> bool:
    """Whether the left matrices are copied first: to round them, or to fill tiles up."""
    matmul = batch_product(workload)
    whole = covered(workload, settings)[:2] == (matmul.rows, matmul.depth)
    return not whole or matmul.data >= len(forms) - 1 or forms[matmul.data].dtype != HALF


class AmxBatchMatmul(Bfloat16BatchMatmul):
    """Spec of the kernel."""

    name = "batch_matmul_amx"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision and several rows, on a CPU with tile registers."""
        matmul = batch_product(workload)
        single = workload.types[matmul.data].dtype in SINGLE
        return single and matmul.rows > 1 and has_unit(target, HALF_UNIT)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Registers of sums across and down."""
        return (
            Knob(name="block", values=batch_product(workload).blocks(ROWS, (1, 2))),
            Knob(name="tile_rows", values=(ROWS, 2 * ROWS)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """All: there are as many tile registers."""
        return np.ones(len(settings), dtype=np.bool_)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Instructions of whole registers, what becomes of sums, copies of both sides."""
        matmul = batch_product(workload)
        rows, depth, chunks = (
            np.asarray(each) for each in zip(*(covered(workload, s) for s in settings), strict=True)
        )
        block, tile = column(settings, "block"), column(settings, "tile_rows")
        registers = matmul.batch * rows / ROWS * chunks * block / ROWS
        operations = 2.0 * matmul.batch * rows * depth * chunks * block
        loads = ROWS / tile + ROWS / block
        cycles = product_cycles(registers * depth / DEPTH, loads, registers * ROWS * ROWS)
        moves = np.array([filled(workload, forms, s) for s in settings])
        left = workload.types[matmul.data].elements / (matmul.rows * matmul.depth)
        packed = matmul.batch * depth * chunks * block * _CYCLES_OF_A_MOVE[matmul.transposed]
        return Demand(
            pieces=matmul.batch * chunks,
            operations=operations,
            per_cycle=operations / cycles,
            cycles=packed + np.where(moves, ROUNDING_CYCLES * left * rows * depth, 0.0),
            traffic={"L3": workload.bytes},
            launches=1.0 + moves,
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(super().least_work(workload, target), speed=rate)


SPEC = AmxBatchMatmul()
