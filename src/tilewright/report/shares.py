"""Where the time goes, task by task: data, then picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.svg import Drawing

REST = "outside the tasks"
_ROW = 22
_NAME_PIXELS = 300
_NAME_LENGTH = 36
_VALUE_PIXELS, _NOTE_PIXELS = 70, 130
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


def figure(bars: Sequence[ShareBar], *, width: int = 1080) -> str:
    """Horizontal bars as an SVG element; empty text when there are none."""
    if not bars:
        return ""
    largest = max((bar.share for bar in bars), default=0.0) or 1.0
    drawing = Drawing(
        width=width, height=_ROW * len(bars) + 8, label="Share of the time of each task"
    )
    notes = _NOTE_PIXELS if any(bar.note for bar in bars) else 0
    room = width - _NAME_PIXELS - _VALUE_PIXELS - notes
    for index, bar in enumerate(bars):
        y = 4 + _ROW * index
        length = max(bar.share, 0.0) / largest * room
        share = ", ".join(filter(None, (shown.percent(bar.share), bar.note)))
        drawing.text(_NAME_PIXELS - 8, y + 12, _short(bar.name), anchor="end")
        title = f"{bar.name}: {shown.seconds(bar.seconds)}, {share}"
        drawing.bar((_NAME_PIXELS, y), width=length, kind=bar.bound, title=title)
        drawing.text(_NAME_PIXELS + length + 6, y + 12, share)
    return drawing.svg()


def _short(name: str) -> str:
    if len(name) <= _NAME_LENGTH:
        return name
    head = _NAME_LENGTH // 2
    return f"{name[:head]}…{name[-(_NAME_LENGTH - head - 1) :]}"
