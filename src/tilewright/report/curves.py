"""How a search went: the best so far against measurements and seconds, failures as ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.core.results import CurvePoint, TaskSearchReport
from tilewright.report import shown
from tilewright.report.axes import TimeAxis, count_axis, time_axis, usable
from tilewright.report.svg import Drawing, Scale

_MOST_DOTS = 400
_FAR = 8.0
"""Trials this many times slower than the best sit at the top of a task's panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A falling time along one axis: (x, seconds) after each batch, and where failures were."""

    label: str
    steps: tuple[tuple[float, float], ...]
    failures: tuple[float, ...]


def network_progress(
    curve: Sequence[CurvePoint], searches: Sequence[TaskSearchReport]
) -> tuple[Progress, ...]:
    """The network's time against candidates tried and against seconds; empty without a point."""
    known = [p for p in curve if usable(p.network_latency_s)]
    if not known:
        return ()
    trials = sorted((t for s in searches for t in s.trials), key=lambda t: t.elapsed_s)
    failed = [(float(i), t.elapsed_s) for i, t in enumerate(trials, 1) if not usable(t.latency_s)]
    best = list(accumulate((p.network_latency_s or 0.0 for p in known), min))
    tried = tuple((float(p.measurements), s) for p, s in zip(known, best, strict=True))
    spent = tuple((p.elapsed_s, s) for p, s in zip(known, best, strict=True))
    return (
        Progress(label="candidates tried", steps=tried, failures=tuple(f[0] for f in failed)),
        Progress(label="seconds", steps=spent, failures=tuple(f[1] for f in failed)),
    )


def network_figure(progress: Progress, *, width: int = 530, height: int = 280) -> str:
    """One panel as an SVG element; empty text when there is nothing to draw."""
    y_axis = time_axis((s for _, s in progress.steps), height - 48, 24)
    if y_axis is None:
        return ""
    xs = [*(x for x, _ in progress.steps), *progress.failures]
    x_axis = count_axis(xs, 56, width - 16)
    label = f"Best time of the network so far against {progress.label}"
    drawing = Drawing(width=width, height=height, label=label)
    y_label = f"network, {y_axis.unit}"
    drawing.grid(x_axis, y_axis, x_label=progress.label, y_label=y_label)
    drawing.path(_stairs(progress.steps, x_axis, y_axis), kind="best")
    for x, seconds in progress.steps:
        title = f"{shown.rate(x)} {progress.label}: {shown.seconds(seconds)}"
        drawing.dot(x_axis.at(x), y_axis.at(seconds), radius=2.5, kind="best", title=title)
    _failure_ticks(drawing, progress.failures, x_axis, y_axis.start)
    return drawing.svg()


def busiest(searches: Sequence[TaskSearchReport], limit: int) -> list[TaskSearchReport]:
    """The tasks that got most trials, those with none left out."""
    tried = [search for search in searches if search.trials]
    return sorted(tried, key=lambda search: -len(search.trials))[:limit]


def task_figure(search: TaskSearchReport, *, width: int = 340, height: int = 200) -> str:
    """All trials of one task: dots, the best so far, the default settings' time, failures.

    Empty text when none has a time.
    """
    times = [(t.number, t.latency_s) for t in search.trials if t.latency_s and usable(t.latency_s)]
    if not times:
        return ""
    best_s = min(seconds for _, seconds in times)
    base = [search.first_s] if search.first_s is not None and usable(search.first_s) else []
    seen = [min(s, _FAR * best_s) for s in (*(s for _, s in times), *base)]
    y_axis = time_axis(seen, height - 44, 22)
    if y_axis is None:
        return ""
    numbers = [float(t.number) for t in search.trials]
    x_axis = count_axis([0.0, *numbers], 48, width - 12)
    drawing = Drawing(width=width, height=height, label=f"Trials of {search.task}")
    drawing.grid(x_axis, y_axis, x_label="trial", y_label=y_axis.unit)
    if base:
        y = y_axis.at(base[0])
        title = f"default settings: {shown.seconds(base[0])}"
        drawing.path([[(x_axis.start, y), (x_axis.end, y)]], kind="base", title=title)
    for number, seconds in times[:: 1 + (len(times) - 1) // _MOST_DOTS]:
        title = f"trial {number}: {shown.seconds(seconds)}"
        drawing.dot(x_axis.at(number), y_axis.at(seconds), radius=2.5, kind="trial", title=title)
    so_far = accumulate((seconds for _, seconds in times), min)
    steps = [(float(n), s) for (n, _), s in zip(times, so_far, strict=True)]
    drawing.path(_stairs([*steps, (max(numbers), steps[-1][1])], x_axis, y_axis), kind="best")
    failed = [float(t.number) for t in search.trials if not usable(t.latency_s)]
    _failure_ticks(drawing, failed, x_axis, y_axis.start)
    return drawing.svg()


def _stairs(
    steps: Sequence[tuple[float, float]], x_axis: Scale, y_axis: TimeAxis
) -> list[list[tuple[float, float]]]:
    """The time held until the next better one, as one line to the last step."""
    corners: list[tuple[float, float]] = []
    for (x, seconds), (_, before_s) in zip(steps, [(0.0, 0.0), *steps], strict=False):
        if seconds != before_s:
            corners += [(x_axis.at(x), corners[-1][1])] if corners else []
            corners.append((x_axis.at(x), y_axis.at(seconds)))
    return [[*corners, (x_axis.at(steps[-1][0]), corners[-1][1])]]


def _failure_ticks(drawing: Drawing, places: Sequence[float], x_axis: Scale, bottom: float) -> None:
    """One tick per pixel is enough."""
    pixels = sorted({round(x_axis.at(x)) for x in places})
    ticks = [[(x, bottom), (x, bottom - 8)] for x in pixels]
    drawing.path(ticks, kind="failed", title=f"{len(places)} failed")
