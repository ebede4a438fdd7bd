"""`tilewright.serve`: a server of artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, get_args

from tilewright.core import arguments
from tilewright.core.errors import UsageError, close_matches
from tilewright.core.events import EventSink, discard
from tilewright.core.schedules import RunMode
from tilewright.core.settings import read_settings
from tilewright.deploy.planned_network import is_for_one_process
from tilewright.plan.scheduling.plan_file import read_plan
from tilewright.serving.batch_folders import not_together, told_or_raised
from tilewright.serving.choosing import MODES, Choice, chosen
from tilewright.serving.crew import Instances
from tilewright.serving.demand import Demand
from tilewright.serving.devices import OnDevices, open_on
from tilewright.serving.independence import dependence
from tilewright.serving.layouts import Kind, parse_kinds
from tilewright.serving.networks import open_served
from tilewright.serving.plan_instance import plan_instance
from tilewright.serving.plan_serving import SUPERVISION, PlanServer, PlanTerms
from tilewright.serving.served import ServedNetwork
from tilewright.serving.server import Server, ServerOptions
from tilewright.store import open_for_reading
from tilewright.store.base import Store


class Watched(TypedDict, total=False):
    """Which devices compute, by their names, and the tracker that knows those elsewhere; how many
    requests wait at most, 64 by default; who hears of what happens to instances, as a `Note`;
    and for what instances are chosen: requests per second of each network, or so many for each at a
    time."""

    devices: Iterable[str] | str
    tracker: str | None
    queue: int
    events: EventSink
    rates: Mapping[str, float] | None
    burst: int | None


def serve(
    artifacts: Mapping[str, arguments.Text | Sequence[arguments.Text]] | arguments.Text,
    *,
    instances: str = "auto",
    batches: Iterable[int] | int | None = None,
    deadline_s: float | Mapping[str, float] | None = None,
    verify: bool = True,
    **watched: Unpack[Watched],
) -> Server:
    """Serve compiled networks on this machine's CPU, until the server is closed.

        with tilewright.serve({"a": "folder-a", "b": "folder-b"}, instances="2x1") as server:
            server.submit("a", x=array, deadline_s=0.05).result()

    `artifacts` are folders that `optimize` wrote, by the names that requests call them by. Where
    one has several batch sizes, a request is for the smallest, and those that wait are computed
    together in the others where that is faster and in time; `batches` names those that may be used,
    1 alone for none. Where results depend on who runs beside, as drawn requests show, each runs
    alone and `events` are told. `instances` is `2x1` (two worker processes of one core each;
    several such between commas; `1x2@8:a+b` computes 8 requests at a time at most, and those for
    `a` and `b` before others), `sequential` (one of all cores, without batches), `shared` (the
    best several, or with batches, by the times of each network alone) or `auto`: the faster of the
    last two as measured now, for requests due within `deadline_s`, one for all networks or one for
    each. Instances are chosen for `rates`, requests per second of each network, all alike by
    default, or for a `burst`, so many requests for each network that come at a time. `queue` is how
    many requests wait at most, 64 by default. `events` is called with a `Note` for what happens to
    instances.

    With `devices`, such as `["llvm", "rpc:pi"]`, each takes requests from the one queue: this
    machine (`llvm`) with its `instances`, and devices that the `tracker` at HOST:PORT knows, one by
    one; a key that stands twice is two of its devices. A name may have several folders, of the same
    network compiled for different devices; each takes the first one that was made for it.

    In place of artifacts it may be what `plan` wrote, without what instances are chosen by:
    computed in parts, or one network on this CPU for latency or price in one process, where the
    plan says (`instances` "parallel"), on the fastest device ("sequential"), or as is faster.

    Raises UsageError for an artifact of several shapes that differ in more than the batch, or for a
    GPU, for `batches` that none has or where results depend on who runs beside, for `instances`
    where this machine is none of the devices, and for an unknown argument; ModelError for what is
    no artifact; TargetError for one that does not run here, or on one of the devices, for a device
    that does not answer, and for more cores than there are.
    """
    options, devices = _options(watched), arguments.texts_of(watched.get("devices"), "devices")
    demanded = watched.get("rates"), watched.get("burst")
    if not isinstance(artifacts, Mapping):
        said = {"batches": batches, "devices": devices}
        refuse_for_plan({**said, **dict(zip(("rates", "burst"), demanded, strict=True))})
        return _of_plan(artifacts, instances, options, watched.get("tracker"))
    wish = arguments.text_of(instances, "instances")
    given = None if wish in MODES else parse_kinds(wish)
    on = _opened(artifacts, batches, watched, verify=verify, events=options.events)
    names, elsewhere = [each.name for each in on.networks], bool(devices) and not on.here
    demand = Demand.read(names, deadline_s, *demanded)
    _require_choice(demand, is_made=not elsewhere and wish in ("auto", "shared"))
    if elsewhere:
        return _elsewhere(on, wish, options)
    _require_networks(given or (), names)
    return _here(on, given or wish, options, demand, asked=batches is not None)


def _of_plan(
    plan: arguments.Text, mode: str, options: ServerOptions, tracker: str | None
) -> Server:
    place, queue, events = arguments.path_of(plan, "artifacts"), options.queue, options.events
    with open_for_reading(read_settings().database) as store:
        return plan_server(place, store, mode=mode, queue=queue, tracker=tracker, events=events)


def _here(
    on: OnDevices,
    wish: str | tuple[Kind, ...],
    options: ServerOptions,
    demand: Demand,
    *,
    asked: bool,
) -> Server:
    """A server with instances of this machine, of these kinds or as they are chosen."""
    networks = on.networks
    if wish != "sequential":
        networks = independent(networks, options, asked=asked)
    if isinstance(wish, str):
        choice = chosen(networks, wish, options, demand)
    else:
        choice = Choice(tuple(networks), wish, "")
    crew = Instances(choice.kinds, on.elsewhere, on.here)
    server = Server(choice.networks, crew, options, choice.why)
    server.considered = choice.options
    return server


def _require_choice(demand: Demand, *, is_made: bool) -> None:
    """Raise UsageError for a burst where no instances are chosen for it."""
    if demand.burst and not is_made:
        raise UsageError(
            "A burst is what instances of this machine are chosen for, and none are chosen.",
            hint="Leave it out, or have them chosen: instances auto or shared, --mode.",
        )


def _require_networks(kinds: Sequence[Kind], names: Sequence[str]) -> None:
    """Raise UsageError for instances for a network that is not served."""
    for name in {name for kind in kinds for name in kind.networks}:
        if name not in names:
            raise UsageError(
                f"instances are for {name!r}, which is not served", hint=close_matches(name, names)
            )


def _opened(
    artifacts: Mapping[str, object],
    batches: Iterable[int] | int | None,
    watched: Watched,
    *,
    verify: bool,
    events: EventSink,
) -> OnDevices:
    """The networks on the devices that are named, or on this machine. Raises as `serve` does."""
    devices = arguments.texts_of(watched.get("devices"), "devices")
    tracker = watched.get("tracker")
    if devices:
        return open_on(artifacts, devices, tracker, batches, verify=verify, events=events)
    if tracker is not None:
        raise UsageError(
            "a tracker is for devices elsewhere, and none is named",
            hint="Name them: devices=['rpc:KEY'], --devices rpc:KEY.",
        )
    networks = open_served(artifacts, batches, verify=verify, events=events)
    return OnDevices(networks=networks, here="")


def _elsewhere(on: OnDevices, wish: str, options: ServerOptions) -> Server:
    """A server that computes nothing on this machine."""
    if wish != "auto":
        raise UsageError(
            f"{wish!r} is for instances of this machine, which is none of the devices",
            hint="Name it, too (llvm), or leave out what is said of instances.",
        )
    return Server(on.networks, Instances((), on.elsewhere), options)


def refuse_for_plan(said: Mapping[str, object], dashes: str = "") -> None:
    """Raise UsageError where what can be said of artifacts is said of a plan."""
    for name, value in said.items():
        if value is not None and value != ():
            raise UsageError(
                f"{dashes}{name} are for artifacts, not for a plan.",
                hint=f"Leave {dashes}{name} out: a plan computes each request by itself, on the "
                "devices that it names.",
            )


def independent(
    networks: Sequence[ServedNetwork], options: ServerOptions, *, asked: bool
) -> tuple[ServedNetwork, ...]:
    """The same networks, those without batches whose requests have something of each other in their
    results: `options.events` are told, or, where batches were `asked` for, UsageError is raised."""
    found: list[ServedNetwork] = []
    for network in networks:
        why = dependence(network, options.worker) if network.batches.larger else ""
        if why:
            error = not_together(network.name, why)
            batches = told_or_raised(error, options.events, asked=asked)
            network = replace(network, batches=batches)
        found.append(network)
    return tuple(found)


def _options(watched: Watched) -> ServerOptions:
    for name in watched.keys() - Watched.__annotations__.keys():
        raise UsageError(
            f"serve has no argument {name!r}", hint=close_matches(name, Watched.__annotations__)
        )
    said = ServerOptions()
    return replace(
        said, queue=watched.get("queue", said.queue), events=watched.get("events", said.events)
    )


def plan_server(
    plan: Path,
    store: Store,
    *,
    mode: str,
    queue: int = 64,
    tracker: str | None = None,
    events: EventSink = discard,
) -> Server:
    """The same of a plan, with what a store knows, and with another tracker than it names: one
    network on this CPU in one process, others in parts. So is what was planned for throughput,
    whose requests follow each other from core to core, and for energy, whose calls keep the few
    cores that they have even where nothing is beside them. Raises UsageError for a mode that plans
    have not."""
    wish = {each: each for each in get_args(RunMode)}.get(mode)
    if wish is None:
        raise UsageError(
            f"{mode!r} is for artifacts: a plan says itself what runs on which cores.",
            hint=f"Known for plans: {', '.join(get_args(RunMode))}.",
        )
    options = ServerOptions(queue=queue, events=events)
    read = read_plan(plan)
    at_once = read.problem.objective in ("latency", "price")
    if read.networks and at_once and is_for_one_process(read):
        return plan_instance(read, store, wish, options)
    options = replace(options, supervision=SUPERVISION)
    return PlanServer(read, store, PlanTerms(mode=wish, tracker=tracker), options)
