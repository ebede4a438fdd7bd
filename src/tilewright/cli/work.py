"""One verb's work: the session it calls, its progress, the warnings it leaves."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.cli.flags import AnswerFlags, SharedFlags
from tilewright.cli.progress import progress_view
from tilewright.cli.streams import stdout_for_data
from tilewright.core.events import Event, EventSink, Note

if TYPE_CHECKING:
    from tilewright.session import Session


@dataclass(slots=True, kw_only=True)
class Work:
    """What a verb works with; `warnings` grows as the session reports."""

    session: Session
    warnings: list[str] = field(default_factory=list[str])


def open_session(
    flags: SharedFlags, target: str, events: EventSink, tracker: str | None = None
) -> Session:
    """The session these flags ask for."""
    from tilewright import session

    return session.open(
        db=flags.db,
        target=target,
        tracker=tracker,
        threads=flags.threads,
        seed=flags.seed,
        events=events,
    )


@contextmanager
def working(
    flags: AnswerFlags, *, target: str = "llvm", tracker: str | None = None
) -> Generator[Work]:
    """Open the session and show its progress; on leaving, all of it is closed.

    Print data after leaving only: inside, stdout leads to stderr.
    """
    notes: list[str] = []
    with stdout_for_data(), progress_view() as view:

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                notes.append(event.message)
            view(event)

        with open_session(flags.shared(), target, listen, tracker) as session:
            yield Work(session=session, warnings=notes)
