"""Where a network's time goes, task by task: the table of its tasks, and the chart of their shares,
both with what lies outside the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tilewright.core.artifacts import ArtifactResult
from tilewright.core.results import TaskReport, TimedNetwork
from tilewright.report import roofline, shown
from tilewright.report.tables import Column, Table, record_of
from tilewright.report.vega import Chart, bars, colour_of

REST = "outside the tasks"
_IN_PLACE_ONLY = "not measured alone"
_FRACTIONS = ("peak_fraction", "roof_fraction")


def alone(record: Mapping[str, Any]) -> str:
    """The time of one call alone, or that it was not measured so."""
    if record["latency_s"] is not None:
        return shown.seconds(record["latency_s"])
    if record["count"] is None:
        return shown.MISSING
    return "not measured" if record["in_place_s"] is None else _IN_PLACE_ONLY


_COLUMNS = (
    Column(field="name", label="task"),
    Column(field="share", label="share", show=shown.percent, number=True),
    Column(field="count", label="count", number=True),
    Column(field="latency_s", label="latency", show_record=alone, number=True),
    Column(field="in_place_s", label="in place", show=shown.seconds, number=True),
    Column(field="gflop_per_s", label="GFLOP/s", show=shown.rate, number=True),
    Column(field="gbyte_per_s", label="GB/s", show=shown.rate, number=True),
    Column(field="roof_fraction", label="of roof", show=shown.percent, number=True),
    Column(field="bound", label="bound by"),
    Column(field="implementation", label="implementation"),
)


def tasks_table(result: TimedNetwork | ArtifactResult) -> Table:
    """The tasks by their share of time, with how much of the measured roof each reaches; at the end
    what lies outside them."""
    return Table(columns=_COLUMNS, records=task_records(result), title="Tasks")


def task_records(
    result: TimedNetwork | ArtifactResult,
) -> tuple[dict[str, Any], ...]:
    """All fields of the tasks, largest share first, with `peak_fraction` and `roof_fraction`.

    `peak_fraction` is the FLOP/s reached over the measured peak, `roof_fraction` over what the
    roofline allows (over the bandwidth, for tasks without FLOPs); None when a peak is unknown. The
    last record has the name, the seconds and the share of what lies outside the tasks, where a
    network was run.
    """
    ordered = sorted(result.tasks, key=lambda task: -(task.share or 0.0))
    peak = result.peak_flop_per_s
    records = [
        {
            **record_of(task),
            "peak_fraction": point.flop_per_s / peak if peak > 0 else None,
            "roof_fraction": point.reached,
        }
        for task in ordered
        for point in [roofline.point(task, peak, result.peak_bytes_per_s)]
    ]
    if result.rest_share > 0:
        nothing = dict.fromkeys([*(item.name for item in fields(TaskReport)), *_FRACTIONS])
        records.append(
            {
                **nothing,
                "name": REST,
                "share": result.rest_share,
                "in_place_s": result.rest_s,
            }
        )
    return tuple(records)


def shares_chart(
    tasks: Sequence[TaskReport], *, rest_s: float = 0.0, rest_share: float = 0.0, limit: int = 15
) -> Chart | None:
    """Horizontal bars, the largest shares first; what is beyond `limit` becomes one bar, and what
    lies outside the tasks another one at the end. Tasks without any time are left out; None where
    that are all."""
    ordered = sorted(
        (task for task in tasks if task.share is not None), key=lambda task: -(task.share or 0.0)
    )
    rows = [_bar(_name(task), [task]) for task in ordered[:limit]]
    more = ordered[limit:]
    if more:
        rows.append({**_bar(f"{len(more)} more tasks", more), "colour": colour_of("")})
    if rest_share > 0:
        rows.append(_row(REST, rest_share, rest_s))
    return bars("Share of the time of each task", rows)


def _name(task: TaskReport) -> str:
    return f"{task.name} ×{task.count}" if task.count > 1 else task.name


def _bar(name: str, tasks: Sequence[TaskReport]) -> dict[str, object]:
    """The bar of tasks together; it says of one whether it was not measured alone."""
    row = _row(
        name,
        sum(task.share or 0.0 for task in tasks),
        sum(task.calls_s or 0.0 for task in tasks),
        tasks[0].bound,
    )
    measured = len(tasks) > 1 or tasks[0].latency_s is not None
    return row if measured else {**row, "told": f"{row['told']}, {_IN_PLACE_ONLY}"}


def _row(name: str, share: float, seconds: float, bound: str = "") -> dict[str, object]:
    return {
        "name": name,
        "share": max(share, 0.0),
        "told": shown.percent(share),
        "time": shown.seconds(seconds),
        "colour": colour_of(bound),
    }
