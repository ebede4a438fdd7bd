"""What one call of a kernel asks of a processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewright.cost.rates import CLOCK_HZ

Column = npt.NDArray[np.float64]
Numbers = Column | float


def _no_columns() -> dict[str, Column]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One entry per setting of a kernel, or per kernel; a plain number is that of all.

    `operations` are multiplications and additions of vector units, wasted ones included, of which a
    core does `per_cycle` in a cycle; `cycles` are what cores spend besides. `traffic` are bytes by
    the level that they come from (see `rates.LEVELS`). The call falls into `pieces` that do not
    depend on each other; with `even` the threads are as busy as each other all the same. Where a
    piece moves its own part of the bytes (`own_traffic`), idle threads move none. `hidden` is the
    share of the shorter of arithmetic and traffic that is done beside the longer. Threads are
    started `launches` times. `details` tell more of a kernel (accumulators, waste, …) to models.
    """

    pieces: Numbers
    operations: Numbers = 0.0
    per_cycle: Numbers = 1.0
    cycles: Numbers = 0.0
    traffic: Mapping[str, Numbers] = field(default_factory=_no_columns)
    launches: Numbers = 1.0
    even: bool = False
    own_traffic: bool = False
    hidden: float = 0.0
    clock_hz: float = CLOCK_HZ
    details: Mapping[str, Numbers] = field(default_factory=_no_columns)
