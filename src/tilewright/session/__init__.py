"""The facade for Python and for the command line: one object with a method for each verb.

Methods take arguments apart and call one function of a lower room, which does the work."""

from __future__ import annotations

from tilewright.core.arguments import Text
from tilewright.core.events import EventSink, discard
from tilewright.report import displays
from tilewright.session.forecasts import ForecastVerbs
from tilewright.session.networks import NetworkVerbs
from tilewright.session.planning import PlanVerbs
from tilewright.session.records import RecordVerbs
from tilewright.session.studies import StudyVerbs

__all__ = ["Session", "open"]

displays.install()


class Session(NetworkVerbs, ForecastVerbs, PlanVerbs, StudyVerbs, RecordVerbs):
    """Work on one device with one database, with a method for each verb of the command line.

    Use it as a context manager, or call `close` at the end. A `model` is a text as on the command
    line (`"zoo:resnet50"`, `"op:relu[shape=1x64]"`), a path, an `onnx.ModelProto`, a
    `torch.nn.Module`, or a pair of a module and its example inputs. None stands for the default of
    any argument. Set `meter` to the name of a meter, `"auto"` say, and `collect` measures energy,
    too. If `verify` is False, files of artifacts are not compared with their hashes.

    Every method raises `UsageError` for an argument of another kind, `ModelError` for a model that
    is missing, broken or not supported, `TargetError` for a device that cannot be used, and
    `StoreError` for a database that cannot be used.
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
    """Open a session on a device and a database; neither is touched before it is needed.

    `db` is a path, or the `SCHEME:REST` of another store; by default the database lies in the
    user's data folder. `target` is `"llvm"` for this CPU, a TVM target string, `"simulated"` or
    `"rpc:KEY"`; the last needs `tracker`, the HOST:PORT of TVM's RPC tracker. `threads` defaults to
    the physical cores allotted to the process. `seed` decides everything random: weights, inputs,
    the search. `events` is called with each `Stage`, `TuningProgress` and `Note` of
    `tilewright.core.events`. Raises `UsageError` for arguments of other kinds.
    """
    return Session(db=db, target=target, tracker=tracker, threads=threads, seed=seed, events=events)
