"""Progress on stderr: a live table of tasks on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.cli.streams import warn, write_message
from tilewright.core.events import Event, EventSink, Note, Stage, TuningProgress
from tilewright.core.settings import read_settings
from tilewright.report import shown
from tilewright.report.escape import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

PLAIN_INTERVAL_S = 5.0
_OTHER_LINES = 6
"""Lines of the terminal that are not for tasks: phase, network, heading, what is left out."""
_NARROW = 70
"""Columns of a terminal below which there is no bar, and of a task only its best and its gain."""


@contextmanager
def progress_view() -> Generator[EventSink]:
    """What shows events on stderr in the way that fits it."""
    try:
        terminal = sys.stderr.isatty()
    except ValueError:
        terminal = False
    if terminal:
        from rich.console import Console

        console = Console(stderr=True, no_color=read_settings().no_color or None)
        if not console.is_dumb_terminal:
            with LiveProgress(console) as view:
                yield view
            return
    yield PlainProgress()


def describe(progress: TuningProgress) -> str:
    """One line on how the search stands, for the network and for the task of the moment."""
    more = _joined(
        "" if progress.gain is None else f"gain {shown.ratio(progress.gain)}",
        f"{shown.whole(progress.task_failures)} failed" if progress.task_failures else "",
        "converged" if progress.converged else "",
    )
    best = "" if progress.best_s is None else f" best {shown.seconds(progress.best_s)}"
    detail = f" ({more})" if more else ""
    return overall(progress, f"{visible(progress.task)}{best}{detail}")


def overall(progress: TuningProgress, task: str = "") -> str:
    """One line on how the search stands for the network, with what is told of a task."""
    network_s = progress.network_s
    return _joined(
        f"{shown.whole(progress.measurements)} measured",
        f"{shown.whole(progress.failures)} failed" if progress.failures else "",
        "" if network_s is None else f"network {shown.seconds(network_s)}",
        task,
        left_of(progress),
    )


def left_of(progress: TuningProgress) -> str:
    """What is left of the budget, in time or in candidates; nothing where that is not known."""
    if progress.remaining_s is not None:
        return f"{time_left(progress.remaining_s)} left"
    left = progress.remaining
    return "" if left is None else f"{shown.whole(max(0, left))} candidates left"


def _joined(*parts: str) -> str:
    """Those that say something, with commas between."""
    return ", ".join(filter(None, parts))


def time_left(remaining_s: float) -> str:
    """`75` → `1:15`."""
    whole = max(0, round(remaining_s))
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _stage_line(stage: Stage) -> str:
    detail = f": {visible(stage.detail)}" if stage.detail else ""
    return f"{visible(stage.name)}{detail}"


class PlainProgress:
    """Lines for logs: every phase and warning, the search every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s: float | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            warn(event.message)
        elif isinstance(event, Stage):
            write_message(_stage_line(event))
        else:
            now_s = self._clock()
            if self._last_s is None or now_s - self._last_s >= PLAIN_INTERVAL_S:
                self._last_s = now_s
                write_message(describe(event))


class LiveProgress:
    """The phase and how much of the budget is spent, above a row per task, replaced in place.

    Phases that are over and warnings stay above it. It is drawn when an event comes and never in
    between: a spinner's thread would disturb what is being timed. A terminal that was closed
    meanwhile is no error: the work may go on without it.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._console = console
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._phase = _Phase()
        self._tasks: dict[str, TuningProgress] = {}
        self._recent: list[str] = []
        self._latest: TuningProgress | None = None
        self._told_s = 0.0

    def __enter__(self) -> LiveProgress:
        with suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with suppress(OSError):
            self._live.update("", refresh=True)
            self._end_phase()
            self._live.stop()

    def __call__(self, event: Event) -> None:
        with suppress(OSError):
            self._show(event)

    def _show(self, event: Event) -> None:
        from rich.text import Text

        if isinstance(event, Note):
            note = f"warning: {visible_lines(event.message, indent='  ')}"
            self._console.print(Text(note, style="yellow"))
            return
        if isinstance(event, Stage):
            self._live.update("", refresh=True)
            self._end_phase()
            self._tasks.clear()
            self._recent.clear()
            if self._latest is not None and not self._latest.limit_s:
                self._latest = None  # a budget in candidates says nothing about other phases
            self._phase = _Phase(name=_stage_line(event), began_s=self._clock())
        else:
            self._tasks[event.task] = self._latest = event
            self._recent = [*(name for name in self._recent if name != event.task), event.task]
            self._told_s = self._clock()
        self._live.update(self._drawn(), refresh=True)

    def _end_phase(self) -> None:
        """Print the phase that is over with the time it took."""
        from rich.text import Text

        if self._phase.name:
            took = time_left(self._clock() - self._phase.began_s)
            self._console.print(Text(f"{self._phase.name} ({took})", style="dim"))

    @property
    def _spent(self) -> float | None:
        """The part of the budget that is spent by now: a budget in time goes on between events."""
        latest = self._latest
        if latest is None or latest.spent is None:
            return None
        since_s = self._clock() - self._told_s
        return min(1.0, latest.spent + (since_s / latest.limit_s if latest.limit_s else 0.0))

    def _drawn(self) -> Group:
        """The phase, the network's line, then the tasks searched last in the order they came."""
        from rich.console import Group
        from rich.text import Text

        width = self._console.width
        lines: list[Text | Table] = [phase_line(self._phase.name, self._spent, width=width)]
        if self._tasks and self._latest is not None:
            room = max(1, self._console.height - _OTHER_LINES)
            seen = set(self._recent[-room:])
            rows = [progress for name, progress in self._tasks.items() if name in seen]
            line = overall(self._latest)
            lines.append(Text(line, no_wrap=True, overflow="ellipsis", style="bold"))
            lines.append(task_table(rows, self._latest.task, width=width))
            if len(rows) < len(self._tasks):
                lines.append(Text(f"and {len(self._tasks) - len(rows)} more tasks", style="dim"))
        return Group(*lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """What is being done, and since when."""

    name: str = ""
    began_s: float = 0.0


def phase_line(name: str, spent: float | None, *, width: int) -> Text | Table:
    """A phase, with a bar of the budget where one is known and there is room."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    phase = Text(name, no_wrap=True, overflow="ellipsis")
    if spent is None:
        return phase
    told = Text(f"{spent * 100:.0f} % of the budget", no_wrap=True)
    line = Table.grid(padding=(0, 2, 0, 0))
    if width < _NARROW:
        line.add_row(phase, told)
    else:
        line.add_row(phase, ProgressBar(total=1.0, completed=spent, width=width // 4), told)
    return line


def task_table(rows: Sequence[TuningProgress], latest: str, *, width: int = 100) -> Table:
    """A row per task: its best, the gain over its default settings, failures, how it stands."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    kept, others = (2, 22) if width < _NARROW else (5, 56)
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=max(12, width - others))
    for name in ("best", "gain", "measured", "failed")[:kept]:
        table.add_column(name, justify="right", no_wrap=True, min_width=8)
    if kept > 2:
        table.add_column("", no_wrap=True, min_width=9)
    for row in rows:
        state = "converged" if row.converged else ("searching" if row.task == latest else "")
        told = (
            shown.seconds(row.best_s),
            shown.ratio(row.gain),
            shown.whole(row.task_measurements),
            shown.whole(row.task_failures),
            state,
        )
        style = "" if row.task == latest else "dim"
        table.add_row(Text(visible(row.task)), *told[:kept], style=style)
    return table
