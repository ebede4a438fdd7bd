"""How long a GPU takes for the blocks of one kernel, before anything runs.

    seconds(blocks, target)    one entry per setting

Blocks are dealt out to multiprocessors, each of which holds as many at a time as threads, registers
and shared memory allow; what it holds shares its arithmetic, its shared memory and its way to the
second-level cache, and waits together. When all have as many as they hold, the rest goes in further
waves, the last of which is seldom full. All of that is in what a person can look up for a card,
but for three numbers, which are fitted to 2,787 kernels measured on an H100 (docs/decisions/0072).

The model of waves is that of Hong and Kim, "An Analytical Model for a GPU Architecture", 2009; how
many blocks fit follows NVIDIA's occupancy calculation (`cuda_occupancy.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.targets import LaunchLimits, Target
from tilewright.cost.demand import Blocks, Column, Numbers

LAUNCH_S = 1.0e-6
"""From one kernel of a graph to the next: fitted."""

_PARTITIONS = 4
_REGISTER_UNIT = 256
_ISSUED_PER_CYCLE = 4.0
_STEP_CYCLES = 420.0
"""From a load's issue to its use, of device memory and of the second-level cache alike: fitted."""
_OVERLAPPING_WARPS = 46.0
"""With so many warps on a multiprocessor, half of what could be done side by side is: fitted."""


def resident(blocks: Blocks, limits: LaunchLimits) -> dict[str, Column]:
    """How many blocks of a kernel a multiprocessor holds, by what would limit it alone."""
    warps = np.ceil(np.asarray(blocks.threads, np.float64) / limits.warp)
    warp_registers = _whole(np.asarray(blocks.registers, np.float64) * limits.warp, _REGISTER_UNIT)
    of_partition = limits.registers / _PARTITIONS
    shared = np.asarray(blocks.shared_bytes, np.float64)
    taken = _whole(np.maximum(shared, 1.0), limits.shared_unit_bytes) + limits.reserved_shared_bytes
    fitting = np.where(shared <= limits.block_shared_bytes, limits.shared_bytes // taken, 0.0)
    return {
        "threads": limits.threads // (warps * limits.warp),
        "blocks": np.full(np.shape(warps), float(limits.blocks)),
        "registers": _PARTITIONS * (of_partition // np.maximum(1.0, warp_registers)) // warps,
        "shared memory": np.where(shared > 0, fitting, float(limits.blocks)),
    }


def held(blocks: Blocks, limits: LaunchLimits) -> Column:
    """How many blocks of a kernel a multiprocessor holds at once, 0 where one does not fit."""
    return np.min(np.stack(np.broadcast_arrays(*resident(blocks, limits).values())), axis=0)


def facts(blocks: Blocks, target: Target) -> dict[str, Column]:
    """What a launch looks like: blocks held by a multiprocessor, the warps of each, the part of its
    threads they are, waves, the part of the last wave that stays empty, and the blocks of the
    busiest one."""
    limits = target.limits
    at_once = held(blocks, limits)
    waves = np.asarray(blocks.count) / np.maximum(1.0, at_once * target.cores)
    return {
        "blocks_per_multiprocessor": at_once,
        "warps": _threads(blocks, limits) / limits.warp,
        "occupancy": at_once * _threads(blocks, limits) / limits.threads,
        "waves": waves,
        "tail": 1.0 - waves / np.ceil(waves),
        "most_blocks": np.ceil(np.asarray(blocks.count) / target.cores),
    }


def totals(launched: Sequence[Blocks]) -> dict[str, Column]:
    """What the kernels of a call, at least one, the main one first, take: threads, registers and
    shared memory of the main one, and of all of them together how many are started, the
    instructions that warps issue, and the bytes that move through shared memory, to and from the
    second-level cache, and to and from device memory."""

    def summed(each: Callable[[Blocks], Numbers]) -> Column:
        return np.sum(np.stack(np.broadcast_arrays(*map(each, launched))), axis=0)

    main = launched[0]
    return {
        "threads": np.asarray(main.threads),
        "registers": np.asarray(main.registers),
        "shared_bytes": np.asarray(main.shared_bytes),
        "launches": summed(lambda one: np.minimum(1.0, one.count)),
        "instructions": summed(lambda one: one.count * np.asarray(one.instructions)),
        "shared_traffic_bytes": summed(
            lambda one: one.count * np.asarray(one.shared_traffic_bytes)
        ),
        "cache_traffic_bytes": summed(lambda one: one.count * np.asarray(one.traffic_bytes)),
        "memory_traffic_bytes": summed(lambda one: one.memory_bytes),
    }


def seconds(blocks: Blocks, target: Target) -> Column:
    """A rough time of one kernel; infinite where no block fits, none where it has no blocks."""
    limits = target.limits
    at_once = held(blocks, limits)
    most = np.maximum(1.0, at_once) * target.cores
    count = np.asarray(blocks.count, np.float64)
    full = np.floor(count / most)
    rest = np.ceil((count - full * most) / target.cores)
    cycles = full * _wave(blocks, target, np.maximum(1.0, at_once)) + np.where(
        rest > 0, _wave(blocks, target, np.maximum(1.0, rest)), 0.0
    )
    moving_s = np.asarray(blocks.memory_bytes) / target.memory[-1].bytes_per_s
    taken_s = np.maximum(cycles / target.clock_hz, moving_s) + LAUNCH_S * (count > 0)
    return np.where(at_once > 0, taken_s, np.inf)


def _wave(blocks: Blocks, target: Target, together: Column) -> Column:
    """Cycles of a multiprocessor for so many blocks at once: what they share takes turns, and none
    is done before its own loads have come, one after the other."""
    waiting = np.asarray(blocks.steps) * _STEP_CYCLES
    alone = waiting + _turn(blocks, target, np.asarray(1.0))
    return np.maximum(together * _turn(blocks, target, together), alone)


def _turn(blocks: Blocks, target: Target, together: Column) -> Column:
    """Cycles of a multiprocessor for one of so many blocks at once. Too few warps leave some of its
    partitions without work; the more there are, the more of arithmetic, issue and traffic is done
    beside the longest of them."""
    warps = together * _threads(blocks, target.limits) / target.limits.warp
    busy = np.minimum(1.0, warps / _PARTITIONS)
    shared, l2 = target.memory[0], target.memory[1]
    of_all = target.cores * target.clock_hz
    shares = (
        np.asarray(blocks.operations) / target.operations_per_cycle(blocks.element) / busy,
        np.asarray(blocks.instructions) / _ISSUED_PER_CYCLE / busy,
        np.asarray(blocks.shared_traffic_bytes) / (shared.bytes_per_s / target.clock_hz),
        np.asarray(blocks.traffic_bytes) / (l2.bytes_per_s / of_all),
    )
    each = np.stack(np.broadcast_arrays(*shares))
    longest = np.max(each, axis=0)
    return longest + (np.sum(each, axis=0) - longest) / (1.0 + warps / _OVERLAPPING_WARPS)


def _threads(blocks: Blocks, limits: LaunchLimits) -> Column:
    """Threads of a block in whole warps."""
    return _whole(np.asarray(blocks.threads, np.float64), limits.warp)


def _whole(amount: Column, unit: int) -> Column:
    return np.ceil(amount / unit) * unit
