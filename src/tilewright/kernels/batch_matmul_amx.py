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
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.halves import PAIR, ROUNDING_CYCLES
from tilewright.kernels.matrix_products import batch_product

_CYCLES_OF_A_MOVE = (0.5, 1.5)
"""Of an element of a right matrix that is paired with that of the next row, or of the next column
where it is transposed."""


class AmxBatchMatmul(Bfloat16BatchMatmul):
    """Spec of the kernel.

    `unit` multiplies, of the left a line of `line` values, words of `terms`. The class serves other
    products of matrices, too: see `batch_matmul_mmla`.
    """

    name = "batch_matmul_amx"
    unit, line, terms = HALF_UNIT, LINE_BYTES // 2, PAIR

    def lines(self, settings: Settings) -> tuple[int, int]:
        """Lines of a register of a tile, and registers below each other."""
        return ROWS, int(settings["tile_rows"]) // ROWS

    def covered(self, workload: Workload, settings: Settings) -> tuple[int, int, int]:
        """Rows and depth in whole tiles, and chunks of columns."""
        matmul, tile = batch_product(workload), int(settings["tile_rows"])
        whole = (-(-matmul.rows // tile) * tile, -(-matmul.depth // self.line) * self.line)
        return (*whole, -(-matmul.columns // int(settings["block"])))

    def filled(self, workload: Workload, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether the left matrices are copied first: to round them, or to fill tiles up."""
        matmul = batch_product(workload)
        whole = self.covered(workload, settings)[:2] == (matmul.rows, matmul.depth)
        return not whole or matmul.data >= len(forms) - 1 or forms[matmul.data].dtype != HALF

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision and several rows, on a CPU with the unit."""
        matmul = batch_product(workload)
        single = workload.types[matmul.data].dtype in SINGLE
        return single and matmul.rows > 1 and has_unit(target, self.unit)

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
        rows, depth, chunks = self._extents(workload, settings)
        block, tile = column(settings, "block"), column(settings, "tile_rows")
        registers = matmul.batch * rows / ROWS * chunks * block / ROWS
        operations = 2.0 * matmul.batch * rows * depth * chunks * block
        loads = ROWS / tile + ROWS / block
        cycles = product_cycles(registers * depth / self.line, loads, registers * ROWS * ROWS)
        return self.with_copies(
            workload,
            forms,
            settings,
            Demand(
                pieces=matmul.batch * chunks,
                operations=operations,
                per_cycle=operations / cycles,
                traffic={"L3": workload.bytes},
            ),
        )

    def with_copies(
        self,
        workload: Workload,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
        demand: Demand,
    ) -> Demand:
        """A demand of the products, and copies of both sides."""
        matmul = batch_product(workload)
        rows, depth, chunks = self._extents(workload, settings)
        moves = np.array([self.filled(workload, forms, s) for s in settings])
        left = workload.types[matmul.data].elements / (matmul.rows * matmul.depth)
        right = matmul.batch * depth * chunks * column(settings, "block")
        packed = right * _CYCLES_OF_A_MOVE[matmul.transposed]
        rounded = np.where(moves, ROUNDING_CYCLES * left * rows * depth, 0.0)
        return replace(demand, cycles=packed + rounded, launches=1.0 + moves)

    def _extents(self, workload: Workload, settings: Sequence[Settings]) -> list[Floats]:
        """What is covered in each setting."""
        every = (self.covered(workload, s) for s in settings)
        return [np.array(each, np.float64) for each in zip(*every, strict=True)]

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(super().least_work(workload, target), speed=rate)


SPEC = AmxBatchMatmul()
