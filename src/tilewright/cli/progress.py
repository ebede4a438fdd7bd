"""Progress on stderr: a live line on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from tilewright.cli.streams import write_message
from tilewright.core.events import Event, Note, Stage, TuningProgress
from tilewright.core.settings import read_settings
from tilewright.report import shown
from tilewright.report.escape import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_INTERVAL_S = 5.0


class ProgressView(Protocol):
    """Shows progress while it is entered."""

    def __enter__(self) -> ProgressView: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __call__(self, event: Event) -> None: ...


def progress_view() -> ProgressView:
    """The view that fits what stderr is."""
    try:
        terminal = sys.stderr.isatty()
    except ValueError:
        terminal = False
    if not terminal:
        return PlainProgress()
    from rich.console import Console

    console = Console(stderr=True, no_color=read_settings().no_color or None)
    return PlainProgress() if console.is_dumb_terminal else LiveProgress(console)


def describe(progress: TuningProgress) -> str:
    """One line on how the search stands."""
    parts = [f"{shown.whole(progress.measurements)} measured"]
    if progress.failures:
        parts.append(f"{shown.whole(progress.failures)} failed")
    if progress.network_s is not None:
        parts.append(f"network {shown.seconds(progress.network_s)}")
    best = f" best {shown.seconds(progress.best_s)}" if progress.best_s is not None else ""
    parts.append(f"{visible(progress.task)}{best}")
    if progress.remaining_s is not None:
        parts.append(f"{time_left(progress.remaining_s)} left")
    return ", ".join(parts)


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

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            write_message(f"warning: {visible_lines(event.message, indent='  ')}")
        elif isinstance(event, Stage):
            write_message(_stage_line(event))
        else:
            now_s = self._clock()
            if self._last_s is None or now_s - self._last_s >= PLAIN_INTERVAL_S:
                self._last_s = now_s
                write_message(describe(event))


class LiveProgress:
    """A line that is replaced in place; phases and warnings stay above it.

    It is drawn when an event comes and never in between: a spinner's thread would disturb what is
    being timed.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.update("", refresh=False)
        self._live.stop()

    def __call__(self, event: Event) -> None:
        from rich.text import Text

        if isinstance(event, Note):
            note = f"warning: {visible_lines(event.message, indent='  ')}"
            self._console.print(Text(note, style="yellow"))
        elif isinstance(event, Stage):
            self._console.print(Text(_stage_line(event), style="dim"))
            self._live.update("", refresh=True)
        else:
            line = Text(describe(event), no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)
