"""What cannot be planned, told before anything is: which part is wrong, and what it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from math import isfinite

from tilewright.core.errors import ModelError, close_matches, quoted
from tilewright.core.grouping import grouped
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Merge,
    Mode,
    Objective,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)

HINT = "docs/reference/scheduling-problem.md says what each field means."


def require_sound(
    title: str,
    devices: Sequence[ScheduleDevice],
    calls: Sequence[ScheduledCall],
    waits: Sequence[Wait],
    links: Sequence[Link],
) -> None:
    """Raise ModelError for the first fault of a scheduling problem called `title`."""
    for fault in _faults(devices, calls, waits, links):
        raise ModelError(f"{title}: {fault}", hint=HINT)


def require_priced(
    title: str,
    devices: Sequence[ScheduleDevice],
    calls: Sequence[ScheduledCall],
    limits: Limits,
    objective: Objective,
) -> None:
    """Raise ModelError where limits mean nothing, or where nobody knows what the objective or a
    limit counts: joules of every mode and idle device, or prices of devices."""
    networks = {call.network for call in calls} | {""}
    for network, seconds in limits.deadlines_s.items():
        if network not in networks:
            hint = close_matches(network, networks - {""}, quoted)
            raise ModelError(f"{title}: a deadline is of no network {network!r}", hint=hint)
        if fault := _number(seconds, f"the deadline of network {network!r}", positive=True):
            raise ModelError(f"{title}: {fault}", hint=HINT)
    if limits.energy_j is not None and (fault := _number(limits.energy_j, "the limit energy_j")):
        raise ModelError(f"{title}: {fault}", hint=HINT)
    if objective == "energy" or limits.energy_j is not None:
        for unknown in unknown_energies(devices, calls):
            raise ModelError(f"{title}: energy counts, and nobody knows {unknown}", hint=METER)
    if objective == "price":
        for device in devices:
            if device.price_per_hour is None:
                raise ModelError(
                    f"{title}: price counts, and nobody knows that of device {device.name!r}",
                    hint="Give its price_per_hour, or choose another objective.",
                )


def require_mergeable(
    title: str,
    devices: Sequence[ScheduleDevice],
    calls: Sequence[ScheduledCall],
    waits: Sequence[Wait],
    merges: Sequence[Merge],
) -> None:
    """Raise ModelError for the first merge that cannot be carried out."""
    networks = {call.name: call.network for call in calls}
    cores = {device.name: device.cores for device in devices}
    for merge in merges:
        whole = ScheduledCall(name=merge.name, modes=merge.modes)
        for fault in chain(_merge_faults(merge, networks, waits), _call_faults(whole, cores)):
            raise ModelError(f"{title}: {fault}", hint=HINT)


def _merge_faults(
    merge: Merge, networks: Mapping[str, str], waits: Sequence[Wait]
) -> Iterator[str]:
    owner, count = f"merge {merge.name!r}", len({*merge.calls})
    for name in merge.calls:
        if name not in networks:
            yield f"{owner}: no call is called {name!r}. {close_matches(name, networks)}"
    if count < max(2, len(merge.calls)):
        yield f"{owner} needs two different calls or more, each once"
    if merge.name in networks:
        yield f"{owner} would have the name of another call"
    if len({networks[name] for name in merge.calls}) > 1:
        yield f"{owner} is of several networks"
    if wait_for_each_other(merge.calls, waits):
        yield f"{owner}: one of its calls waits for another"


def wait_for_each_other(names: Sequence[str], waits: Sequence[Wait]) -> bool:
    """Whether one of some calls waits for another, or for what waits for it."""
    after = grouped((wait.before, wait.after) for wait in waits)
    reached, waiting = set[str](), [*names]
    while waiting:
        new = {*after.get(waiting.pop(), ())} - reached
        reached |= new
        waiting += new
    return not reached.isdisjoint(names)


METER = (
    "A meter gives it (`tilewright collect --power`), a table, or a data sheet (then the mode has "
    "source: facts); or choose another objective."
)
"""What gives an energy that nobody knows."""


def unknown_energies(
    devices: Sequence[ScheduleDevice], calls: Sequence[ScheduledCall]
) -> Iterator[str]:
    """What lacks an energy."""
    for device in devices:
        if device.idle_w is None:
            yield f"the idle_w of device {device.name!r}"
    for call in calls:
        for mode in call.modes:
            if mode.energy_j is None:
                yield f"the energy_j of call {call.name!r} on {mode.device!r}"


def require_seconds(title: str, name: str, value: float) -> None:
    """Raise ModelError for a time that is none."""
    if fault := _number(value, name):
        raise ModelError(f"{title}: {fault}", hint=HINT)


def _faults(
    devices: Sequence[ScheduleDevice],
    calls: Sequence[ScheduledCall],
    waits: Sequence[Wait],
    links: Sequence[Link],
) -> Iterator[str]:
    if not devices or not calls:
        yield f"there is no {'call' if devices else 'device'}"
    yield from _same("device", [device.name for device in devices])
    yield from _same("call", [call.name for call in calls])
    for device in devices:
        yield from _device_faults(device)
    cores = {device.name: device.cores for device in devices}
    for call in calls:
        yield from _call_faults(call, cores)
    yield from _alike(calls)
    yield from _link_faults(links, cores)
    yield from _wait_faults(calls, waits)
    yield from _unreachable(calls, waits, links)


def _same(kind: str, names: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            yield f"two {kind}s are called {name!r}" if name else f"a {kind} has no name"
        seen.add(name)


def _number(value: float, name: str, *, positive: bool = False) -> str:
    """Why a number cannot be one of its kind, empty where it can."""
    if not isfinite(value) or value < 0 or (positive and value == 0):
        wanted = "a finite number above 0" if positive else "0 or a finite number above"
        return f"{name} is {value}; it must be {wanted}"
    return ""


def _numbers(
    owner: str, least: Mapping[str, float | None], **positive: float | None
) -> Iterator[str]:
    """Faults of numbers by name: those that may be 0, and those that must be above; None is no
    number."""
    for named, above in ((least, False), (positive, True)):
        for name, value in named.items():
            if value is not None and (fault := _number(value, name, positive=above)):
                yield f"{owner}: {fault}"


def _device_faults(device: ScheduleDevice) -> Iterator[str]:
    owner = f"device {device.name!r}"
    yield from _numbers(
        owner,
        {
            "memory_bytes": device.memory_bytes,
            "idle_w": device.idle_w,
            "price_per_hour": device.price_per_hour,
        },
        cores=device.cores,
        bytes_per_s=device.bytes_per_s,
        power_w=device.power_w,
        contention_bytes_per_s=device.contention_bytes_per_s,
    )
    if device.power_w is not None and (device.idle_w or 0.0) > device.power_w:
        yield f"{owner} draws {device.idle_w} W when idle, more than its power_w {device.power_w}"


def _call_faults(call: ScheduledCall, cores: Mapping[str, int]) -> Iterator[str]:
    owner = f"call {call.name!r}"
    if not call.modes:
        yield f"{owner} has no mode: no device can compute it"
    yield from _numbers(owner, {"output_bytes": call.output_bytes, "crossing_s": call.crossing_s})
    for number, mode in enumerate(call.modes):
        if mode.device not in cores:
            known = close_matches(mode.device, cores)
            yield f"{owner}: no device is called {mode.device!r}. {known}"
        elif not 1 <= mode.cores <= cores[mode.device]:
            yield (
                f"{owner} has a mode on {mode.cores} cores of {mode.device!r}, which has "
                f"{cores[mode.device]}"
            )
        if not _has_only_numbers(mode):
            yield from _mode_faults(f"mode {number} of {owner}", mode)


def _has_only_numbers(mode: Mode) -> bool:
    """Whether a mode has no fault; quickly, as planners make a problem of each section of a
    network."""
    numbers = (
        mode.latency_s,
        mode.low_s,
        mode.high_s,
        mode.energy_j or 0.0,
        mode.weight_bytes,
        mode.workspace_bytes,
        mode.moved_bytes,
    )
    return min(numbers) >= 0 and isfinite(sum(numbers)) and mode.low_s <= mode.high_s


def _mode_faults(owner: str, mode: Mode) -> Iterator[str]:
    yield from _numbers(
        owner,
        {
            "latency_s": mode.latency_s,
            "low_s": mode.low_s,
            "high_s": mode.high_s,
            "energy_j": mode.energy_j,
            "weight_bytes": mode.weight_bytes,
            "workspace_bytes": mode.workspace_bytes,
            "moved_bytes": mode.moved_bytes,
        },
    )
    if mode.low_s > mode.high_s:
        yield f"{owner}: low_s {mode.low_s} is above high_s {mode.high_s}"


def _alike(calls: Sequence[ScheduledCall]) -> Iterator[str]:
    first: dict[str, ScheduledCall] = {}
    for call in calls:
        other = first.setdefault(call.task, call)
        if call.task and other.modes != call.modes:
            yield (
                f"calls {other.name!r} and {call.name!r} are of the task {call.task!r} and have "
                "other modes"
            )


def _link_faults(links: Sequence[Link], devices: Mapping[str, int]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for link in links:
        owner = f"link {link.origin!r} → {link.destination!r}"
        for name in (link.origin, link.destination):
            if name not in devices:
                yield f"{owner}: no device is called {name!r}. {close_matches(name, devices)}"
        if link.origin == link.destination:
            yield f"{owner} goes nowhere"
        if (link.origin, link.destination) in seen:
            yield f"{owner} is there twice"
        seen.add((link.origin, link.destination))
        yield from _numbers(owner, {"latency_s": link.latency_s}, bytes_per_s=link.bytes_per_s)


def _wait_faults(calls: Sequence[ScheduledCall], waits: Sequence[Wait]) -> Iterator[str]:
    place = {call.name: number for number, call in enumerate(calls)}
    before: dict[str, set[str]] = {name: set() for name in place}
    for wait in waits:
        owner = f"wait {wait.before!r} → {wait.after!r}"
        for name in (wait.before, wait.after):
            if name not in place:
                yield f"{owner}: no call is called {name!r}. {close_matches(name, place)}"
        if wait.before in before[wait.after]:
            yield f"{owner} is there twice"
        before[wait.after].add(wait.before)
        yield from _numbers(owner, {"bytes": wait.bytes})
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        yield f"calls wait for each other in a circle: {' → '.join(map(repr, circle))}"
    for wait in waits:
        if place[wait.before] > place[wait.after]:
            yield (
                f"call {wait.after!r} stands before {wait.before!r}, which it waits for; write the "
                "calls in an order in which they may run"
            )
    yield from _lone(calls, {name for wait in waits for name in (wait.before, wait.after)})


def _lone(calls: Sequence[ScheduledCall], joined: set[str]) -> Iterator[str]:
    """Calls that hang together with nothing: something of the network was left out."""
    networks = Counter(call.network for call in calls)
    for call in calls:
        others = networks[call.network] - 1
        if call.name not in joined and others and not call.answer:
            yield (
                f"call {call.name!r} waits for nothing, nothing waits for it, and it gives no "
                f"answer, though its network has {others} more calls: a wait is missing, or it is "
                "an answer"
            )


def _unreachable(
    calls: Sequence[ScheduledCall], waits: Sequence[Wait], links: Sequence[Link]
) -> Iterator[str]:
    devices = {call.name: {mode.device for mode in call.modes} for call in calls}
    ways = {(link.origin, link.destination) for link in links}
    for wait in waits:
        origins, ends = devices[wait.before], devices[wait.after]
        if not origins & ends and not any((a, b) in ways for a in origins for b in ends):
            yield (
                f"call {wait.before!r} runs on {_listed(origins)} and {wait.after!r}, which reads "
                f"its result, on {_listed(ends)}, and no link goes there"
            )


def _listed(names: set[str]) -> str:
    return " or ".join(map(repr, sorted(names)))
