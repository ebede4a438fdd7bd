"""The table of a network's tasks, and of what lies outside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilewright.core.artifacts import ArtifactResult
from tilewright.core.results import TaskReport, TimedNetwork
from tilewright.report import roofline, shares, shown
from tilewright.report.tables import Column, Table, record_of

_FRACTIONS = ("peak_fraction", "roof_fraction")


def alone(record: Mapping[str, Any]) -> str:
    """The time of one call alone, or that it was not measured so."""
    if record["latency_s"] is not None:
        return shown.seconds(record["latency_s"])
    if record["count"] is None:
        return shown.MISSING
    return "not measured" if record["in_place_s"] is None else "not measured alone"


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
                "name": shares.REST,
                "share": result.rest_share,
                "in_place_s": result.rest_s,
            }
        )
    return tuple(records)
