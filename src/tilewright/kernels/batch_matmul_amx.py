"""Batched products in tile registers: of singles with products of bfloat16, and of codes.

left     [.., rows, depth], in a copy of whole tiles where it is none: 16 or 32 rows, whole lines
right    [depth/2, block, 2], of codes [depth/4, block, 4], of each chunk of columns a copy in the
         thread's own memory
sums     up to 2 × 2 registers of 16 × 16, which stay there over the whole depth
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work, least_work
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import (
    CODE_UNIT,
    HALF_UNIT,
    LINE_BYTES,
    ROWS,
    WORD_BYTES,
    has_unit,
    product_cycles,
)
from tilewright.kernels.base import HALF, SINGLE, Knob
from tilewright.kernels.batch_matmul_bfloat16 import Bfloat16BatchMatmul
from tilewright.kernels.batch_matmul_int8 import Int8BatchMatmul
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.dense_int8 import COPY_CYCLES
from tilewright.kernels.halves import ROUNDING_CYCLES
from tilewright.kernels.matrix_products import TiledBatchMatmul, batch_product

_CYCLES_OF_A_MOVE = (0.5, 1.5)
"""Of an element of a right matrix that is paired with that of the next row, or of the next column
where it is transposed."""


class AmxBatchMatmul(TiledBatchMatmul):
    """What both have in common.

    `unit` multiplies, of the left a line of `line_bytes`, values of `width` bytes, of which it
    takes a word at a step. The class serves other products of matrices, too: see
    `batch_matmul_mmla`.
    """

    unit: str
    dtype: str
    width: int
    move_cycles: float
    line_bytes, word_bytes = LINE_BYTES, WORD_BYTES

    @property
    def line(self) -> int:
        """Values of a whole line of a register."""
        return self.line_bytes // self.width

    @property
    def terms(self) -> int:
        """Values of a word."""
        return self.word_bytes // self.width

    @abstractmethod
    def rounded(self, form: Form) -> bool:
        """Whether left matrices in a form are not what is multiplied."""

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
        return not whole or matmul.data >= len(forms) - 1 or self.rounded(forms[matmul.data])

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Several rows, on a CPU with the unit."""
        several = batch_product(workload).rows > 1 and has_unit(target, self.unit)
        return several and super().applies(workload, target, resources)

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
        rounded = np.where(moves, self.move_cycles * left * rows * depth, 0.0)
        return replace(demand, cycles=packed + rounded, launches=1.0 + moves)

    def _extents(self, workload: Workload, settings: Sequence[Settings]) -> list[Floats]:
        """What is covered in each setting."""
        every = (self.covered(workload, s) for s in settings)
        return [np.array(each, np.float64) for each in zip(*every, strict=True)]

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the products of matrices."""
        rate = target.operations_per_cycle(self.dtype) / target.operations_per_cycle(MEASURED)
        return replace(least_work(workload, target), speed=rate)


class AmxBatchHalves(AmxBatchMatmul, Bfloat16BatchMatmul):
    """Of singles with products of bfloat16."""

    name = "batch_matmul_amx"
    element_types = SINGLE
    unit, dtype, width, move_cycles = HALF_UNIT, HALF, 2, ROUNDING_CYCLES

    def rounded(self, form: Form) -> bool:
        """Singles are."""
        return form.dtype != HALF


class AmxBatchCodes(AmxBatchMatmul, Int8BatchMatmul):
    """Of codes, signed or not, with signed ones: exact."""

    name = "batch_matmul_amx_int8"
    unit, dtype, width, move_cycles = CODE_UNIT, "int8", 1, COPY_CYCLES

    def rounded(self, form: Form) -> bool:
        """They are multiplied as they are."""
        return False


OF_HALVES, OF_CODES = SPECS = (AmxBatchHalves(), AmxBatchCodes())
"""Both specs."""
