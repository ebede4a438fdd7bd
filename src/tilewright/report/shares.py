"""Where the time goes, task by task."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.vega import BAR_PIXELS, Chart, colour_of

REST = "outside the tasks"
_IN_PLACE_ONLY = "not measured alone"


def chart(
    tasks: Sequence[TaskReport], *, rest_s: float = 0.0, rest_share: float = 0.0, limit: int = 15
) -> Chart | None:
    """Horizontal bars, the largest shares first; what is beyond `limit` becomes one bar, and what
    lies outside the tasks another one at the end. Tasks without any time are left out; None where
    that are all."""
    ordered = sorted(
        (task for task in tasks if task.share is not None), key=lambda task: -(task.share or 0.0)
    )
    bars = [_bar(_name(task), [task]) for task in ordered[:limit]]
    more = ordered[limit:]
    if more:
        bars.append({**_bar(f"{len(more)} more tasks", more), "colour": colour_of("")})
    if rest_share > 0:
        bars.append(_row(REST, rest_share, rest_s))
    label = "Share of the time of each task"
    height = BAR_PIXELS * len(bars)
    return Chart(name="bars", label=label, rows={"bars": bars}, height=height) if bars else None


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
    alone = len(tasks) > 1 or tasks[0].latency_s is not None
    return row if alone else {**row, "told": f"{row['told']}, {_IN_PLACE_ONLY}"}


def _row(name: str, share: float, seconds: float, bound: str = "") -> dict[str, object]:
    return {
        "name": name,
        "share": max(share, 0.0),
        "told": shown.percent(share),
        "time": shown.seconds(seconds),
        "colour": colour_of(bound),
    }
