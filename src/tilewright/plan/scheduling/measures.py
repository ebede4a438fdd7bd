"""What a schedule takes: seconds, joules, bytes, watts, money. All planners are judged by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from tilewright.plan.scheduling.capacities import ROUNDING, capacities, demand
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.profiles import Held, Profile, folded, shortened
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.soundness import unknown_energies

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What one inference takes, by a schedule.

    `latency_s` is the end of the last call. `period_s` is the time between two answers where
    requests follow each other without pause, each begun as soon as the cores and links of the one
    before it are free, or only after its end where a limit allows no more. `energy_j` is what the
    calls draw, and all devices idle until the end: None where `energy_reason` says what nobody
    knows. `price` is that of the devices that compute something, for so long; None where nobody
    knows it. The peaks are by device.
    """

    latency_s: float
    period_s: float
    energy_j: float | None
    energy_reason: str
    price: float | None
    peak_memory_bytes: Mapping[str, int]
    peak_power_w: Mapping[str, float]


def measures(problem: SchedulingProblem, schedule: Schedule) -> Measures:
    """All of them."""
    margin = ROUNDING * schedule.latency_s
    memory, powers = memory_held(problem, schedule), _running(problem, schedule, "power_w")
    energy_j, reason = energy(problem, schedule)
    return Measures(
        latency_s=schedule.latency_s,
        period_s=period_s(problem, schedule),
        energy_j=energy_j,
        energy_reason=reason,
        price=price(problem, schedule),
        peak_memory_bytes={
            name: round(Profile(shortened(held, margin)).peak) for name, held in memory.items()
        },
        peak_power_w={
            name: Profile(shortened(held, margin)).peak + (problem.device[name].idle_w or 0.0)
            for name, held in powers.items()
        },
    )


def objective_of(problem: SchedulingProblem, schedule: Schedule) -> float:
    """What the problem asks to be least."""
    match problem.objective:
        case "latency":
            found: float | None = schedule.latency_s
        case "throughput":
            found = period_s(problem, schedule)
        case "energy":
            found = energy(problem, schedule)[0]
        case "price":
            found = price(problem, schedule)
    assert found is not None, "a problem without what its objective counts is refused"
    return found


def judged(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """The same with its objective."""
    return replace(schedule, objective=objective_of(problem, schedule))


def energy(problem: SchedulingProblem, schedule: Schedule) -> tuple[float | None, str]:
    """Joules of one inference; None with the reason where nobody knows those of a part."""
    chosen = [schedule.mode_of(problem, call.name) for call in problem.calls]
    for unknown in unknown_energies(
        problem.devices,
        [replace(call, modes=(mode,)) for call, mode in zip(problem.calls, chosen, strict=True)],
    ):
        return None, f"nobody knows {unknown}"
    idle_w = sum(device.idle_w or 0.0 for device in problem.devices)
    return sum(mode.energy_j or 0.0 for mode in chosen) + idle_w * schedule.latency_s, ""


def price(problem: SchedulingProblem, schedule: Schedule) -> float | None:
    """Money for one inference: the devices that compute, for as long as it takes."""
    used = {schedule.mode_of(problem, slot.call).device for slot in schedule.slots}
    prices = [problem.device[name].price_per_hour for name in sorted(used)]
    known = [each for each in prices if each is not None]
    return sum(known) * schedule.latency_s / HOUR_S if len(known) == len(prices) else None


def period_s(problem: SchedulingProblem, schedule: Schedule) -> float:
    """Seconds between two answers where requests follow each other without pause: the longest time
    that one request holds a core or link, from its first use to its last; the latency where so
    many requests at a time would break a limit of a device."""
    spans: dict[tuple[str, object], tuple[float, float]] = {}
    uses = chain(
        (
            ((schedule.mode_of(problem, slot.call).device, core), slot.begin_s, slot.end_s)
            for slot in schedule.slots
            for core in slot.cores
        ),
        (((way.origin, way.destination), way.begin_s, way.end_s) for way in schedule.transfers),
    )
    for key, begin, end in uses:
        first, last = spans.get(key, (begin, end))
        spans[key] = (min(first, begin), max(last, end))
    period = max((last - first for first, last in spans.values()), default=0.0)
    latency = schedule.latency_s
    if period >= latency or overfull(problem, schedule, period):
        return latency
    return period


def overfull(
    problem: SchedulingProblem, schedule: Schedule, period: float | None = None
) -> list[tuple[str, str, float, float]]:
    """What is held too much of at some moment: device, what, how much at most, how much there is.

    With a `period` a request begins after each.
    """
    margin = ROUNDING * schedule.latency_s
    held: list[tuple[str, str, list[Held], float]] = [
        (name, "memory_bytes", there, float(limit))
        for name, there in memory_held(problem, schedule).items()
        if (limit := problem.device[name].memory_bytes) is not None
    ]
    for what in ("bytes_per_s", "power_w"):
        held += [
            (name, what, there, limit)
            for name, there in _running(problem, schedule, what).items()
            if (limit := capacities(problem.device[name]).get(what)) is not None
        ]
    found: list[tuple[str, str, float, float]] = []
    for name, what, there, limit in held:
        short = shortened(there, margin)
        peak = Profile(short if period is None else folded(short, period)).peak
        if peak > limit * (1 + ROUNDING):
            found.append((name, what, peak, limit))
    return found


def memory_held(problem: SchedulingProblem, schedule: Schedule) -> dict[str, list[Held]]:
    """What lies on each device from when to when: weights all the time, workspaces while calls
    run, results from the begin of their call until the end of the last one that reads them, copies
    from the begin of their transfer until the end of the last one that reads them there."""
    latency = schedule.latency_s
    held: dict[str, list[Held]] = {device.name: [] for device in problem.devices}
    readers: dict[tuple[int, str], float] = {}
    for number, call in enumerate(problem.calls):
        slot, mode = schedule.slot[call.name], schedule.mode_of(problem, call.name)
        held[mode.device].append((0.0, inf, mode.weight_bytes))
        held[mode.device].append((slot.begin_s, slot.end_s, mode.workspace_bytes))
        for before, _ in problem.before[number]:
            for key in ((before, ""), (before, mode.device)):
                readers[key] = max(readers.get(key, 0.0), slot.end_s)
    for number, call in enumerate(problem.calls):
        slot, mode = schedule.slot[call.name], schedule.mode_of(problem, call.name)
        until = latency if call.answer else max(readers.get((number, ""), 0.0), slot.end_s)
        held[mode.device].append((slot.begin_s, until, call.output_bytes))
    for way in schedule.transfers:
        number = problem.numbers[way.call]
        until = max(readers.get((number, way.destination), 0.0), way.end_s)
        held[way.destination].append((way.begin_s, until, problem.sent_bytes[number]))
    return held


def memory_over_time(problem: SchedulingProblem, schedule: Schedule) -> dict[str, Profile]:
    """The same as a profile of each device."""
    return {name: Profile(held) for name, held in memory_held(problem, schedule).items()}


def _running(problem: SchedulingProblem, schedule: Schedule, what: str) -> dict[str, list[Held]]:
    """How much of something the calls take on each device from when to when."""
    held: dict[str, list[Held]] = {device.name: [] for device in problem.devices}
    for slot in schedule.slots:
        mode = schedule.mode_of(problem, slot.call)
        amount = demand(what, problem.device[mode.device], mode)
        held[mode.device].append((slot.begin_s, slot.end_s, amount))
    return held
