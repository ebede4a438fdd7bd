"""A schedule over time: what runs on each core and link, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.schedules import ScheduleResult
from tilewright.plan.scheduling.measures import memory_over_time
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.report import shown
from tilewright.report.vega import SERIES, Chart

_ROW_PIXELS = 26
_MEBIBYTE = 1 << 20
_MICROSECOND = 1e-6


def chart(result: ScheduleResult) -> Chart:
    """Bars from begin to end, a row for each core and link, a colour for each network."""
    networks = {name: n for n, name in enumerate(dict.fromkeys(s.network for s in result.slots))}
    bars: list[dict[str, object]] = []
    for slot in result.slots:
        colour = SERIES[networks[slot.network] % len(SERIES)]
        told = {"network": slot.network, "kernel": slot.kernel, "colour": f"var(--{colour})"}
        for core in slot.cores:
            row = f"{slot.device} {core}"
            bars.append(_bar(row, slot.call, slot.begin_s, slot.end_s) | told)
    for way in result.transfers:
        row = f"{way.origin} → {way.destination}"
        told = {"network": "", "kernel": "transfer", "colour": "var(--other)"}
        bars.append(_bar(row, way.call, way.begin_s, way.end_s) | told)
    rows = sorted({str(bar["row"]) for bar in bars})
    height = _ROW_PIXELS * len(rows)
    label = "What runs where over time"
    return Chart(name="gantt", label=label, rows={"bars": bars}, height=height)


def _bar(row: str, call: str, begin_s: float, end_s: float) -> dict[str, object]:
    return {
        "row": row,
        "call": call,
        "begin": begin_s / _MICROSECOND,
        "end": end_s / _MICROSECOND,
        "told": f"{shown.seconds(begin_s)} to {shown.seconds(end_s)}",
    }


def memory_charts(problem: SchedulingProblem, schedule: Schedule) -> Sequence[tuple[str, Chart]]:
    """For each device that holds something, how much over time."""
    found: list[tuple[str, Chart]] = []
    for device, profile in memory_over_time(problem, schedule).items():
        steps = [(at, held) for at, held in profile.steps() if at <= schedule.latency_s]
        if any(held for _, held in steps):
            ends = [*(at for at, _ in steps[1:]), schedule.latency_s]
            rows = [
                {
                    "begin": at / _MICROSECOND,
                    "end": end / _MICROSECOND,
                    "size": held / _MEBIBYTE,
                    "told": shown.size(held),
                }
                for (at, held), end in zip(steps, ends, strict=True)
            ]
            label = f"Memory of {device} over time"
            found.append((device, Chart(name="held", label=label, rows={"held": rows})))
    return found
