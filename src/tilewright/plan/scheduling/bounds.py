"""What no schedule can do better than, and limits that none can keep.

    two calls of 8 µs on one core or 5 µs on both, no wait, 2 cores: at least 8 µs of 16 core-µs ÷ 2

Every bound counts what a schedule has in any case: the longest way through the waits with the
fastest modes and what transfers take, and the work that devices share; both at a time where calls
may run in pieces of several modes, as a linear program would have them (`least_time`). What energy
takes at least within a deadline is the same program's answer, where each joule that is saved costs
time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from math import inf

from tilewright.plan.scheduling.capacities import (
    ROUNDING,
    capacities,
    demand,
    unusable,
)
from tilewright.plan.scheduling.least_time import least_energy_j, least_time_s
from tilewright.plan.scheduling.measures import HOUR_S
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import Infeasible

_MOST_CHOSEN_FROM = 4
"""With more devices than so many no price is computed for each choice of them."""


def usable_modes(problem: SchedulingProblem) -> tuple[tuple[int, ...], ...]:
    """For each call the places of the modes that its device has memory and power for when nothing
    else runs. Raises Infeasible for a call without such a mode."""
    found: list[tuple[int, ...]] = []
    limited = {d.name for d in problem.devices if (d.memory_bytes, d.power_w) != (None, None)}
    for number, call in enumerate(problem.calls):
        lacking = [
            unusable(problem, number, mode) if mode.device in limited else "" for mode in call.modes
        ]
        found.append(tuple(place for place, fault in enumerate(lacking) if not fault))
        if not found[-1]:
            each = "; ".join(dict.fromkeys(lacking))
            raise Infeasible(
                f"{problem.title}: call {call.name!r} fits nowhere, it needs {each}.",
                hint="Give it a mode that needs less, or raise the limit to what is needed.",
            )
    return tuple(found)


def require_feasible(problem: SchedulingProblem) -> None:
    """Raise Infeasible where no schedule can keep a limit, as far as that is seen at once."""
    usable_modes(problem)
    _require_room_for_weights(problem)
    if not problem.limits.deadlines_s and problem.limits.energy_j is None:
        return
    least_s = latency_bound(problem)
    ends = _earliest_ends(problem)
    for network, seconds in problem.limits.deadlines_s.items():
        own = [
            end for end, call in zip(ends, problem.calls, strict=True) if call.network == network
        ]
        least = max([least_s] if not network else own)
        if least > seconds * (1 + ROUNDING):
            which = f"of network {network!r}" if network else "of all"
            raise Infeasible(
                f"{problem.title}: the deadline {which}, {seconds:.6g} s, cannot be kept: "
                f"it takes {least:.6g} s at least.",
                hint="Raise it to more than that.",
            )
    most = problem.limits.energy_j
    if most is not None and (least_j := _least_energy(problem, least_s)) > most * (1 + ROUNDING):
        raise Infeasible(
            f"{problem.title}: energy_j, {most:.6g} J, cannot be kept: an inference takes "
            f"{least_j:.6g} J at least.",
            hint="Raise it to more than that.",
        )


def _require_room_for_weights(problem: SchedulingProblem) -> None:
    sizes = [device.memory_bytes for device in problem.devices]
    room = sum(size for size in sizes if size is not None)
    needed = sum(min(mode.weight_bytes for mode in call.modes) for call in problem.calls)
    if None not in sizes and needed > room:
        raise Infeasible(
            f"{problem.title}: all weights take {needed} bytes at least, and the memory_bytes of "
            f"all devices are {room}.",
            hint="Give the devices more memory, or modes with smaller weights.",
        )


def bound(problem: SchedulingProblem) -> float:
    """A lower bound of the problem's objective. Raises Infeasible as `usable_modes`."""
    match problem.objective:
        case "latency":
            return latency_bound(problem)
        case "throughput":
            longest = max(min(mode.latency_s for mode in modes) for modes in _modes(problem))
            shared_s = least_time_s(problem, _modes(problem), waits=False)
            return max(longest, _work_bound(problem, _modes(problem)), shared_s)
        case "energy":
            return _least_energy(problem, latency_bound(problem))
        case "price":
            return _least_price(problem)


def latency_bound(problem: SchedulingProblem, devices: Collection[str] | None = None) -> float:
    """No schedule (on some of the devices) ends sooner; infinity where these do not suffice."""
    modes = _modes(problem, devices)
    if not all(modes):
        return inf
    quick_s = max(*_earliest_ends(problem, devices), _work_bound(problem, modes))
    return max(quick_s, least_time_s(problem, modes, waits=True))


def _modes(
    problem: SchedulingProblem, devices: Collection[str] | None = None
) -> list[tuple[Mode, ...]]:
    """The modes that each call may have."""
    return [
        tuple(
            call.modes[place]
            for place in places
            if devices is None or call.modes[place].device in devices
        )
        for call, places in zip(problem.calls, usable_modes(problem), strict=True)
    ]


def _earliest_ends(
    problem: SchedulingProblem, devices: Collection[str] | None = None
) -> list[float]:
    """When each call ends at the soonest, as if there were cores for all at a time; each call on
    the device that suits it, transfers counted."""
    found: list[dict[str, float]] = []
    for number, modes in enumerate(_modes(problem, devices)):
        ends: dict[str, float] = {}
        for mode in modes:
            ready = max(
                (
                    _arrival(problem, before, found[before], mode.device)
                    for before, _ in problem.before[number]
                ),
                default=0.0,
            )
            ends[mode.device] = min(ends.get(mode.device, inf), ready + mode.latency_s)
        found.append(ends)
    return [min(ends.values(), default=inf) for ends in found]


def _arrival(problem: SchedulingProblem, number: int, ends: dict[str, float], to: str) -> float:
    """When a call's result is on a device at the soonest."""
    return min(
        (
            end + seconds
            for origin, end in ends.items()
            if (seconds := problem.transfer_s(number, origin, to)) is not None
        ),
        default=inf,
    )


def _work_bound(problem: SchedulingProblem, modes: Sequence[tuple[Mode, ...]]) -> float:
    """The time in which the only device does the least work of all calls: core-seconds, bytes and
    joules over how much of these there is at a time. 0 for several devices, which share it."""
    if len(problem.devices) > 1:
        return 0.0
    return max(
        sum(min(demand(name, device, mode) * mode.latency_s for mode in alike) for alike in modes)
        / most
        for device in problem.devices
        for name, most in capacities(device).items()
        if most > 0
    )


def _least_energy(problem: SchedulingProblem, latency_s: float) -> float:
    idle_w, every = sum(device.idle_w or 0.0 for device in problem.devices), _modes(problem)
    calls_j = (min(mode.energy_j or 0.0 for mode in modes) for modes in every)
    within_s = problem.limits.deadlines_s.get("", inf)
    return max(sum(calls_j) + idle_w * latency_s, least_energy_j(problem, every, within_s))


def _least_price(problem: SchedulingProblem) -> float:
    """The least over all choices of devices of their price until these could have ended."""
    prices = {device.name: device.price_per_hour or 0.0 for device in problem.devices}
    if len(prices) > _MOST_CHOSEN_FROM:
        return latency_bound(problem) * min(prices.values()) / HOUR_S
    chosen = [devices for size in range(len(prices)) for devices in combinations(prices, size + 1)]
    return min(
        latency_bound(problem, devices) * sum(prices[name] for name in devices) / HOUR_S
        for devices in chosen
    )
