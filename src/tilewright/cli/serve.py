"""`tilewright serve`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from tilewright.cli.faults import INTERRUPTED
from tilewright.cli.flags import ArtifactFlags, StoredFlags, TargetFlag, read_sizes
from tilewright.cli.streams import write_message
from tilewright.cli.work import Work, working
from tilewright.core.errors import UsageError
from tilewright.core.events import Stage
from tilewright.core.schedules import is_plan
from tilewright.core.units import parse_duration

if TYPE_CHECKING:
    from socket import socket

    from tilewright.serving.demand import Demand
    from tilewright.serving.server import Server

_DRIVEN, _SERVED = Group("With --load", sort_key=11), Group("Without --load", sort_key=12)
_AUTO = "auto"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServingFlags:
    """How networks are served."""

    instances: Annotated[
        str,
        Parameter(
            help="Worker processes, INSTANCESxCORES, several between commas: 2x1, or 1x2,4x1; "
            "1x2@8:NAME+NAME computes at most 8 requests at a time, those networks before others. "
            "auto chooses by what --mode says."
        ),
    ] = _AUTO
    mode: Annotated[
        Literal["auto", "sequential", "shared", "parallel"],
        Parameter(
            help="With --instances auto: one request after the other on all cores, side by side on "
            "several instances, or the faster of the two, as measured at the start. Of a plan: "
            "sequential on the device that is fastest alone, parallel as it says, or the faster."
        ),
    ] = _AUTO
    deadline: Annotated[
        tuple[str, ...],
        Parameter(
            help="The time within which requests are to be answered, 20ms, or NAME=20ms for those "
            "of one network (repeat the flag); instances are chosen for it, and with --load "
            "requests that would miss it are not computed.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()
    rate: Annotated[
        tuple[str, ...],
        Parameter(
            help="NAME=REQUESTS_PER_SECOND of each network, for which instances are chosen (repeat "
            "the flag); --load sends as many for each as these say [default: equally many].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()
    burst: Annotated[
        int | None,
        Parameter(
            help="So many requests for each network come at a time: instances are chosen that "
            "answer all of them soonest."
        ),
    ] = None
    batches: Annotated[
        str | None,
        Parameter(
            help="Batch sizes of artifacts of several that may be used, separated by commas; 1 has "
            "every request run alone [default: all that pay]."
        ),
    ] = None
    queue: Annotated[int, Parameter(help="How many requests wait at most.")] = 64
    devices: Annotated[
        tuple[str, ...],
        Parameter(
            help="Targets that compute requests for artifacts, from one queue: llvm (this CPU) and "
            "rpc:KEY (repeat the flag; twice for two boards of a key) [default: llvm].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()

    def wished_instances(self) -> str:
        """What `tilewright.serve` takes as `instances`. Raises UsageError for a mode of instances
        that are given."""
        if self.instances != _AUTO and self.mode != _AUTO:
            raise UsageError("--mode chooses instances, and --instances gives them: use one.")
        return self.instances if self.instances != _AUTO else self.mode

    def batch_sizes(self) -> tuple[int, ...] | None:
        """The sizes that may be used, None for all. Raises UsageError for what is no size."""
        return None if self.batches is None else read_sizes("batches", self.batches)

    def deadline_in_s(self) -> float | dict[str, float] | None:
        """Seconds, of all networks or by name. Raises UsageError for both."""
        if len(self.deadline) == 1 and "=" not in self.deadline[0]:
            return _seconds("--deadline", self.deadline[0])
        if not all("=" in text for text in self.deadline):
            raise UsageError("--deadline is one for all networks, or NAME=20ms for each.")
        given = _by_name("--deadline", self.deadline, "20ms")
        return {name: _seconds("--deadline", text) for name, text in given.items()} or None

    def demand(self, server: Server) -> Demand:
        """What is asked of the networks of a server. Raises UsageError as that does."""
        from tilewright.serving.demand import Demand

        return Demand.read(server.networks, self.deadline_in_s(), self.rates(), self.burst)

    def said_of_artifacts(self) -> dict[str, object]:
        """What plans do not take, by the names of its flags."""
        said = {"batches": self.batches, "devices": self.devices}
        return {**said, "rate": self.rate, "burst": self.burst}

    def rates(self) -> dict[str, float] | None:
        """Requests per second by network, None without any. Raises UsageError."""
        found: dict[str, float] = {}
        for name, number in _by_name("--rate", self.rate, "REQUESTS_PER_SECOND").items():
            try:
                found[name] = float(number)
            except ValueError as error:
                said = f"--rate '{name}={number}'"
                raise UsageError(f"{said} is no NAME=REQUESTS_PER_SECOND.") from error
        return found or None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RequestFlags:
    """Where requests come from."""

    load: Annotated[
        str | None,
        Parameter(
            group=_DRIVEN,
            help="Send drawn inputs for so long (10s), compare with one request after the other on "
            "all cores, and end.",
        ),
    ] = None
    clients: Annotated[
        int | None,
        Parameter(
            group=_DRIVEN,
            help="Requests that are under way at a time [default: two for each that is computed].",
        ),
    ] = None
    port: Annotated[
        int | None, Parameter(group=_SERVED, help="The port of HTTP [default: 8000].")
    ] = None
    host: Annotated[
        str | None,
        Parameter(
            group=_SERVED,
            help="The address of HTTP; only programs on this machine reach the usual one "
            "[default: 127.0.0.1].",
        ),
    ] = None

    def load_in_s(self) -> float | None:
        """Seconds of the load, None where there is none. Raises UsageError for a load over HTTP,
        and for clients without a load."""
        if self.load is None and self.clients is not None:
            raise UsageError("--clients are those of --load 10s, which is missing.")
        if self.load is not None and (self.port is not None or self.host is not None):
            raise UsageError("--load sends requests itself, --port and --host take them: use one.")
        if self.clients is not None and self.clients < 1:
            raise UsageError(f"--clients must be at least 1, not {self.clients}.")
        return None if self.load is None else _seconds("--load", self.load)

    def address(self) -> tuple[str, int]:
        """Where HTTP is served."""
        return self.host or "127.0.0.1", 8000 if self.port is None else self.port


def serve(
    artifact: Annotated[
        tuple[str, ...],
        Parameter(
            help="Folders that optimize wrote, or NAME=FOLDER (several of a name for different "
            "--devices); or the folder of one plan.",
            negative="",
        ),
    ],
    /,
    *,
    serving: ServingFlags = ServingFlags(),
    requests: RequestFlags = RequestFlags(),
    artifact_flags: ArtifactFlags = ArtifactFlags(),
    tracker: Annotated[str | None, Parameter(help="HOST:PORT of the tracker of rpc:KEY.")] = None,
    flags: StoredFlags = StoredFlags(),
) -> int | None:
    """Answer requests for compiled networks on this CPU, or on boards too, over HTTP (the open
    inference protocol) or driven by a load of its own.

    Ctrl-C answers what was taken, and ends; a second one ends at once.
    """
    from tilewright.serving import http
    from tilewright.serving.choosing import driven
    from tilewright.serving.networks import named_folders
    from tilewright.serving.serve import plan_server, refuse_for_plan
    from tilewright.serving.serve import serve as opened

    load_s, instances, queue = requests.load_in_s(), serving.wished_instances(), serving.queue
    with ExitStack() as stack:
        place = None if load_s else stack.enter_context(http.listening(*requests.address()))
        work = stack.enter_context(working(flags, TargetFlag(tracker=tracker)))
        events = work.session.events
        if len(artifact) == 1 and is_plan(Path(artifact[0])):
            refuse_for_plan(serving.said_of_artifacts(), "--")
            plan, store = Path(artifact[0]), work.session.records
            server = plan_server(
                plan, store, mode=instances, queue=queue, tracker=tracker, events=events
            )
        else:
            server = opened(
                named_folders(artifact, several=bool(serving.devices)),
                instances=instances,
                queue=queue,
                deadline_s=serving.deadline_in_s(),
                rates=serving.rates(),
                burst=serving.burst,
                batches=serving.batch_sizes(),
                devices=serving.devices,
                tracker=tracker,
                verify=artifact_flags.verify,
                events=events,
            )
        if load_s:
            with server:  # also where its networks are not those of which anything is said
                result = driven(server, load_s, requests.clients, serving.demand(server))
            work.tell("serve", result)
        elif place is not None:
            _over_http(server, place, work)
    return None if load_s else INTERRUPTED


def _over_http(server: Server, place: socket, work: Work) -> None:
    """Answer requests until Ctrl-C, then say what became of them."""
    from tilewright.serving import http

    ready = f"http://{place.getsockname()[0]}:{place.getsockname()[1]}/v2 {server.choice}"
    work.session.events(Stage(name="serve", detail=ready.strip()))
    try:
        http.serve_http(server, place)
    except KeyboardInterrupt:
        write_message("stopped")
    work.tell("serve", server.statistics())


def _by_name(flag: str, texts: Sequence[str], what: str) -> dict[str, str]:
    """What is said of each network. Raises UsageError for no name, and for one said twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, said = text.rpartition("=")
        if not name:
            raise UsageError(f"{flag} {text!r} is no NAME={what}.")
        if name in found:
            raise UsageError(f"{flag} is given twice for {name!r}.")
        found[name] = said
    return found


def _seconds(flag: str, text: str) -> float:
    found = parse_duration(text.strip())
    if not found:
        raise UsageError(f"{flag} {text!r} is no duration.", hint="For example 20ms, 10s, 2m.")
    return found
