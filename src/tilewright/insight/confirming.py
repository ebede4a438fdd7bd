"""Turning points that structure names, looked for in a few measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.core.predictions import TurningPoint
from tilewright.insight.single_operators import KernelTimer
from tilewright.predict.change_points import EACH_SIDE, LEAST_VALUES, Change, change_at
from tilewright.predict.kernel_facts import Kernel

_MOST_PLACES = 6
"""So many places, those with the largest predicted steps, are measured."""

_MEASURED = 3
"""Values measured before a place and from it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """An operator's kernels along one of its numbers, rising."""

    values: Sequence[int]
    kernels: Sequence[Kernel]

    @property
    def work(self) -> list[float]:
        """FLOP of each kernel, bytes where there is no arithmetic."""
        return [float(workload.flop or workload.bytes) for workload, _ in self.kernels]


def confirmed(
    points: Sequence[TurningPoint], sweeps: Mapping[str, Sweep], timer: KernelTimer
) -> tuple[TurningPoint, ...]:
    """The same points with what was measured around the first few places; `sweeps` are by
    parameter. Points of one place, of several facts, share its measurements; those at the edge of a
    sweep have too few values beside them."""
    named = dict.fromkeys((point.parameter, point.value) for point in points)
    inside = [(name, value) for name, value in named if _is_inside(sweeps[name], value)]
    places = inside[:_MOST_PLACES]
    kernels = {
        _identity(sweeps[name].kernels[number]): sweeps[name].kernels[number]
        for name, value in places
        for number in _around(sweeps[name], value)
    }
    times_s = dict(zip(kernels, timer.times(list(kernels.values())), strict=True))
    found = {(name, value): _change(sweeps[name], value, times_s) for name, value in places}
    return tuple(_judged(point, found.get((point.parameter, point.value))) for point in points)


def _is_inside(sweep: Sweep, value: int) -> bool:
    place = sweep.values.index(value)
    return len(sweep.values) >= LEAST_VALUES and EACH_SIDE <= place <= len(sweep.values) - EACH_SIDE


def _identity(kernel: Kernel) -> tuple[str, object]:
    return kernel[0].key, kernel[1]


def _around(sweep: Sweep, value: int) -> range:
    """The numbers of the values around one of them."""
    place = sweep.values.index(value)
    return range(max(0, place - _MEASURED), min(len(sweep.values), place + _MEASURED))


def _change(
    sweep: Sweep, value: int, times_s: Mapping[tuple[str, object], float | None]
) -> Change | None:
    """None where too few of the values could be timed."""
    work = sweep.work
    timed = {
        sweep.values[number]: seconds / work[number]
        for number in _around(sweep, value)
        if (seconds := times_s[_identity(sweep.kernels[number])]) is not None
    }
    if value not in timed:
        return None
    return change_at(list(timed), list(timed.values()), list(timed).index(value))


def _judged(point: TurningPoint, change: Change | None) -> TurningPoint:
    if change is None:
        return point
    same_way = (change.ratio > 1) == (point.ratio > 1)
    return replace(
        point,
        measured_ratio=change.ratio,
        confirmed=change.clear and same_way and change.value == point.value,
    )
