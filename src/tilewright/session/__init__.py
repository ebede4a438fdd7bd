"""The way in for Python and for the command line."""

from __future__ import annotations

from tilewright.core.arguments import Text
from tilewright.core.events import EventSink, discard
from tilewright.session.facade import Session

__all__ = ["Session", "open"]


def open(  # noqa: A001 - reads well as `tilewright.open()`
    *,
    db: Text | None = None,
    target: str = "llvm",
    tracker: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    events: EventSink = discard,
) -> Session:
    """A session on a device and a database.

    `db` defaults to the user's data folder, `target` to this CPU, `threads` to the physical cores
    allotted to the process. `tracker` is the HOST:PORT of the TVM RPC tracker that a target of the
    form `rpc:KEY` needs. `events` receives progress. Raises UsageError for other kinds of values.
    """
    return Session(db=db, target=target, tracker=tracker, threads=threads, seed=seed, events=events)
