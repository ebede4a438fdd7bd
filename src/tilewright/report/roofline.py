"""The roofline (Williams, Waterman, Patterson 2009) of a network's tasks: data, then chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.vega import Chart, Rows, colour_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One task: FLOP per byte moved, FLOP/s reached, FLOP/s the roof allows there; operations are
    those of the algorithm that was chosen.

    `reached` is the part of the task's own roof that was reached: it counts weights from memory and
    activations from the cache, so a point may lie above the line, which counts all from memory.
    Without that, the part of the line, for tasks without FLOPs of the bandwidth; None when the
    peaks are unknown.
    """

    name: str
    intensity: float
    flop_per_s: float
    attainable_flop_per_s: float | None
    reached: float | None
    share: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Measured peaks and the tasks below them; a peak of 0 is unknown."""

    peak_flop_per_s: float
    peak_bytes_per_s: float
    points: tuple[RooflinePoint, ...]

    @property
    def ridge(self) -> float | None:
        """The intensity from which compute is the limit, in FLOP per byte."""
        if self.peak_flop_per_s <= 0 or self.peak_bytes_per_s <= 0:
            return None
        return self.peak_flop_per_s / self.peak_bytes_per_s


def info(
    tasks: Sequence[TaskReport], *, peak_flop_per_s: float, peak_bytes_per_s: float
) -> Roofline:
    """Where every task sits; the order of `tasks` is kept."""
    points = tuple(_point(task, peak_flop_per_s, peak_bytes_per_s) for task in tasks)
    return Roofline(
        peak_flop_per_s=peak_flop_per_s, peak_bytes_per_s=peak_bytes_per_s, points=points
    )


def _point(task: TaskReport, peak_flop_per_s: float, peak_bytes_per_s: float) -> RooflinePoint:
    flop_per_s, bytes_per_s = task.gflop_per_s * 1e9, task.gbyte_per_s * 1e9
    if task.flop and task.algorithm_flop:
        flop_per_s *= task.algorithm_flop / task.flop
    intensity = flop_per_s / bytes_per_s if bytes_per_s > 0 else 0.0
    attainable = reached = None
    if peak_flop_per_s > 0 and peak_bytes_per_s > 0:
        attainable = min(peak_flop_per_s, intensity * peak_bytes_per_s)
        over_bandwidth = bytes_per_s / peak_bytes_per_s
        reached = flop_per_s / attainable if attainable > 0 else over_bandwidth
    if task.roof_s > 0 and task.call_s:
        reached = task.roof_s / task.call_s
        attainable = flop_per_s / reached
    return RooflinePoint(
        name=task.name,
        intensity=intensity,
        flop_per_s=flop_per_s,
        attainable_flop_per_s=attainable,
        reached=reached,
        share=task.share or 0.0,
        bound=task.bound,
    )


def chart(roofline: Roofline) -> Chart | None:
    """Both axes logarithmic, the area of a dot by its share of the time.

    Tasks without FLOPs have no place on it. None when there is nothing to draw.
    """
    points = [
        point
        for point in roofline.points
        if _drawable(point.intensity) and _drawable(point.flop_per_s)
    ]
    if not points:
        return None
    rows = [
        {
            "name": point.name,
            "intensity": point.intensity,
            "speed": point.flop_per_s / 1e9,
            "share": min(max(point.share, 0.0), 1.0),
            "colour": colour_of(point.bound),
            "rate": f"{shown.rate(point.flop_per_s / 1e9)} GFLOP/s",
            "told": shown.percent(point.share),
            "reached": shown.percent(point.reached),
        }
        for point in sorted(points, key=lambda point: -point.share)
    ]
    roof, peaks = _roof(roofline, points)
    label = "Roofline plot of all tasks"
    return Chart(name="roofline", label=label, rows={"tasks": rows, "roof": roof, "peaks": peaks})


def _drawable(value: float) -> bool:
    """Whether an axis may reach that far; nothing that was measured lies beyond."""
    return 1e-9 < value < 1e30


def _roof(roofline: Roofline, points: list[RooflinePoint]) -> tuple[Rows, Rows]:
    """The corners of the roof, somewhat wider than the tasks below it, and the peaks' names."""
    ridge = roofline.ridge
    if ridge is None:
        return [], []
    peak, bandwidth = roofline.peak_flop_per_s / 1e9, roofline.peak_bytes_per_s / 1e9
    low = min(ridge, *(point.intensity for point in points)) / 2
    high = max(ridge, *(point.intensity for point in points)) * 3
    corners = (low, low * bandwidth), (ridge, peak), (high, peak)
    middle = math.sqrt(low * ridge)
    names = (
        (high, peak, f"{shown.rate(peak)} GFLOP/s"),
        (middle, middle * bandwidth, f"{shown.rate(bandwidth)} GB/s"),
    )
    roof = [{"intensity": x, "speed": y} for x, y in corners]
    return roof, [{"intensity": x, "speed": y, "name": name} for x, y, name in names]
