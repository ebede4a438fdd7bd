"""Recurrent layers: a loop over the steps, inside one kernel.

A step multiplies the state by the recurrent weights: a tile of `tile_rows` sequences × `block`
columns of every gate adds up in registers, and becomes a part of the
next state at once. The weights are packed in the order in which the kernel reads them,
[column blocks, hidden, gates, columns of a block], and a `gru` has two such parts, since its
candidate needs the whole reset state. Where columns do not fill the last block, it begins earlier
and computes a few columns again, so nothing is padded and no vector is cut.

With several threads, `share` says what they divide: the columns, with a meeting after every step
(each core keeps its part of the weights in its own cache), or the sequences, without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.operators.recurrent import GATES, state_names
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, chosen, column
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.streaming import Streaming

ALONE, COLUMNS, SEQUENCES = "alone", "columns", "sequences"
"""What threads divide: nothing, the columns, the sequences."""
_ROWS = (1, 2, 3, 4, 6, 8, 12)
_CYCLES_OF_A_GATE = 30.0
"""A vector of an activation and what is done with it."""
_ROOM, _HIDDEN, _MEETING = 0.75, 0.8, 0.2
"""Of the second cache, what weights may fill; of products and reading, what is done at once; of a
launch, how long threads take to meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Extents of a recurrent layer. `operands` are value ids by name: `gates`, `weights`, and those
    of `graph.operators.recurrent.OPERANDS` that there are. `phases` are the gates whose products
    are computed together."""

    cell: str
    steps: int
    batch: int
    hidden: int
    operands: Mapping[str, int]
    finals: int

    @property
    def states(self) -> tuple[str, ...]:
        """What is handed from step to step."""
        return state_names(self.cell)

    @property
    def gates(self) -> int:
        """The number of gates."""
        return GATES[self.cell]

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Gates by the products that are computed together, in their order."""
        return ((0, 1), (2,)) if self.cell == "gru" else (tuple(range(self.gates)),)

    def starts(self, block: int) -> tuple[int, ...]:
        """First columns of the blocks of so many columns: the last one begins earlier where they
        would not fill it."""
        last = self.hidden - block
        return tuple(min(first, last) for first in range(0, self.hidden, block))


def recurrence(workload: Workload) -> Recurrence:
    """Read the extents of a workload anchored on `recurrent`."""
    step, (gates, weights, *_), _ = anchored(workload, "recurrent")
    names = ("gates", "weights", *str(step.attribute("operands")).split())
    return Recurrence(
        cell=str(step.attribute("cell")),
        steps=gates.shape[0],
        batch=gates.shape[1],
        hidden=weights.shape[0],
        operands=dict(zip(names, step.inputs, strict=True)),
        finals=step.integer("finals"),
    )


class RecurrentLoop(Streaming):
    """Spec of recurrent layers of any cell."""

    name = "recurrent_loop"
    anchors = frozenset({"recurrent"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Every layer; halves are computed in single precision."""
        return True

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, and what threads divide."""
        layer, lanes = recurrence(workload), target.lanes(workload.computed_in)
        whole = tuple(v * lanes for v in (1, 2, 4, 8) if v * lanes <= layer.hidden)
        largest_power = 1 << (layer.hidden.bit_length() - 1)
        shares = (COLUMNS, ALONE, SEQUENCES) if layer.batch > 1 else (COLUMNS, ALONE)
        return (
            Knob(name="block", values=whole or (largest_power,)),
            Knob(name="tile_rows", values=tuple(r for r in _ROWS if r <= layer.batch)),
            Knob(name="share", values=shares if resources.threads > 1 else (ALONE,)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Sums and weights fit the registers (one vector of each gate is always fine), and no
        sequence is in two tiles that do not meet."""
        rows = column(settings, "tile_rows")
        apart = chosen(settings, "share", SEQUENCES) & (recurrence(workload).batch % rows != 0)
        tile, lanes = self._tile(workload, target, settings), target.lanes(workload.computed_in)
        least = np.equal(rows, 1) & (column(settings, "block") <= lanes)
        return ~apart & (tile.fits(target.vector_registers) | least)

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """See `valid_many`."""
        return bool(self.valid_many(workload, target, resources, forms, [settings])[0])

    def _tile(
        self, workload: Workload, target: Target, settings: Sequence[Settings]
    ) -> RegisterTile:
        gates = max(map(len, recurrence(workload).phases))
        vectors = np.ceil(column(settings, "block") / target.lanes(workload.computed_in))
        return RegisterTile(column(settings, "tile_rows"), gates * vectors)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Products at the tile's speed, in every step the weights from the cache that holds a
        thread's part of them, activations, and a meeting of the threads after every part."""
        layer, tile = recurrence(workload), self._tile(workload, target, settings)
        blocks = np.ceil(layer.hidden / column(settings, "block"))
        tiles = np.ceil(layer.batch / column(settings, "tile_rows"))
        by_columns, by_tiles = (chosen(settings, "share", s) for s in (COLUMNS, SEQUENCES))
        rows = layer.steps * tiles * column(settings, "tile_rows")
        covered = rows * blocks * column(settings, "block") * layer.gates
        weights = workload.types[layer.operands["weights"]].bytes
        read = layer.steps * weights * np.where(by_tiles, tiles, 1.0)
        part = weights / np.where(by_columns, np.minimum(resources.threads, blocks), 1.0)
        near = np.where(part <= _ROOM * target.cache_bytes(2), 1.0, 0.0)
        return Demand(
            pieces=np.where(by_columns, blocks, np.where(by_tiles, tiles, 1.0)),
            operations=2.0 * covered * layer.hidden,
            per_cycle=target.operations_per_cycle(workload.computed_in) / tile.slowdown,
            cycles=covered / target.lanes(workload.computed_in) * _CYCLES_OF_A_GATE,
            traffic={"L2": read * near, "L3": read * (1.0 - near)},
            own_traffic=True,
            hidden=_HIDDEN,
            launches=np.where(by_columns, 1.0 + _MEETING * layer.steps * len(layer.phases), 1.0),
            details={"accumulators": tile.accumulators},
        )

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Constant weights as one row of numbers."""
        layer, block = recurrence(workload), int(candidate.setting("block"))
        weights = layer.operands["weights"]
        size = len(layer.starts(block)) * layer.hidden * layer.gates * block
        return {weights: (size,)} if workload.is_constant(weights) else {}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[H, G H] → of every phase [blocks, H, gates, block], one behind the other."""
        layer, block = recurrence(workload), int(candidate.setting("block"))
        packed = dict(constants)
        for argument in self.packed_shapes(workload, candidate):
            weights = constants[argument].reshape(layer.hidden, layer.gates, layer.hidden)
            parts = [
                weights[:, list(gates), first : first + block].reshape(-1)
                for gates in layer.phases
                for first in layer.starts(block)
            ]
            packed[argument] = np.concatenate(parts)
        return packed

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """Two halves of each state, the gates that wait for the second product of a `gru`, and the
        states of all steps where something is computed of them."""
        layer = recurrence(workload)
        half = layer.batch * layer.hidden * element_type(workload.computed_in).bytes
        waiting = 2 * (len(layer.phases) - 1)
        states = [2 * half] * len(layer.states) + [half] * waiting
        behind = [anchored(workload)[2].bytes] if len(workload.steps) > 1 else []
        return Workspaces(shared=(*behind, *states))


SPEC = RecurrentLoop()
