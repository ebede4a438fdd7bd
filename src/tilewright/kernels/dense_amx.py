"""Dense layers in tile registers: of singles with products of bfloat16, and of codes.

    data     [rows, depth], in a copy of whole tiles where it is none: 16 or 32 rows, whole lines
    weights  [columns/block, depth/2, block, 2], as of `dense_bfloat16`, of codes [.., depth/4, ..,
             4], the depth in whole lines
    sums     up to 2 × 2 registers of 16 × 16, which stay there over the whole depth

Sixteen slots of weights are a register as they lie.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work, least_work
from tilewright.graph.network import Array
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
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.dense_bfloat16 import ROUNDING_CYCLES, Bfloat16Dense
from tilewright.kernels.dense_int8 import Int8Dense
from tilewright.kernels.halves import multiplied_work
from tilewright.kernels.matrix_products import PackedDense, in_slots, product


class AmxDense(PackedDense):
    """What both have in common.

    `unit` multiplies, of data a line of `line_bytes`, values of `width` bytes. The class serves
    other products of matrices, too: see `dense_mmla`.
    """

    unit: str
    width: int
    line_bytes, word_bytes = LINE_BYTES, WORD_BYTES

    @property
    def line(self) -> int:
        """Values of a whole line of a register."""
        return self.line_bytes // self.width

    @property
    def terms(self) -> int:
        """Values of a word, which an instruction multiplies for each sum at a step."""
        return self.word_bytes // self.width

    def lines(self, settings: Settings) -> tuple[int, int]:
        """Lines of a register of a tile, and registers below each other."""
        return ROWS, int(settings["tile_rows"]) // ROWS

    @abstractmethod
    def rounded(self, form: Form) -> bool:
        """Whether data in a form is not what is multiplied."""

    def covered(self, workload: Workload, settings: Settings) -> tuple[int, int, int]:
        """Rows and depth in whole tiles, and chunks of columns."""
        dense, tile = product(workload), int(settings["tile_rows"])
        whole = (-(-dense.rows // tile) * tile, -(-dense.depth // self.line) * self.line)
        return (*whole, -(-dense.columns // int(settings["block"])))

    def copied(self, workload: Workload, forms: tuple[Form, ...], settings: Settings) -> bool:
        """Whether the data is copied first: to round it, or to fill tiles up."""
        dense = product(workload)
        whole = self.covered(workload, settings)[:2] == (dense.rows, dense.depth)
        return not whole or dense.data >= len(forms) - 1 or self.rounded(forms[dense.data])

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Constant weights and several rows along the last axis but one, on a CPU with the unit."""
        if not (has_unit(target, self.unit) and super().applies(workload, target, resources)):
            return False
        dense = product(workload)
        last = dense.row_axis == len(workload.types[dense.data].shape) - 2
        return dense.batch == 1 and dense.rows > 1 and last

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Registers of sums across and down, and the order of the parallel axes."""
        return (
            Knob(name="block", values=product(workload).blocks(ROWS, (1, 2))),
            Knob(name="tile_rows", values=(ROWS, 2 * ROWS)),
            Knob(name="order", values=("columns", "rows")),
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
        """Instructions of whole registers, what becomes of sums, the copy of the data, the
        weights."""
        dense = product(workload)
        rows, depth, chunks = (
            np.asarray(each)
            for each in zip(*(self.covered(workload, s) for s in settings), strict=True)
        )
        block, tile = column(settings, "block"), column(settings, "tile_rows")
        registers = rows / ROWS * chunks * block / ROWS
        operations = 2.0 * rows * depth * chunks * block
        loads = ROWS / tile + ROWS / block
        cycles = product_cycles(registers * depth / self.line, loads, registers * ROWS * ROWS)
        moves = np.array([self.copied(workload, forms, s) for s in settings])
        weights = workload.types[dense.weight]
        return Demand(
            pieces=rows / tile * chunks,
            operations=operations,
            per_cycle=operations / cycles,
            cycles=np.where(moves, ROUNDING_CYCLES * rows * depth, 0.0),
            traffic={"memory": workload.bytes - weights.bytes + weights.elements * self.width},
            launches=1.0 + moves,
        )

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        _, depth, chunks = self.covered(workload, dict(candidate.settings))
        block = int(candidate.setting("block"))
        return {product(workload).weight: (chunks, depth // self.terms, block, self.terms)}


class AmxHalves(AmxDense, Bfloat16Dense):
    """Of singles with products of bfloat16."""

    name = "dense_amx"
    unit, width = HALF_UNIT, 2

    def rounded(self, form: Form) -> bool:
        """Singles are."""
        return form.dtype != HALF

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        work = multiplied_work(workload, target, product(workload).weight)
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(work, speed=rate)


class AmxCodes(AmxDense, Int8Dense):
    """Of codes, signed or not, with signed weights: exact."""

    name = "dense_amx_int8"
    unit, width = CODE_UNIT, 1

    def rounded(self, form: Form) -> bool:
        """They are multiplied as they are."""
        return False

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K/terms, b, terms], N and K filled up with zeros; nothing is offset."""
        weight = product(workload).weight
        shape = self.packed_shapes(workload, candidate)[weight]
        return {**constants, weight: in_slots(constants[weight], shape)}

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle("int8") / target.operations_per_cycle(MEASURED)
        return replace(least_work(workload, target), speed=rate)


OF_HALVES, OF_CODES = SPECS = (AmxHalves(), AmxCodes())
"""Both specs."""
