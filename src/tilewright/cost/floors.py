"""The least that operators need, and the time below which a machine cannot do it.

    floor_s(least_work(workload, target), peaks)   the roofline's time of one call, in seconds

An algorithm with fewer operations than the definition (Winograd's, say) has a `Work` of its own.
Williams, Waterman and Patterson, "Roofline", 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.targets import Target
from tilewright.cost.demand import Column, Numbers
from tilewright.graph.workload import Workload

MEASURED = "float32"
"""The element type whose peaks a machine was measured for."""
_CALL_S = 1e-7
"""No call takes less."""
_OVERHEAD_SHARE, _SHORT_S = 3.0, 2e-5
_PARTIAL = frozenset({"gather", "slice"})
"""Operators that read no more of their first operand than comes out."""
IN_PLACE = "cache_write"
"""The operator that may leave its first operand where it is and write what changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a machine reaches at most: operations in single precision, bytes from memory, and bytes
    from its caches, each per second."""

    flop_per_s: float
    bytes_per_s: float
    cache_bytes_per_s: float


def datasheet_peaks(target: Target) -> Peaks | None:
    """What a GPU reaches by its datasheet; None for a processor of which only measuring tells."""
    if target.launch is None:
        return None
    return Peaks(
        flop_per_s=target.operations_per_cycle(MEASURED) * target.cores * target.clock_hz,
        bytes_per_s=target.memory[-1].bytes_per_s,
        cache_bytes_per_s=target.memory[-2].bytes_per_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The least that a call must do: numbers of one, or a column of many.

    `flop` are operations, of which the machine does `speed` in the time of one in single precision.
    Constants come from memory, all other bytes from a cache (decision 0004).
    """

    flop: Numbers
    memory_bytes: Numbers
    cache_bytes: Numbers = 0.0
    speed: Numbers = 1.0

    def computing_s(self, peaks: Peaks) -> Numbers:
        """Seconds of the arithmetic alone."""
        return self.flop / (peaks.flop_per_s * self.speed)

    def moving_s(self, peaks: Peaks) -> Numbers:
        """Seconds of moving every byte once."""
        cached_s = self.cache_bytes / peaks.cache_bytes_per_s
        return self.memory_bytes / peaks.bytes_per_s + cached_s


def raised(peaks: Peaks, calls: Iterable[tuple[Work, float]]) -> Peaks:
    """The peaks, raised to what these calls reached: what a machine was seen to do it can do.

    Calls are their work and their seconds. Short ones say nothing: what little they move may lie in
    nearer caches than the peaks are of.
    """
    long = [(work, latency_s) for work, latency_s in calls if latency_s >= _SHORT_S]
    flop = max([1.0, *(float(work.computing_s(peaks)) / s for work, s in long)])
    moved = max([1.0, *(float(work.moving_s(peaks)) / s for work, s in long)])
    return Peaks(
        flop_per_s=flop * peaks.flop_per_s,
        bytes_per_s=moved * peaks.bytes_per_s,
        cache_bytes_per_s=moved * peaks.cache_bytes_per_s,
    )


def roofline_s(work: Work, peaks: Peaks) -> Column:
    """Arithmetic or moving, whichever takes longer."""
    return np.maximum(work.computing_s(peaks), work.moving_s(peaks))


def floor_s(work: Work, peaks: Peaks) -> Column:
    """The roofline's time, and never less than a call takes that does nothing."""
    return np.maximum(roofline_s(work, peaks), _CALL_S)


def bound(work: Work, peaks: Peaks, latency_s: float) -> str:
    """What a call's time is nearest to: `compute` or `memory`, `overhead` far above both."""
    computing_s, moving_s = work.computing_s(peaks), work.moving_s(peaks)
    if _OVERHEAD_SHARE * max(computing_s, moving_s) < latency_s < _SHORT_S:
        return "overhead"
    return "compute" if computing_s >= moving_s else "memory"


def least_work(workload: Workload, target: Target) -> Work:
    """What a workload's definition demands, whatever computes it."""
    constant_bytes, data_bytes = least_read_bytes(workload)
    in_place = workload.anchor_name == IN_PLACE
    untouched_bytes = 2 * workload.arguments[0].type.bytes if in_place else 0
    return Work(
        flop=workload.flop,
        memory_bytes=constant_bytes,
        cache_bytes=data_bytes + workload.result.bytes - untouched_bytes,
        speed=speed(workload, target),
    )


def columns(works: Sequence[Work]) -> Work:
    """The works of many calls as one of columns."""
    names = ("flop", "memory_bytes", "cache_bytes", "speed")
    return Work(**{n: np.array([getattr(work, n) for work in works], np.float64) for n in names})


def speed(workload: Workload, target: Target) -> float:
    """Operations of a workload in the time of one in single precision, by the fastest unit that
    takes what its anchor multiplies. What no unit of a GPU takes, such as unsigned bytes times
    unsigned bytes, counts as singles: a floor may be too low, not too high."""
    operands = workload.anchor.inputs if workload.anchor is not None else ()
    taken = {workload.types[operand].dtype for operand in operands} | {workload.computed_in}
    if target.launch is not None:
        taken.add(MEASURED)
    rates = [target.operations_per_cycle(dtype) for dtype in taken]
    return max(rates) / target.operations_per_cycle(MEASURED)


def least_read_bytes(workload: Workload) -> tuple[int, int]:
    """Bytes of constants and of data that must be read once: of what is only gathered or cut from,
    as many as come out."""
    read = [0, 0]
    for index, argument in enumerate(workload.arguments):
        taken = _taken_bytes(workload, index)
        least = argument.type.bytes if taken is None else min(argument.type.bytes, taken)
        read[argument.role == "data"] += least
    return read[0], read[1]


def looked_up_bytes(workload: Workload) -> int:
    """Bytes of constants that are only gathered or cut from, as many as come out."""
    return sum(
        min(argument.type.bytes, _taken_bytes(workload, index) or 0)
        for index, argument in enumerate(workload.arguments)
        if argument.role == "constant"
    )


def _taken_bytes(workload: Workload, index: int) -> int | None:
    """Bytes that come out of an argument which is only gathered or cut from; None for others."""
    readers = [n for n, step in enumerate(workload.steps) if index in step.inputs]
    if readers and all(workload.steps[n].operator in _PARTIAL for n in readers):
        return sum(workload.step_types(n)[1].bytes for n in readers)
    return None
