"""One verb's work: the session it calls, its progress, the warnings it leaves, and its answer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilewright.cli import output, progress, streams
from tilewright.cli.flags import AnswerFlags, TargetFlag
from tilewright.core.events import Event, EventSink, Note
from tilewright.core.output_files import check_place
from tilewright.report.displays import page

if TYPE_CHECKING:
    from tilewright.session import Session


@dataclass(slots=True, kw_only=True)
class Work:
    """What a verb works with; `warnings` grows as the session reports.

    `answer` is what the verb found, to be printed when its work is over.
    """

    session: Session
    warnings: list[str] = field(default_factory=list[str])
    answer: output.Answer | None = None

    def tell(
        self,
        command: str,
        result: object,
        *,
        data: Any = None,
        remarks: Sequence[str] = (),
        warnings: Sequence[str] = (),
        saved: bool = True,
    ) -> None:
        """Answer with a result, in the tables with which it shows itself everywhere.

        `data` is what json holds where that is not the result itself; `remarks` and `warnings` are
        added to the page's own. `saved` as in `Answer`.
        """
        shown = page(result)
        if shown is None:
            raise TypeError(f"{type(result).__name__} has no page")
        self.answer = output.Answer(
            command=command,
            data=result if data is None else data,
            rows=shown.rows,
            tables=shown.tables,
            remarks=(*shown.notes, *remarks),
            warnings=(*shown.warnings, *warnings),
            saved=saved,
        )


def open_session(flags: AnswerFlags, target: TargetFlag, events: EventSink) -> Session:
    """The session these flags ask for."""
    from tilewright import session

    return session.open(
        target=target.target, tracker=target.tracker, events=events, **flags.opening
    )


@contextmanager
def working(flags: AnswerFlags, target: TargetFlag = TargetFlag()) -> Generator[Work]:
    """Open the session and show its progress; on leaving, all of it is closed, and the answer is
    printed: inside, stdout leads to stderr.

    Warnings of the answer that were not shown while it was made are shown then. Raises OutputError
    before any work where the folder of `--out` could not be written.
    """
    if flags.out is not None:
        check_place(flags.out / "answer.json")
    notes: list[str] = []
    with streams.stdout_for_data(), progress.progress_view() as view:

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                notes.append(event.message)
            view(event)

        with open_session(flags, target, listen) as session:
            work = Work(session=session, warnings=notes)
            yield work
    if work.answer is not None:
        for warning in dict.fromkeys(work.answer.warnings):
            if warning not in notes:
                streams.warn(warning)
                notes.append(warning)
        output.emit(replace(work.answer, warnings=notes), flags)
