"""Register tiles of products: how large they may be, and what they lose against the peak."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from tilewright.cost.demand import Column
from tilewright.kernels.columns import Bools


def row_tile_sizes(rows: int) -> tuple[int, ...]:
    """Tiles of up to 14 rows that waste little at the end."""
    sizes = [t for t in range(1, min(rows, 14) + 1) if -(-rows // t) * t <= 1.12 * rows]
    return tuple(t for t in sizes if t >= 4 or t == rows)


def issue_slowdown(accumulators: Column, loads: Column) -> Column:
    """Time over peak time of a tile with so many accumulators and loads per multiply-add.

    Two multiply-adds and two loads are issued per cycle, but a stream of loads alone does not reach
    that (a 14×1 tile runs at 0.6 of the peak). A latency of four cycles wants eight accumulators
    at least, and a little more room hides the rest.
    """
    latency = np.maximum(1.0, 8.0 / accumulators)
    return np.maximum(1.0, 1.5 * loads) * latency * (1.0 + 1.2 / accumulators + 0.15 * loads)


@overload
def fits_registers(
    accumulators: Column, columns: Column, registers: int, *, kept: Column
) -> Bools: ...
@overload
def fits_registers(accumulators: int, columns: int, registers: int, *, kept: int = 1) -> bool: ...
def fits_registers(accumulators: Any, columns: Any, registers: int, *, kept: Any = 1) -> Any:
    """Whether a tile keeps its accumulators in registers.

    With one column of weight vectors, inputs are broadcast from memory as operands and all but two
    registers may accumulate. With more, a broadcast serves a row of multiply-adds: one register
    for it, one for each column of weights. (Seen in the machine code: of 32 registers 14×2, 9×3
    and 6×4 tiles stay whole, 7×4 spills. That needs the columns innermost; otherwise LLVM loads
    the broadcasts of the whole tile first.) `kept` are broadcasts that stay in registers because
    neighbouring taps share them.
    """
    alone = (columns == 1) & (accumulators <= registers - 2)
    return alone | (columns > 1) & (accumulators + columns + kept <= registers)
