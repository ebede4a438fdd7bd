"""Where the time goes, task by task: data, then picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.svg import Drawing

_ROW = 22
_NAME_PIXELS = 300
_NAME_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBar:
    """The part of the network's time that a task, or several together, take."""

    name: str
    share: float
    seconds: float
    bound: str


def info(tasks: Sequence[TaskReport], *, limit: int = 15) -> tuple[ShareBar, ...]:
    """The largest shares first; what is beyond `limit` becomes one bar."""
    ordered = sorted(
        (task for task in tasks if task.latency_s is not None), key=lambda task: -task.share
    )
    bars = [_bar(task) for task in ordered[:limit]]
    rest = ordered[limit:]
    if rest:
        bars.append(
            ShareBar(
                name=f"{len(rest)} more tasks",
                share=sum(task.share for task in rest),
                seconds=sum((task.latency_s or 0.0) * task.count for task in rest),
                bound="other",
            )
        )
    return tuple(bars)


def _bar(task: TaskReport) -> ShareBar:
    name = f"{task.name} ×{task.count}" if task.count > 1 else task.name
    return ShareBar(
        name=name, share=task.share, seconds=(task.latency_s or 0.0) * task.count, bound=task.bound
    )


def figure(bars: Sequence[ShareBar], *, width: int = 1080) -> str:
    """Horizontal bars as an SVG element; empty text when there are none."""
    if not bars:
        return ""
    largest = max((bar.share for bar in bars), default=0.0) or 1.0
    drawing = Drawing(
        width=width, height=_ROW * len(bars) + 8, label="Share of the time of each task"
    )
    room = width - _NAME_PIXELS - 70
    for index, bar in enumerate(bars):
        y = 4 + _ROW * index
        length = max(bar.share, 0.0) / largest * room
        label = f"{bar.name}: {shown.seconds(bar.seconds)}, {shown.percent(bar.share)}"
        drawing.text(_NAME_PIXELS - 8, y + 12, _short(bar.name), anchor="end")
        drawing.bar((_NAME_PIXELS, y), width=length, kind=bar.bound, title=label)
        drawing.text(_NAME_PIXELS + length + 6, y + 12, shown.percent(bar.share))
    return drawing.svg()


def _short(name: str) -> str:
    if len(name) <= _NAME_LENGTH:
        return name
    head = _NAME_LENGTH // 2
    return f"{name[:head]}…{name[-(_NAME_LENGTH - head - 1) :]}"
