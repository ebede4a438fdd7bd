"""Register tiles of products: how large they may be, and what they lose against the peak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Numbers
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, anchored
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.ports import Ports, anchored_ports, own_block, single_ports

TORN = 12.0
"""Vectors of 17 lanes, say, are torn to pieces by LLVM: sixteen times as slow on AVX-512."""


def tearing(lanes: Numbers, register: Numbers) -> Numbers:
    """How much longer products take that are computed `lanes` together, in registers of so many:
    more than a register, but no whole ones, are torn."""
    return np.where(np.greater(lanes, register) & np.not_equal(lanes % register, 0), TORN, 1.0)


def row_tile_sizes(rows: int) -> tuple[int, ...]:
    """Tiles of up to 14 rows that waste little at the end."""
    sizes = [t for t in range(1, min(rows, 14) + 1) if -(-rows // t) * t <= 1.12 * rows]
    return tuple(t for t in sizes if t >= 4 or t == rows)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Sums kept in registers: for each of `rows` inputs, which are broadcast one after the other,
    as many vectors as the `vectors` of weights beside them. Numbers, or columns of many tiles."""

    rows: Numbers
    vectors: Numbers

    @property
    def accumulators(self) -> Numbers:
        """Registers that sums take."""
        return self.rows * self.vectors

    @property
    def loads(self) -> Numbers:
        """Loads per multiply-add."""
        return 1.0 / self.rows + 1.0 / self.vectors

    @property
    def slowdown(self) -> Numbers:
        """Time over peak time.

        Two multiply-adds and two loads are issued per cycle, but a stream of loads alone does not
        reach that (a 14×1 tile runs at 0.6 of the peak). A latency of four cycles wants eight
        accumulators at least, and a little more room hides the rest.
        """
        accumulators, loads = self.accumulators, self.loads
        latency = np.maximum(1.0, 8.0 / accumulators)
        return np.maximum(1.0, 1.5 * loads) * latency * (1.0 + 1.2 / accumulators + 0.15 * loads)

    def fits(self, registers: int, *, kept: Numbers = 1) -> Bools:
        """Whether the tile keeps its accumulators in registers.

        With one vector of weights, inputs are broadcast from memory as operands and all but two
        registers may accumulate. With more, a broadcast serves a row of multiply-adds: one
        register for it, one for each vector of weights. (Seen in the machine code: of 32 registers
        14×2, 9×3 and 6×4 tiles stay whole, 7×4 spills. That needs the vectors innermost; otherwise
        LLVM loads the broadcasts of the whole tile first.) `kept` are broadcasts that stay in
        registers because neighbouring taps share them.
        """
        alone = np.equal(self.vectors, 1) & np.less_equal(self.accumulators, registers - 2)
        return alone | np.greater(self.vectors, 1) & self.fits_beside(registers, kept=kept)

    def fits_beside(self, registers: int, *, kept: Numbers = 1) -> Bools:
        """Whether accumulators, weights and `kept` broadcasts have a register each."""
        return np.less_equal(self.accumulators + self.vectors + kept, registers)

    def details(self, waste: Numbers, **more: Numbers) -> Mapping[str, Numbers]:
        """What a demand tells of the tile and of the share of work that is `waste`."""
        return {
            "accumulators": self.accumulators,
            "loads_per_multiply_add": self.loads,
            "waste": waste,
            **more,
        }


def summation_error(length: int) -> float:
    """Error of a sum of so many products in single precision; it grows slowly with the length."""
    return max(2e-6, 2.4e-7 * length**0.5)


class Operands(Protocol):
    """What is multiplied: the value ids of `data` and `weight`, in how many `groups` of channels,
    and how many products a result is the sum of."""

    @property
    def data(self) -> int: ...
    @property
    def weight(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def summed(self) -> int: ...


class TiledSums:
    """What specs have in common whose kernels add up tiles of results in registers.

    A tile has as many inputs as the knobs `tile_rows` multiply to; beside them lie the vectors that
    hold the columns of knob `tile_lanes`, times the knobs `tile_vectors`.
    """

    element_types = SINGLE
    tile_rows = ("tile_height", "tile_width")
    tile_vectors = ("tile_out",)
    tile_lanes = "lanes"

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """The tile of each setting, with vector registers of so many elements."""
        vectors = np.ceil(column(settings, self.tile_lanes) / register)
        rows, beside = (
            prod(column(settings, name) for name in names)
            for names in (self.tile_rows, self.tile_vectors)
        )
        return RegisterTile(rows, beside * vectors)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """The sums and what is loaded beside them fit the registers; blocks lie within groups."""
        tile = self.tile(settings, target.lanes(workload.computed_in))
        fits = tile.fits_beside(target.vector_registers)
        return fits & self.whole_blocks(workload, forms)

    def whole_blocks(self, workload: Workload, forms: tuple[Form, ...]) -> bool:
        """Whether the result's blocks lie within groups of channels: there is one group."""
        return True

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


class TiledProduct(TiledSums, ABC):
    """What specs of products with constant weights have in common: types, layouts and errors."""

    @abstractmethod
    def operands(self, workload: Workload) -> Operands:
        """What the anchor multiplies."""

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Data in one of `element_types`, constant weights."""
        operands = self.operands(workload)
        taken = workload.types[operands.data].dtype in self.element_types
        return taken and workload.is_constant(operands.weight)

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """All but the data that the anchor reads: what is broadcast would be widened each time."""
        return single_ports(workload) - {self.operands(workload).data}

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Data and result in blocks or plain; a block of results lies within a group."""
        operands = self.operands(workload)
        return anchored_ports(workload, target, operands.data, groups=operands.groups)

    def whole_blocks(self, workload: Workload, forms: tuple[Form, ...]) -> bool:
        """Whether the result's blocks, which other implementations may have offered, lie within
        groups."""
        groups, block = self.operands(workload).groups, own_block(forms[-1])
        return groups == 1 or not block or anchored(workload)[2].shape[1] // groups % block == 0

    def error_bound(self, workload: Workload) -> float:
        """Summation in single precision; grows slowly with the length of the sum."""
        return summation_error(self.operands(workload).summed)
