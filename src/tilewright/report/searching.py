"""The part of a report that shows how the search went: the best so far against measurements and
seconds, failures as ticks, and a close look at the tasks with most trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.core.results import CurvePoint, OptimizeResult, TaskSearchReport
from tilewright.report import importance, parallel, shown, views
from tilewright.report.tables import Table
from tilewright.report.vega import Chart, Rows, usable

_PANELS, _CLOSE_LOOKS = 12, 6
_MOST_DOTS = 400
_FAR = 8.0
"""Trials this many times slower than the best sit at the top of a task's panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Everything about a search that a page shows.

    `panels` are tasks with a few words and a small chart each; `left_out` tasks have none. A close
    look has what the trials of one task tell about its knobs, with a `note` where there is no
    importance; `no_looks` says why no task is looked at closely.
    """

    network: Mapping[str, Chart]
    panels: Sequence[tuple[str, str, Chart]]
    left_out: int
    close_looks: Sequence[Mapping[str, object]]
    no_looks: str
    table: Table


def watched(result: OptimizeResult) -> Watched | None:
    """None where this run searched nothing."""
    tried = [search for search in result.searches if search.trials]
    if not result.curve and not tried:
        return None
    drawn = [
        (search.task, _words(search), chart)
        for search in busiest(tried, len(tried))
        if (chart := task_chart(search))
    ]
    looks = _close_looks(tried)
    most = max((len(importance.timed_trials(search)) for search in tried), default=0)
    return Watched(
        network=network_charts(result.curve, result.searches),
        panels=drawn[:_PANELS],
        left_out=len(tried) - len(drawn[:_PANELS]),
        close_looks=looks,
        no_looks="" if looks else _too_few(most),
        table=views.searches_table(result.searches),
    )


def _words(search: TaskSearchReport) -> str:
    words = [f"{len(search.trials)} trials"]
    if search.failures:
        words.append(f"{search.failures} failed")
    if search.gain is not None:
        gain = shown.speedup(search.gain, search.gain_low, search.gain_high)
        words.append(f"{gain} the default's speed")
    if search.converged:
        words.append("converged")
    return ", ".join(words)


def _too_few(trials: int) -> str:
    return (
        f"How much each knob matters is not shown: that takes {importance.FEWEST} timed trials of "
        f"one implementation of a task, and there were {trials} at most."
    )


def _no_importance(found: importance.Importance) -> str:
    if found.shares:
        return ""
    if found.trials < importance.FEWEST:
        return (
            f"How much each knob matters is not shown: there are {found.trials} timed trials, and "
            f"it takes {importance.FEWEST} to tell an effect from chance."
        )
    return f"No knob's share could be told from these {found.trials} trials."


def _close_looks(searches: Sequence[TaskSearchReport]) -> list[Mapping[str, object]]:
    looks: list[Mapping[str, object]] = []
    for search in busiest(searches, len(searches)):
        shares, coordinates = importance.info(search), parallel.info(search)
        if shares is None or coordinates is None:
            continue
        looks.append(
            {
                "name": search.task,
                "implementation": shares.implementation,
                "trials": shares.trials,
                "note": _no_importance(shares),
                "importance": importance.chart(shares),
                "coordinates": parallel.chart(coordinates),
            }
        )
        if len(looks) == _CLOSE_LOOKS:
            break
    return looks


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
