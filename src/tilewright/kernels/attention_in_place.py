"""Attention of few queries, which reads keys and values where they lie.

Where a cache of a thousand keys meets one query, copying them in another order takes longer than
the products. A piece of work is a tile of the rows that read one head of keys: a row is a query of
one of the heads that share these. A key is multiplied along its own elements, which lie beside each
other, and the lanes of that product are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.attention import CYCLES_OF_A_POWER, Attention, extents
from tilewright.kernels.base import Knob, anchored
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.register_tile import RegisterTile, row_tile_sizes

_MOST_ROWS = 16
_CYCLES_OF_A_FOLD = 8.0
"""Of adding up the lanes of a product of a row and a key."""


def rows_of_keys(workload: Workload) -> int:
    """How many rows read each head of keys: queries of the heads that share it."""
    heads = extents(workload)
    return heads.heads // heads.key_heads * heads.queries


def _in_order(workload: Workload, value: int) -> bool:
    """Whether the elements of a value that lie beside each other do so where it is read."""
    while value >= len(workload.arguments):
        step = workload.steps[value - len(workload.arguments)]
        if step.operator == "transpose":
            permutation = step.integers("permutation")
            if permutation[-1] != len(permutation) - 1:
                return False
        value = step.inputs[0]
    return True


class AttentionInPlace(Attention):
    """Spec of the kernel."""

    name = "attention_in_place"

    def buffers(
        self, workload: Workload, settings: Settings, lanes: int
    ) -> Mapping[str, TensorType]:
        """What a tile of rows keeps: its scaled queries, the lanes of a product, and
        what `attention_rows` keeps beside the copies."""
        heads, rows = extents(workload), int(settings["tile_rows"])
        return {
            "scaled": TensorType((rows, heads.depth)),
            "lanes": TensorType((rows, lanes)),
            **self.tile_buffers(workload, rows, int(settings["value_vectors"]), lanes),
        }

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision, few rows, and keys and values whose elements lie beside each other."""
        step, _, _ = anchored(workload, "attention")
        return (
            super().applies(workload, target, resources)
            and rows_of_keys(workload) <= _MOST_ROWS
            and all(_in_order(workload, value) for value in step.inputs[1:3])
        )

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Rows of a tile, and vectors of values beside them."""
        vectors = ceil(extents(workload).width / target.lanes(workload.computed_in))
        return (
            Knob(name="tile_rows", values=row_tile_sizes(rows_of_keys(workload))),
            Knob(name="value_vectors", values=tuple(v for v in (1, 2, 3, 4) if v <= vectors)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Sums fit the registers."""
        tile = RegisterTile(column(settings, "tile_rows"), column(settings, "value_vectors"))
        return tile.fits(target.vector_registers)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Both products, sums over lanes, exponentials, keys and values read by every tile."""
        heads, lanes = extents(workload), target.lanes(workload.computed_in)
        rows, total = column(settings, "tile_rows"), rows_of_keys(workload)
        tile = RegisterTile(rows, column(settings, "value_vectors"))
        tiles, read_by = np.ceil(total / rows), heads.batch * heads.key_heads
        scores = read_by * tiles * rows * heads.keys
        vectors = ceil(heads.depth / lanes) + ceil(heads.width / lanes) * tile.slowdown
        again = read_by * heads.keys * (heads.depth + heads.width) * 4
        return Demand(
            pieces=read_by * tiles,
            operations=2.0 * scores * vectors * lanes,
            per_cycle=target.operations_per_cycle(workload.computed_in),
            cycles=scores * (_CYCLES_OF_A_FOLD + CYCLES_OF_A_POWER / lanes),
            traffic={"L3": workload.bytes + (tiles - 1.0) * again},
            details=tile.details(tiles * rows / total),
        )


SPEC = AttentionInPlace()
