"""Attention without a matrix of scores in memory.

A piece of work is a part of the queries of the heads that read the same keys and values. It copies
those in the order in which they are read, keys as columns. A tile of queries has its whole rows of
scores in a buffer that stays in the nearest caches: product with the keys, mask, exponentials and
sums, product with the values. Keys that no query of a tile sees are left out.

    keys   [chunk of key_vectors, depth, lanes]       values   [chunk of value_vectors, key, lanes]

Rows of scores are as long as there are keys, but there are only a tile of them: holding them takes
less than the running maximum of Milakov and Gimelshein (2018), which rescales what it has added up
whenever a block of keys has a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import Heads, heads_of, heads_of_codes, visible_keys
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.ports import Ports, Widening, plain_ports
from tilewright.kernels.register_tile import (
    RegisterTile,
    TiledSums,
    row_tile_sizes,
    summation_error,
)
from tilewright.kernels.streaming import Unpacked

ON_CODES = "quantized_attention"
_VECTORS = ("key_vectors", "value_vectors")
CYCLES_OF_A_POWER = 20.0
"""Of a vector of exponentials, with its part of maximum and sum."""
_CYCLES_OF_A_MOVE = 1.2
"""Of an element of a key, whose row becomes a column."""


def extents(workload: Workload) -> Heads:
    """Of the attention that a workload is anchored on."""
    step, operands, _ = anchored(workload)
    if step.operator == ON_CODES:
        return heads_of_codes(operands, **step.named)  # pyright: ignore[reportArgumentType]
    step, operands, _ = anchored(workload, "attention")
    return heads_of(operands, **step.named)  # pyright: ignore[reportArgumentType]


class Attention(Widening, TiledSums, Unpacked):
    """Spec of the kernel."""

    name = "attention_rows"
    anchors = frozenset({"attention"})

    def buffers(
        self, workload: Workload, settings: Settings, lanes: int
    ) -> Mapping[str, TensorType]:
        """What a piece of work keeps: keys as columns and values in lines, both in
        chunks of vectors; of a tile of queries, these, their scores, sums in registers, the largest
        score in each lane, and what results are divided by."""
        heads = extents(workload)
        rows, (keys, values) = int(settings["tile_rows"]), (int(settings[n]) for n in _VECTORS)
        return {
            "columns": TensorType((ceil(heads.keys / (keys * lanes)), heads.depth, keys * lanes)),
            "lines": TensorType((ceil(heads.width / (values * lanes)), heads.keys, values * lanes)),
            "scaled": TensorType((rows, heads.depth)),
            **self.tile_buffers(workload, rows, max(keys, values), lanes),
        }

    def tile_buffers(
        self, workload: Workload, rows: int, vectors: int, lanes: int
    ) -> Mapping[str, TensorType]:
        """Of those, what a tile of rows needs behind its queries, with so many vectors of sums."""
        return {
            "scores": TensorType((rows, ceil(extents(workload).keys / lanes) * lanes)),
            "sums": TensorType((rows, vectors, lanes)),
            "largest": TensorType((rows, lanes)),
            "total": TensorType((lanes,)),
            "factor": TensorType((rows,)),
        }

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision."""
        _, (queries, *_), _ = anchored(workload, "attention")
        return {queries.dtype, workload.result.dtype} <= SINGLE

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Queries of a tile, vectors of keys and of values beside them, parts of the queries."""
        heads, lanes = extents(workload), target.lanes(workload.computed_in)
        return (
            Knob(name="tile_rows", values=row_tile_sizes(heads.queries)),
            *(
                Knob(name=name, values=tuple(v for v in (1, 2, 3, 4) if v <= ceil(extent / lanes)))
                for name, extent in (("key_vectors", heads.keys), ("value_vectors", heads.width))
            ),
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
        """Sums fit the registers; every part has a tile."""
        rows = column(settings, "tile_rows")
        enough = column(settings, "row_groups") <= np.ceil(extents(workload).queries / rows)
        tiles = [RegisterTile(rows, column(settings, name)) for name in _VECTORS]
        fits = [tile.fits(target.vector_registers) for tile in tiles]
        return enough & fits[0] & fits[1]

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Both products with what they waste, exponentials, keys that become columns."""
        heads, lanes = extents(workload), target.lanes(workload.computed_in)
        rows, parts = column(settings, "tile_rows"), column(settings, "row_groups")
        keys, values = (column(settings, name) for name in _VECTORS)
        tiles = np.ceil(heads.queries / rows)
        covered = np.ceil(tiles / parts) * parts * rows
        matrices = float(heads.batch * heads.heads)
        seen = np.full(len(settings), float(heads.keys))
        if anchored(workload)[0].named.get("causal"):
            beyond = (rows + keys * lanes) / 2
            seen = np.minimum(seen, visible_keys(heads.queries, heads.keys).mean() + beyond)
        products = [
            2.0 * matrices * covered * np.ceil(columns / lanes) * lanes * summed
            for columns, summed in ((seen, heads.depth), (heads.width, seen))
        ]
        slow = [RegisterTile(rows, vectors).slowdown for vectors in (keys, values)]
        pieces = heads.batch * heads.key_heads * parts
        powers = matrices * covered * np.ceil(seen / lanes) * CYCLES_OF_A_POWER
        copied = pieces * heads.keys * heads.depth * _CYCLES_OF_A_MOVE
        return Demand(
            pieces=pieces,
            operations=products[0] * slow[0] + products[1] * slow[1],
            per_cycle=target.operations_per_cycle(self.multiplied_in(workload), tiles=False),
            cycles=powers + copied,
            traffic={"L3": workload.bytes},
            details=RegisterTile(rows, keys).details(covered / heads.queries),
        )

    def multiplied_in(self, workload: Workload) -> str:
        """The element type of the factors."""
        return workload.computed_in

    def error_bound(self, workload: Workload) -> float:
        """Sums in single precision over the depth, then over the keys."""
        heads = extents(workload)
        return summation_error(heads.depth + heads.keys)

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """A thread's keys, values and scores."""
        lanes = target.lanes(workload.computed_in)
        kept = self.buffers(workload, dict(candidate.settings), lanes)
        return Workspaces(own=tuple(kind.bytes for kind in kept.values()))


SPEC = Attention()
