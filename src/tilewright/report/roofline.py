"""The roofline (Williams, Waterman, Patterson 2009) of a network's tasks: data, then picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.svg import Axis, Drawing

# Tasks further below the largest sit at the edge of the plot.
_SMALLEST_PART = 1e-7


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


def figure(roofline: Roofline, *, width: int = 1080, height: int = 440) -> str:
    """The roofline as an SVG element, both axes logarithmic, area of a dot by share of time.

    Tasks without FLOPs have no place on it. Empty text when there is nothing to draw.
    """
    points = [
        point
        for point in roofline.points
        if _drawable(point.intensity) and _drawable(point.flop_per_s)
    ]
    if not points:
        return ""
    x_axis, y_axis = _axes(roofline, points, width, height)
    drawing = Drawing(width=width, height=height, label="Roofline plot of all tasks")
    drawing.grid(x_axis, y_axis, x_label="FLOP per byte", y_label="GFLOP/s")
    _draw_roof(drawing, roofline, x_axis, y_axis)
    for point in sorted(points, key=lambda point: -point.share):
        drawing.dot(
            x_axis.at(point.intensity),
            y_axis.at(point.flop_per_s / 1e9),
            radius=3 + 14 * math.sqrt(min(max(point.share, 0.0), 1.0)),
            kind=point.bound,
            title=f"{point.name}: {shown.rate(point.flop_per_s / 1e9)} GFLOP/s at "
            f"{shown.rate(point.intensity)} FLOP/byte, {shown.percent(point.share)} of the time, "
            f"{shown.percent(point.reached)} of the roof",
        )
    return drawing.svg()


def _drawable(value: float) -> bool:
    """Whether an axis may reach that far; nothing that was measured lies beyond."""
    return 1e-9 < value < 1e30


def _axes(
    roofline: Roofline, points: list[RooflinePoint], width: int, height: int
) -> tuple[Axis, Axis]:
    intensities = [point.intensity for point in points]
    speeds = [point.flop_per_s / 1e9 for point in points]
    if roofline.ridge is not None:
        intensities.append(roofline.ridge)
        speeds.append(roofline.peak_flop_per_s / 1e9)
    x_low, x_high = _range(intensities)
    y_low, y_high = _range(speeds)
    return (
        Axis(low=x_low, high=x_high, start=64, end=width - 20),
        Axis(low=y_low, high=y_high, start=height - 48, end=18),
    )


def _range(values: list[float]) -> tuple[float, float]:
    high = max(values) * 2
    return max(min(values) / 2, high * _SMALLEST_PART), high


def _draw_roof(drawing: Drawing, roofline: Roofline, x_axis: Axis, y_axis: Axis) -> None:
    ridge = roofline.ridge
    if ridge is None:
        return
    peak, bandwidth = roofline.peak_flop_per_s / 1e9, roofline.peak_bytes_per_s / 1e9
    start = max(x_axis.low, y_axis.low / bandwidth)
    drawing.line(
        [
            (x_axis.at(start), y_axis.at(start * bandwidth)),
            (x_axis.at(ridge), y_axis.at(peak)),
            (x_axis.at(x_axis.high), y_axis.at(peak)),
        ],
        kind="roof",
    )
    drawing.text(x_axis.end, y_axis.at(peak) - 7, f"{shown.rate(peak)} GFLOP/s", anchor="end")
    middle = math.sqrt(start * ridge)
    x, y = x_axis.at(middle) - 8, y_axis.at(middle * bandwidth) - 8
    drawing.text(x, y, f"{shown.rate(bandwidth)} GB/s", anchor="end")
