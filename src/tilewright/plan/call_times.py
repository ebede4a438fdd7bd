"""Scheduling problems with times of calls that were taken in their places in the network.

predicted   conv1   1 core: 90 µs, 2 cores: 50 µs
in place    conv1   1 core: 84 µs (to 91), 2 cores: 49 µs (to 52)
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.graph.plan import NetworkPlan
from tilewright.plan.lanes import producers
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.problem import SchedulingProblem


@dataclass(frozen=True, slots=True)
class TimeInPlace:
    """Seconds of a call in its place: those of its calmest round, since what else runs on a machine
    makes calls longer and never shorter, and those of the round that took most."""

    seconds: float
    high_s: float

    @classmethod
    def of(cls, rounds_s: Sequence[float]) -> TimeInPlace:
        """By what each round took, itself the median of some runs."""
        return cls(min(rounds_s), max(rounds_s))


CallTimes = Mapping[int, Mapping[str, TimeInPlace]]
"""What calls take by their number of cores and their names."""


def with_readers(
    plan: NetworkPlan, places_s: Mapping[str, float], own: Collection[str]
) -> dict[str, float]:
    """Seconds of the network's `own` calls: what a change of form takes counts to the first call
    that reads what it makes; where only an output does, to the call whose result it changes."""
    left_s, before = dict(places_s), producers(plan)
    found = defaultdict[str, float](float)
    for call in plan.calls:
        made = deque([call.name] if call.name in own else [])
        while made:
            name = made.popleft()
            found[call.name] += left_s.pop(name, 0.0)
            made.extend(before[name].difference(own))
    for name, seconds in left_s.items():
        changed = {name}
        while changed and changed.isdisjoint(own):
            changed = {other for each in changed for other in before[each]}
        makers = [call.name for call in plan.calls if call.name in changed.intersection(own)]
        if makers:
            found[makers[-1]] += seconds
    return dict(found)


def as_timed(problem: SchedulingProblem, times: CallTimes) -> SchedulingProblem:
    """The problem of a network on this CPU with these times, which are exact; calls of equal work
    take unequal times in their places, and are no equal tasks. An energy that was not measured is
    of the same power for the new time."""
    calls = tuple(
        replace(
            call,
            task=f"{call.task} in place {number}" if call.task else "",
            modes=tuple(_timed(call, times)),
        )
        for number, call in enumerate(problem.calls)
    )
    return replace(problem, calls=calls)


def _timed(call: ScheduledCall, times: CallTimes) -> Iterator[Mode]:
    for mode in call.modes:
        time = times[mode.cores][call.name]
        told = {"latency_s": time.seconds, "low_s": time.seconds, "high_s": time.high_s}
        if mode.energy_j is not None and mode.energy_is != "measured" and mode.latency_s:
            told["energy_j"] = mode.energy_j * time.seconds / mode.latency_s
        yield replace(mode, **told, source="exact")
