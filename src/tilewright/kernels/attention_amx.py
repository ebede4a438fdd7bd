"""Attention of singles with products of bfloat16 in tile registers.

As `attention_bfloat16`, with 16 or 32 queries at a time. Both products are the same function of a
tile of sums, over the depth and over the keys, which are zeros beyond the last one. Rows of scores
are a line longer than the keys: rows that lie a power of two apart share few sets of the cache.

    keys     [chunk of 32, depth/2, 32]     values   [chunk of 32 columns, keys/2, 32]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import MEASURED, Work
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import visible_keys
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import HALF_UNIT, LINE_BYTES, ROWS, has_unit, product_cycles
from tilewright.kernels.attention import Attention, extents
from tilewright.kernels.attention_bfloat16 import Bfloat16Attention
from tilewright.kernels.base import HALF, Knob, anchored
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.halves import PAIR

LANES = 2 * ROWS
"""Keys, and columns of values, of a chunk: two registers of sums beside each other."""
DEPTH = LINE_BYTES // 2
"""Values of a line of a register."""
_CYCLES_OF_A_POWER = 10.0
_CYCLES_OF_A_MOVE = 0.25
"""To round and turn an element of a key, or to pair one of a value."""


def whole(extent: int, step: int) -> int:
    """An extent filled up to whole steps."""
    return -(-extent // step) * step


class AmxAttention(Bfloat16Attention):
    """Spec of the kernel."""

    name = "attention_amx"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision and several queries, on a CPU with tile registers."""
        several = extents(workload).queries > 1
        usual = Attention.applies(self, workload, target, resources)
        return several and usual and has_unit(target, HALF_UNIT)

    def buffers(
        self, workload: Workload, settings: Settings, lanes: int
    ) -> Mapping[str, TensorType]:
        """As of `attention_bfloat16`, filled up to whole registers; keys are rounded in rows before
        they become columns."""
        heads, rows = extents(workload), int(settings["tile_rows"])
        depth, keys = whole(heads.depth, DEPTH), whole(heads.keys, LANES)
        return {
            "rounded": TensorType((ROWS, depth), "uint16"),
            "columns": TensorType((keys // LANES, depth // PAIR, LANES * PAIR), "uint16"),
            "lines": TensorType((ceil(heads.width / LANES), keys // PAIR, LANES), "uint32"),
            "scaled": TensorType((rows, depth), "uint16"),
            "scores": TensorType((rows, keys + ROWS)),
            "weights": TensorType((rows, keys + DEPTH), "uint16"),
            "sums": TensorType((rows, LANES)),
            "largest": TensorType((rows, lanes)),
            "total": TensorType((lanes,)),
            "factor": TensorType((rows,)),
        }

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Queries of a tile, parts of the queries."""
        return (
            Knob(name="tile_rows", values=(ROWS, 2 * ROWS)),
            Knob(name="row_groups", values=(1, 2, 4, 8)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Every part has a tile."""
        rows = column(settings, "tile_rows")
        return column(settings, "row_groups") <= np.ceil(extents(workload).queries / rows)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Instructions of whole registers, exponentials, copies of keys and values."""
        heads, lanes = extents(workload), target.lanes(workload.computed_in)
        rows, parts = column(settings, "tile_rows"), column(settings, "row_groups")
        matrices = float(heads.batch * heads.heads)
        covered = np.ceil(heads.queries / rows) * rows
        seen = np.full(len(settings), float(whole(heads.keys, LANES)))
        if anchored(workload)[0].attribute("causal"):
            beyond = (rows + LANES) / 2
            seen = np.minimum(seen, visible_keys(heads.queries, heads.keys).mean() + beyond)
        depth, width = whole(heads.depth, DEPTH), whole(heads.width, LANES)
        operations = 2.0 * matrices * covered * seen * (depth + width)
        instructions = operations / (2.0 * ROWS * ROWS * DEPTH)
        loads = ROWS / rows + ROWS / LANES
        cycles = product_cycles(instructions, loads, matrices * covered * (seen + width))
        powers = matrices * heads.queries * np.ceil(seen / lanes) * _CYCLES_OF_A_POWER
        pieces = heads.batch * heads.key_heads * parts
        copied = pieces * heads.keys * (heads.depth + heads.width) * _CYCLES_OF_A_MOVE
        return Demand(
            pieces=pieces,
            operations=operations,
            per_cycle=operations / cycles,
            cycles=powers + copied,
            traffic={"L3": workload.bytes},
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of the tile registers."""
        rate = target.operations_per_cycle(HALF) / target.operations_per_cycle(MEASURED)
        return replace(super().least_work(workload, target), speed=rate)


SPEC = AmxAttention()
