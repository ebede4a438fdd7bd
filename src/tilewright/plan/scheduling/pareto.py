"""What a little more latency buys: schedules none of which is better in both of two measures.

    front(problem, "energy")     10.0 ms 0.50 J,  10.4 ms 0.31 J,  13 ms 0.24 J

One measure is made least while the other has a limit that is moved step by step (the ε-constraint
method: Haimes, Lasdon and Wismer 1971); each search begins with what the others found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from tilewright.core.errors import UsageError
from tilewright.core.schedules import Second
from tilewright.plan.scheduling.measures import Measures, measures
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import Infeasible, NothingFound

_LESS = 1 - 1e-6

_Point = TypeVar("_Point")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compromise:
    """A schedule with its latency in seconds and its second measure."""

    schedule: Schedule
    latency_s: float
    second: float


def front(
    problem: SchedulingProblem, second: Second, *, points: int = 7, limit_s: float = 10.0
) -> list[Compromise]:
    """The compromises that were found, by rising latency; each search takes `limit_s` at most.

    Raises ModelError where nobody knows what the second measure counts, Infeasible and NothingFound
    where the problem has no schedule, UsageError for fewer than two points.
    """
    if points < 2:
        raise UsageError(f"a front of {points} points is none; it has two ends")
    fastest = replace(problem, objective="latency")
    least = fastest if second == "memory" else replace(problem, objective=second)
    found = [CpSat().schedule(fastest, limit_s)]
    (_shrink if second == "memory" else _slow_down)(least, found, points, limit_s)
    value = _SECOND[second]
    every = [
        Compromise(
            schedule=each,
            latency_s=each.latency_s,
            second=value(measures(problem, each)),
        )
        for each in found
    ]
    return undominated(every, lambda point: (point.latency_s, point.second))


def _slow_down(
    problem: SchedulingProblem, found: list[Schedule], points: int, limit_s: float
) -> None:
    """The least of the second measure at all, and within latencies between that and the least."""
    soonest = found[0].latency_s
    found.append(CpSat().improved(problem, found, limit_s))
    latest = found[-1].latency_s
    limits = problem.limits
    for step in range(points - 1):
        # close to the least latency a little more buys most
        within_s = soonest + (latest - soonest) * (step / (points - 1)) ** 3
        given = min(within_s, limits.deadlines_s.get("", within_s))
        deadlines = {**limits.deadlines_s, "": given}
        narrow = replace(problem, limits=replace(limits, deadlines_s=deadlines))
        found.append(CpSat().improved(narrow, found, limit_s))


def _shrink(problem: SchedulingProblem, found: list[Schedule], points: int, limit_s: float) -> None:
    """The least latencies with less and less memory on all devices."""
    peaks = measures(problem, found[0]).peak_memory_bytes
    for step in range(1, points):
        devices = tuple(
            replace(
                device,
                memory_bytes=min(
                    int(peaks[device.name] * (1 - step / points)), device.memory_bytes or 1 << 62
                ),
            )
            for device in problem.devices
        )
        with suppress(Infeasible, NothingFound):
            found.append(CpSat().improved(replace(problem, devices=devices), found, limit_s))


def undominated(
    every: Iterable[_Point], values: Callable[[_Point], Sequence[float]]
) -> list[_Point]:
    """Those that none of the others equals or beats in all values, a millionth being nothing; of
    equal ones the first, by rising values."""
    kept: list[tuple[_Point, Sequence[float]]] = []
    for each in sorted(every, key=lambda point: tuple(values(point))):
        own = values(each)
        beaten = (all(map(_no_more, there, own)) for _, there in kept)
        if not any(beaten):
            kept.append((each, own))
    return [each for each, _ in kept]


def _no_more(one: float, other: float) -> bool:
    return one * _LESS <= other


_SECOND: Mapping[Second, Callable[[Measures], float]] = {
    "energy": lambda found: found.energy_j or 0.0,
    "price": lambda found: found.price or 0.0,
    "memory": lambda found: float(sum(found.peak_memory_bytes.values())),
}
