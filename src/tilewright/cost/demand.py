"""What one call of a kernel asks of a processor, and the estimate that is made of it.

Estimates rank the candidates of a task; the same clock and bandwidths for all of them hardly change
their order. What a machine really reaches is measured (`floors.Peaks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewright.core.targets import Resources

CLOCK_HZ = 2.7e9
"""Cycles per second of every core."""

LEVELS = {"L2": 4e10, "L3": 2e10, "memory": 1e10}
"""Bytes per second that one thread gets from a level of memory."""

LAUNCH_S = 2e-6
"""Starting a parallel region."""

Column = npt.NDArray[np.float64]
Numbers = Column | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """One kernel as a GPU runs it; one entry per setting, or a plain number of all.

    There are `count` blocks of `threads` threads, each thread with about `registers` registers and
    each block with `shared_bytes` of shared memory. Of one block: `operations` are multiplications
    and additions, wasted ones included, by the unit that takes an `element` (of `tf32`, that of
    matrices); `instructions` all that its warps issue; `shared_traffic_bytes` what moves through
    shared memory, a conflict counted as the time it takes; `traffic_bytes` what it reads and writes
    outside, from the second-level cache on; `steps` the loads that it waits for one after the
    other. `memory_bytes` is what all blocks together move to and from device memory.
    """

    count: Numbers
    threads: Numbers
    registers: Numbers
    shared_bytes: Numbers = 0.0
    operations: Numbers = 0.0
    element: str = "float32"
    instructions: Numbers = 0.0
    shared_traffic_bytes: Numbers = 0.0
    traffic_bytes: Numbers = 0.0
    steps: Numbers = 1.0
    memory_bytes: Numbers = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One entry per setting of a kernel, or per kernel; a plain number is that of all.

    `operations` are multiplications and additions of vector units, wasted ones included, of which a
    core does `per_cycle` in a cycle; `cycles` are what cores spend besides. `traffic` are bytes by
    the level that they come from (see `LEVELS`). The call falls into `pieces` that do not
    depend on each other; with `even` the threads are as busy as each other all the same. Where a
    piece moves its own part of the bytes (`own_traffic`), idle threads move none. `hidden` is the
    share of the shorter of arithmetic and traffic that is done beside the longer. Threads are
    started `launches` times. `details` tell more of a kernel (accumulators, waste, …) to models.
    On a GPU only the kernels that it starts one after the other count, `blocks`, the main one
    first.
    """

    pieces: Numbers
    operations: Numbers = 0.0
    per_cycle: Numbers = 1.0
    cycles: Numbers = 0.0
    traffic: Mapping[str, Numbers] = field(default_factory=dict[str, Numbers])
    launches: Numbers = 1.0
    even: bool = False
    own_traffic: bool = False
    hidden: float = 0.0
    clock_hz: float = CLOCK_HZ
    details: Mapping[str, Numbers] = field(default_factory=dict[str, Numbers])
    blocks: tuple[Blocks, ...] = ()


def balance(pieces: Numbers, resources: Resources) -> Column:
    """Share of the threads that equal pieces of work keep busy."""
    count = np.maximum(1.0, np.asarray(pieces, np.float64))
    return count / (np.ceil(count / resources.threads) * resources.threads)


def seconds(demand: Demand, resources: Resources) -> Column:
    """A rough time of one call: good for an order, not for a promise.

    Arithmetic and traffic follow each other but for what is `hidden`; threads without a piece of
    work wait for the others.
    """
    busy = resources.threads * (1.0 if demand.even else balance(demand.pieces, resources))
    cycles = demand.operations / np.asarray(demand.per_cycle) + demand.cycles
    computing_s = cycles / (demand.clock_hz * busy)
    alone_s = sum(moved / LEVELS[level] for level, moved in demand.traffic.items())
    moving_s = alone_s / (busy if demand.own_traffic else resources.threads)
    spared_s = demand.hidden * np.minimum(computing_s, moving_s)
    return computing_s + moving_s - spared_s + demand.launches * LAUNCH_S
