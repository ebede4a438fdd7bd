"""Dense layer of singles with products of bfloat16 in the tile registers of AMX.

    data     [rows, depth], rounded into a copy of whole tiles: 16 or 32 rows, 32 values
    weights  [columns/block, depth/2, block, 2], as of `dense_bfloat16`, the depth in whole tiles
    sums     up to 2 × 2 registers of 16 × 16 singles, which stay there over the whole depth

Sixteen lines of weights are a tile register as they lie. No machine with AMX has run this kernel:
it competes once it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.dense_bfloat16 import ROUNDING_CYCLES, Bfloat16Dense
from tilewright.kernels.halves import PAIR, multiplied_work
from tilewright.kernels.matrix_products import PackedDense, product

UNIT = "amx-bf16"
_ROWS, WIDE = 16, 32
"""Rows of a tile register, and the values of each."""
_REACHED = 1 / 3
"""Part of the nominal rate that one core of Granite Rapids reached with matrices of 4096 × 4096
(github.com/johnnyw3/gemm)."""


def covered(workload: Workload, settings: Settings) -> tuple[int, int, int]:
    """Rows and depth in whole tiles, and chunks of columns."""
    dense, tile, block = product(workload), int(settings["tile_rows"]), int(settings["block"])
    whole = (-(-dense.rows // tile) * tile, -(-dense.depth // WIDE) * WIDE)
    return (*whole, -(-dense.columns // block))


class AmxDense(Bfloat16Dense):
    """Spec of the kernel."""

    name = "dense_amx"
    unproven = "a processor with AMX"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Constant weights and an axis of several rows, on a CPU with tile registers."""
        tiles = any(unit.name == UNIT for unit in target.units)
        if not (tiles and PackedDense.applies(self, workload, target, resources)):
            return False
        dense = product(workload)
        return dense.batch == 1 and dense.rows > 1

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Registers of sums across and down, and the order of the parallel axes."""
        return (
            Knob(name="block", values=product(workload).blocks(_ROWS, (1, 2))),
            Knob(name="tile_rows", values=(_ROWS, 2 * _ROWS)),
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
        """Whole tiles at the rate that others reached, the copy of the data, the weights."""
        dense, unit = product(workload), target.operations_per_cycle(HALF)
        rows, depth, chunks = (
            np.asarray(each) for each in zip(*(covered(workload, s) for s in settings), strict=True)
        )
        block, tile = column(settings, "block"), column(settings, "tile_rows")
        registers = (tile // _ROWS) * (block // _ROWS)
        loads = tile // _ROWS + block // _ROWS
        # a register is loaded in 8 cycles and multiplied in 16
        slowdown = np.maximum(1.0, loads / (2 * registers))
        return Demand(
            pieces=rows / tile * chunks,
            operations=2.0 * rows * depth * chunks * block,
            per_cycle=unit * _REACHED / slowdown,
            cycles=ROUNDING_CYCLES * rows * depth,
            traffic={"memory": workload.bytes - 2.0 * dense.depth * dense.columns},
            launches=2.0,
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        work = multiplied_work(workload, target, product(workload).weight)
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(work, speed=rate)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        _, depth, chunks = covered(workload, dict(candidate.settings))
        block = int(candidate.setting("block"))
        return {product(workload).weight: (chunks, depth // PAIR, block, PAIR)}


SPEC = AmxDense()
