"""ARM's products of matrices: what kernels know of them.

    bfmmla          2 × 4 bfloat16 times 4 × 2, added to 2 × 2 singles         extension bf16
    smmla, usmmla   2 × 8 codes times 8 × 2, added to 2 × 2 sums of 32 bits    extension i8mm

Each multiplies two vector registers and adds to a third: a word of eight bytes of each of two lines
of data with one of each of two columns of weights, which are packed so. It does twice the products
of a dot product. Sums of two lines and two columns lie in a register until they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Numbers
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import has_unit
from tilewright.kernels.codes import CODES
from tilewright.kernels.columns import Bools, Floats, column
from tilewright.kernels.register_tile import RegisterTile

HALF_UNIT, CODE_UNIT = "bf16", "i8mm"
LANES, WORD_BYTES = 4, 8
"""Columns that are stored at once; bytes of a line that are multiplied at once."""
VECTORS = (1, 2, 3, 4, 6)
"""Registers' worth of columns that tiles of rows have."""
_AHEAD = 4


def word_of(dtype: str, target: Target) -> int:
    """Codes of a pixel that are multiplied at once where a processor multiplies matrices of them,
    else 0."""
    return WORD_BYTES if dtype in CODES and has_unit(target, CODE_UNIT) else 0


def pairs_tile(lines: Numbers, columns: Numbers) -> RegisterTile:
    """The tile of so many lines and columns, a register of sums for two of each."""
    return RegisterTile(np.ceil(np.asarray(lines) / 2.0), np.asarray(columns) / 2.0)


def fits_registers(tile: RegisterTile, target: Target) -> Bools:
    """Whether the sums stay in registers, beside what there is less of, data or weights, and four
    registers of the other, which LLVM loads ahead in pairs."""
    kept = np.minimum(tile.rows, tile.vectors)
    return np.less_equal(tile.accumulators + kept + _AHEAD, target.vector_registers)


def gain(target: Target, dtype: str, tile: RegisterTile, lines: Numbers, apart: Bools) -> Floats:
    """How many times as fast as dot products a tile's products are: less where lines are odd, as
    half of a register's products are dropped, and where the lines of a pair lie `apart`, which
    takes an instruction more for each."""
    every, vectors = (target.operations_per_cycle(dtype, tiles=tiles) for tiles in (True, False))
    used = lines / (2.0 * np.asarray(tile.rows))
    return every / vectors * used / (1.0 + np.where(apart, 1.0, 0.0) / tile.vectors)


class TilesOfRows:
    """Specs whose tiles have `tile_rows` rows and a `block` of columns, two of each to a
    register."""

    def lines(self, settings: Settings) -> tuple[int, int]:
        """All rows of a tile."""
        return int(settings["tile_rows"]), 1

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """Pairs of rows and of columns."""
        return pairs_tile(column(settings, "tile_rows"), column(settings, "block"))

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There are registers for so many sums."""
        return fits_registers(self.tile(settings, LANES), target)
