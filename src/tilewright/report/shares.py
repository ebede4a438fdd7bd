"""Where the time goes, task by task: data, then chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.vega import BAR_PIXELS, Chart, colour_of

REST = "outside the tasks"
_IN_PLACE_ONLY = "not measured alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBar:
    """The part of the network's time that a task, or several together, take. `note` says where a
    time comes from, unless the task was measured alone, too."""

    name: str
    share: float
    seconds: float
    bound: str
    note: str = ""


def info(
    tasks: Sequence[TaskReport], *, rest_s: float = 0.0, rest_share: float = 0.0, limit: int = 15
) -> tuple[ShareBar, ...]:
    """The largest shares first; what is beyond `limit` becomes one bar, and what lies outside the
    tasks another one at the end. Tasks without any time are left out."""
    ordered = sorted(
        (task for task in tasks if task.share is not None), key=lambda task: -(task.share or 0.0)
    )
    bars = [_bar(task) for task in ordered[:limit]]
    more = ordered[limit:]
    if more:
        bars.append(
            ShareBar(
                name=f"{len(more)} more tasks",
                share=sum(task.share or 0.0 for task in more),
                seconds=sum(task.calls_s or 0.0 for task in more),
                bound="other",
            )
        )
    if rest_share > 0:
        bars.append(ShareBar(name=REST, share=rest_share, seconds=rest_s, bound="other"))
    return tuple(bars)


def _bar(task: TaskReport) -> ShareBar:
    return ShareBar(
        name=f"{task.name} ×{task.count}" if task.count > 1 else task.name,
        share=task.share or 0.0,
        seconds=task.calls_s or 0.0,
        bound=task.bound,
        note=_IN_PLACE_ONLY if task.latency_s is None else "",
    )


def chart(bars: Sequence[ShareBar]) -> Chart | None:
    """Horizontal bars; None when there are none."""
    rows = [
        {
            "name": bar.name,
            "share": max(bar.share, 0.0),
            "told": ", ".join(filter(None, (shown.percent(bar.share), bar.note))),
            "time": shown.seconds(bar.seconds),
            "colour": colour_of(bar.bound),
        }
        for bar in bars
    ]
    label = "Share of the time of each task"
    height = BAR_PIXELS * len(rows)
    return Chart(name="bars", label=label, rows={"bars": rows}, height=height) if rows else None
