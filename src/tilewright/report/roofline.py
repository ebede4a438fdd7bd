"""The roofline (Williams, Waterman, Patterson 2009) of a network's tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.vega import Chart, Rows, colour_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """Where a task is: FLOP per byte moved, FLOP/s reached; operations are those of the algorithm
    that was chosen.

    `reached` is the part of the task's own roof that was reached: it counts weights from memory and
    activations from the cache, so a point may lie above the line, which counts all from memory.
    Without that, the part of the line, for tasks without FLOPs of the bandwidth; None when the
    peaks are unknown.
    """

    task: TaskReport
    intensity: float
    flop_per_s: float
    reached: float | None


def point(task: TaskReport, peak_flop_per_s: float, peak_bytes_per_s: float) -> RooflinePoint:
    """The place of a task under measured peaks; a peak of 0 is unknown."""
    flop_per_s, bytes_per_s = task.gflop_per_s * 1e9, task.gbyte_per_s * 1e9
    if task.flop and task.algorithm_flop:
        flop_per_s *= task.algorithm_flop / task.flop
    intensity = flop_per_s / bytes_per_s if bytes_per_s > 0 else 0.0
    reached = None
    if task.roof_s > 0 and task.call_s:
        reached = task.roof_s / task.call_s
    elif peak_flop_per_s > 0 and peak_bytes_per_s > 0:
        attainable = min(peak_flop_per_s, intensity * peak_bytes_per_s)
        reached = flop_per_s / attainable if attainable > 0 else bytes_per_s / peak_bytes_per_s
    return RooflinePoint(task=task, intensity=intensity, flop_per_s=flop_per_s, reached=reached)


def chart(
    tasks: Sequence[TaskReport], *, peak_flop_per_s: float, peak_bytes_per_s: float
) -> Chart | None:
    """Both axes logarithmic, the area of a dot by its share of the time.

    Tasks without FLOPs have no place on it. None when there is nothing to draw.
    """
    placed = (point(task, peak_flop_per_s, peak_bytes_per_s) for task in tasks)
    points = [p for p in placed if _drawable(p.intensity) and _drawable(p.flop_per_s)]
    if not points:
        return None
    rows = [
        {
            "name": found.task.name,
            "intensity": found.intensity,
            "speed": found.flop_per_s / 1e9,
            "share": min(max(found.task.share or 0.0, 0.0), 1.0),
            "colour": colour_of(found.task.bound),
            "rate": f"{shown.rate(found.flop_per_s / 1e9)} GFLOP/s",
            "told": shown.percent(found.task.share or 0.0),
            "reached": shown.percent(found.reached),
        }
        for found in sorted(points, key=lambda found: -(found.task.share or 0.0))
    ]
    intensities = [found.intensity for found in points]
    roof, peaks = _roof(peak_flop_per_s / 1e9, peak_bytes_per_s / 1e9, intensities)
    label = "Roofline plot of all tasks"
    return Chart(name="roofline", label=label, rows={"tasks": rows, "roof": roof, "peaks": peaks})


def _drawable(value: float) -> bool:
    """Whether an axis may reach that far; nothing that was measured lies beyond."""
    return 1e-9 < value < 1e30


def _roof(peak: float, bandwidth: float, intensities: Sequence[float]) -> tuple[Rows, Rows]:
    """The corners of the roof, somewhat wider than the tasks below it, and the peaks' names."""
    if peak <= 0 or bandwidth <= 0:
        return [], []
    ridge = peak / bandwidth
    low = min(ridge, *intensities) / 2
    high = max(ridge, *intensities) * 3
    corners = (low, low * bandwidth), (ridge, peak), (high, peak)
    middle = math.sqrt(low * ridge)
    names = (
        (high, peak, f"{shown.rate(peak)} GFLOP/s"),
        (middle, middle * bandwidth, f"{shown.rate(bandwidth)} GB/s"),
    )
    roof = [{"intensity": x, "speed": y} for x, y in corners]
    return roof, [{"intensity": x, "speed": y, "name": name} for x, y, name in names]
