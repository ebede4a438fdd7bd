"""Schedules as traces that Chrome's `about:tracing` and Perfetto show.

    {"traceEvents": [{"ph": "X", "name": "conv1", "pid": 1, "tid": 0, "ts": 0.0, "dur": 90.0}, …]}

`otherData` has the precisions of the networks, by their names, and of the devices that compute one
of them in another.
A device is a process, each of its cores and each link from it a thread; times are microseconds
(Trace Event Format, Google).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.core.schedules import (
    DeviceUse,
    ScheduledSlot,
    ScheduledTransfer,
    ScheduleResult,
)

_MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a trace shows: what ran where from when to when, on which devices."""

    devices: tuple[DeviceUse, ...]
    slots: tuple[ScheduledSlot, ...]
    transfers: tuple[ScheduledTransfer, ...] = ()


def trace(results: Mapping[str, ScheduleResult | Traced]) -> str:
    """Schedules side by side, such as a plan and what became of it, by what they are called."""
    events: list[dict[str, Any]] = []
    told: dict[str, Any] = {"displayTimeUnit": "ns", "traceEvents": events}
    for title, result in results.items():
        _add(events, title, result)
        if isinstance(result, ScheduleResult) and result.precisions:
            own = result.device_precisions
            told["otherData"] = {"precisions": result.precisions, "device_precisions": own}
    return json.dumps(told, allow_nan=False)


def _add(events: list[dict[str, Any]], title: str, result: ScheduleResult | Traced) -> None:
    """The events of one schedule, its devices behind those that are there."""
    first = 1 + max((event["pid"] for event in events), default=0)
    process = {device.name: first + n for n, device in enumerate(result.devices)}
    cores = {device.name: device.cores for device in result.devices}
    events += [
        _named("process_name", f"{title}: {name}", number, 0) for name, number in process.items()
    ]
    for slot in result.slots:
        told = {"network": slot.network, "kernel": slot.kernel, "time is": slot.source}
        events += [
            _event(slot.call, process[slot.device], core, slot.begin_s, slot.end_s, told)
            for core in slot.cores
        ]
    links = list(dict.fromkeys((way.origin, way.destination) for way in result.transfers))
    thread = {link: cores[link[0]] + n for n, link in enumerate(links)}
    for (origin, destination), number in thread.items():
        events.append(_named("thread_name", f"to {destination}", process[origin], number))
    for way in result.transfers:
        number = thread[way.origin, way.destination]
        events.append(_event(way.call, process[way.origin], number, way.begin_s, way.end_s, {}))


def _named(what: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _event(
    call: str, process: int, thread: int, begin_s: float, end_s: float, told: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": call,
        "pid": process,
        "tid": thread,
        "ts": begin_s / _MICROSECOND,
        "dur": (end_s - begin_s) / _MICROSECOND,
        "args": dict(told),
    }
