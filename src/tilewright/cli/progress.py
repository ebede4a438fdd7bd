"""Progress on stderr: a live table of tasks on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tilewright.cli.streams import warn, write_message
from tilewright.core.events import Event, EventSink, Note, Stage, TuningProgress
from tilewright.core.settings import read_settings
from tilewright.report import shown
from tilewright.report.escape import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

PLAIN_INTERVAL_S = 5.0
_OTHER_LINES = 5
"""Lines of the terminal that are not for tasks: the network, the heading, what is left out."""


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
    network_s, left_s = progress.network_s, progress.remaining_s
    return _joined(
        f"{shown.whole(progress.measurements)} measured",
        f"{shown.whole(progress.failures)} failed" if progress.failures else "",
        "" if network_s is None else f"network {shown.seconds(network_s)}",
        task,
        "" if left_s is None else f"{time_left(left_s)} left",
    )


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
    """A table that is replaced in place, a row per task; phases and warnings stay above it.

    It is drawn when an event comes and never in between: a spinner's thread would disturb what is
    being timed. A terminal that was closed meanwhile is no error: the work may go on without it.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._tasks: dict[str, TuningProgress] = {}
        self._recent: list[str] = []

    def __enter__(self) -> LiveProgress:
        with suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with suppress(OSError):
            self._live.update("", refresh=False)
            self._live.stop()

    def __call__(self, event: Event) -> None:
        with suppress(OSError):
            self._show(event)

    def _show(self, event: Event) -> None:
        from rich.text import Text

        if isinstance(event, Note):
            note = f"warning: {visible_lines(event.message, indent='  ')}"
            self._console.print(Text(note, style="yellow"))
        elif isinstance(event, Stage):
            self._tasks.clear()
            self._recent.clear()
            self._live.update("", refresh=True)
            self._console.print(Text(_stage_line(event), style="dim"))
        else:
            self._tasks[event.task] = event
            self._recent = [*(name for name in self._recent if name != event.task), event.task]
            self._live.update(self._drawn(event), refresh=True)

    def _drawn(self, latest: TuningProgress) -> Group:
        """The network's line, then the tasks searched last, in the order they first came."""
        from rich.console import Group
        from rich.text import Text

        room = max(1, self._console.height - _OTHER_LINES)
        seen = set(self._recent[-room:])
        rows = [progress for name, progress in self._tasks.items() if name in seen]
        lines: list[Text | Table] = [
            Text(overall(latest), no_wrap=True, overflow="ellipsis", style="bold"),
            task_table(rows, latest.task, width=self._console.width),
        ]
        if len(rows) < len(self._tasks):
            lines.append(Text(f"and {len(self._tasks) - len(rows)} more tasks", style="dim"))
        return Group(*lines)


def task_table(rows: Sequence[TuningProgress], latest: str, *, width: int = 100) -> Table:
    """A row per task: its best, the gain over its default settings, failures, how it stands."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=max(12, width - 56))
    for name in ("best", "gain", "measured", "failed"):
        table.add_column(name, justify="right", no_wrap=True, min_width=8)
    table.add_column("", no_wrap=True, min_width=9)
    for row in rows:
        state = "converged" if row.converged else ("searching" if row.task == latest else "")
        table.add_row(
            Text(visible(row.task)),
            shown.seconds(row.best_s),
            shown.ratio(row.gain),
            shown.whole(row.task_measurements),
            shown.whole(row.task_failures),
            state,
            style="" if row.task == latest else "dim",
        )
    return table
