"""The part of a report that shows how the search went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.results import OptimizeResult, TaskSearchReport
from tilewright.report import curves, importance, parallel, shown, views
from tilewright.report.tables import Table
from tilewright.report.vega import Chart

_PANELS, _CLOSE_LOOKS = 12, 6


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
        for search in curves.busiest(tried, len(tried))
        if (chart := curves.task_chart(search))
    ]
    looks = _close_looks(tried)
    most = max((len(importance.timed_trials(search)) for search in tried), default=0)
    return Watched(
        network=curves.network_charts(result.curve, result.searches),
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
    for search in curves.busiest(searches, len(searches)):
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
