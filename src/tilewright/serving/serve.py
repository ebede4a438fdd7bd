"""`tilewright.serve`: a server of artifacts."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core import arguments
from tilewright.core.events import EventSink, discard
from tilewright.serving.choosing import MODES, chosen_layout
from tilewright.serving.layouts import parse_layout
from tilewright.serving.networks import open_served
from tilewright.serving.server import Server, ServerOptions


def serve(
    artifacts: Mapping[str, arguments.Text],
    *,
    instances: str = "auto",
    queue: int = 64,
    deadline_s: float | None = None,
    verify: bool = True,
    events: EventSink = discard,
) -> Server:
    """Serve compiled networks on this machine's CPU, until the server is closed.

        with tilewright.serve({"a": "folder-a", "b": "folder-b"}, instances="2x1") as server:
            server.submit("a", x=array, deadline_s=0.05).result()

    `artifacts` are folders that `optimize` wrote, by the names that requests call them by.
    `instances` is `2x1` (two worker processes of one core each; several such between commas),
    `sequential` (one of all cores), `shared` (the best several, by the times of each network alone)
    or `auto`: the faster of the last two as measured now, for requests due within `deadline_s`.
    `queue` is how many requests wait at most. `events` is called with a `Note` for what happens to
    instances.

    Raises UsageError for an artifact of several shapes or for a GPU, ModelError for what is no
    artifact, TargetError for one that does not run here and for more cores than there are.
    """
    networks = open_served(artifacts, verify=verify)
    options = ServerOptions(queue=queue, events=events)
    wish = arguments.text_of(instances, "instances")
    if wish not in MODES:
        return Server(networks, parse_layout(wish), options)
    layout, why = chosen_layout(networks, wish, options, deadline_s)
    return Server(networks, layout, options, why)
