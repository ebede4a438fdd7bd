"""The facade, for Python and for the command line: one object, one method per verb.

The work is in the rooms below."""

from __future__ import annotations

from tilewright.core.arguments import Text
from tilewright.core.events import EventSink, discard
from tilewright.report import displays
from tilewright.session.forecasts import ForecastVerbs
from tilewright.session.networks import NetworkVerbs
from tilewright.session.records import RecordVerbs
from tilewright.session.studies import StudyVerbs

__all__ = ["Session", "open"]

displays.install()


class Session(NetworkVerbs, ForecastVerbs, StudyVerbs, RecordVerbs):
    """Work on one device with one database. Use it as a context manager or call `close`.

    `meter` is the name of the meter by which `collect` measures energy, too; None for none.
    A model is a text as on the command line, a path, an `onnx.ModelProto`, a `torch.nn.Module`, or
    a pair of one and its example inputs. None stands for the default of any argument.
    """


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
