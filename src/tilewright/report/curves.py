"""How a search went: the best so far against measurements and seconds, failures as ticks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tilewright.core.results import CurvePoint, TaskSearchReport
from tilewright.report import shown
from tilewright.report.vega import Chart, Rows, usable

_MOST_DOTS = 400
_FAR = 8.0
"""Trials this many times slower than the best sit at the top of a task's panel."""


def network_charts(
    curve: Sequence[CurvePoint], searches: Sequence[TaskSearchReport]
) -> dict[str, Chart]:
    """The best time of the network so far against candidates tried and against seconds, as stairs,
    with ticks for failures; empty without a point."""
    known = [p for p in curve if usable(p.network_latency_s)]
    if not known:
        return {}
    trials = sorted((t for s in searches for t in s.trials), key=lambda t: t.elapsed_s)
    failed = [(i, t.elapsed_s) for i, t in enumerate(trials, 1) if not usable(t.latency_s)]
    best = accumulate((point.network_latency_s or 0.0 for point in known), min)
    steps = [(p.measurements, p.elapsed_s, s) for p, s in zip(known, best, strict=True)]
    return {
        against: Chart(
            name="progress",
            label=f"Best time of the network so far against {against}",
            rows={
                "tried": [],
                "default": [],
                "best": [_step(step[axis], step[2], told_s=step[2]) for step in steps],
                "failed": _ticks([fault[axis] for fault in failed]),
            },
        )
        for axis, against in enumerate(("candidates tried", "seconds"))
    }


def busiest(searches: Sequence[TaskSearchReport], limit: int) -> list[TaskSearchReport]:
    """The tasks that got most trials, those with none left out."""
    tried = [search for search in searches if search.trials]
    return sorted(tried, key=lambda search: -len(search.trials))[:limit]


def task_chart(search: TaskSearchReport) -> Chart | None:
    """All trials of one task: dots, the best so far, the default settings' time, failures.

    None when none has a time.
    """
    times = [(t.number, t.latency_s) for t in search.trials if t.latency_s and usable(t.latency_s)]
    if not times:
        return None
    far_s = _FAR * min(seconds for _, seconds in times)
    default_s = [search.first_s] if search.first_s is not None and usable(search.first_s) else []
    some = times[:: 1 + (len(times) - 1) // _MOST_DOTS]
    so_far = accumulate((seconds for _, seconds in times), min)
    better = [(n, s) for (n, own_s), s in zip(times, so_far, strict=True) if own_s == s]
    last = max(t.number for t in search.trials), better[-1][1]
    return Chart(
        name="progress",
        label=f"Trials of {search.task}",
        rows={
            "tried": [_step(number, min(s, far_s), told_s=s) for number, s in some],
            "best": [_step(number, min(s, far_s), told_s=s) for number, s in (*better, last)],
            "default": [_step(0, min(s, far_s), told_s=s) for s in default_s],
            "failed": _ticks([t.number for t in search.trials if not usable(t.latency_s)]),
        },
    )


def _step(at: float, time_s: float, *, told_s: float) -> dict[str, object]:
    """`told_s` is the time itself, `time_s` where it is drawn."""
    return {"at": at, "time_s": time_s, "told": shown.seconds(told_s)}


def _ticks(places: Sequence[float]) -> Rows:
    return [{"at": at} for at in places[:: max(1, -(-len(places) // _MOST_DOTS))]]
