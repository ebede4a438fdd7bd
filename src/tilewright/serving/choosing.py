"""Which instances on how many cores each serve networks best, and how many requests at a time:
predicted from the time of each batch of each network alone on 1 … n cores, as in Packrat (Bhardwaj
and others, ICML 2025), and then measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from tilewright.core.errors import TilewrightError, first_line
from tilewright.core.events import Stage
from tilewright.core.serving import InstanceOption, Load, ServeResult
from tilewright.hardware.probe import default_threads
from tilewright.serving.demand import EQUALLY_OFTEN, Demand
from tilewright.serving.layouts import Kind, Layout
from tilewright.serving.load import burst_s, drive, drive_in_turn, speedup
from tilewright.serving.served import ServedNetwork, largest_batch, unbatched
from tilewright.serving.server import Server, ServerOptions
from tilewright.serving.weighing import Alone, Weighed, weighed, why

MODES = ("auto", "sequential", "shared")
_ROUNDS, _ROUND_S = 3, 0.7


@dataclass(frozen=True, slots=True)
class Choice:
    """The instances that serve networks, which may have been told to run requests one by one, why
    these, and what was weighed for that, these first."""

    networks: tuple[ServedNetwork, ...]
    kinds: tuple[Kind, ...]
    why: str
    options: tuple[InstanceOption, ...] = ()

    @property
    def layout(self) -> Layout:
        """The number of cores of each instance."""
        return tuple(kind.cores for kind in self.kinds)


def chosen(
    networks: Sequence[ServedNetwork],
    mode: str,
    options: ServerOptions,
    demand: Demand = EQUALLY_OFTEN,
) -> Choice:
    """What serves networks as is asked.

    `sequential` is one instance of all physical cores, whose requests run one by one, `shared` the
    best of those with several, which may differ, or with batches, `auto` the better of the two as
    measured in turn under load, which is the first where an instance of the other crashes or hangs
    meanwhile; unequal instances are then measured beside the best equal ones, too. Raises as a
    `Server` does.
    """
    cores = default_threads()
    all_cores = "One request after the other on all cores."
    one_by_one = Choice(unbatched(networks), (Kind(cores),), all_cores)
    batched = largest_batch(networks) > 1
    if mode == "sequential" or (cores == 1 and not batched):
        return one_by_one
    options.events(Stage(name="choose instances"))
    try:
        layouts = _layouts(cores, fewest=1 if batched else 2)
        alone = {layout: _alone(networks, layout, options) for layout in layouts}
        found = weighed(alone, cores, demand)
        if mode == "shared":
            return _choice(networks, found, demand, {found[0].text: None})
        return _tried(networks, found, one_by_one, options, demand)
    except TilewrightError as error:
        if mode == "shared":
            raise
        failed = f"{one_by_one.why} Others failed when they were tried: {first_line(error)}."
        return replace(one_by_one, why=failed)


def _choice(
    networks: Sequence[ServedNetwork],
    found: Sequence[Weighed],
    demand: Demand,
    measured: Mapping[str, float | None],
) -> Choice:
    """The first of what was weighed, with what was measured of each."""
    told = tuple(
        each.option(measured.get(each.text), chosen=place == 0) for place, each in enumerate(found)
    )
    return Choice(tuple(networks), found[0].kinds, why(found, demand), told)


def _layouts(cores: int, fewest: int) -> list[Layout]:
    """So many instances and more of equal size, each as large as so many can be."""
    sizes = sorted({cores // count for count in range(fewest, cores + 1)}, reverse=True)
    return [(size,) * (cores // size) for size in sizes]


def _alone(networks: Sequence[ServedNetwork], layout: Layout, options: ServerOptions) -> Alone:
    """Seconds of each network on one instance of a layout with nothing beside it."""
    with Server(networks, layout[:1], options) as server:
        found = server.statistics().instances[0]
    return {name: found.batches_s.get(name, {1: s}) for name, s in found.expected_s.items()}


def _tried(
    networks: Sequence[ServedNetwork],
    found: Sequence[Weighed],
    one_by_one: Choice,
    options: ServerOptions,
    demand: Demand,
) -> Choice:
    """The best choice, or the best equal one, if it is faster than one by one, all measured in
    turn, and no instance of it fails; else that."""
    tried = [found[0], *(each for each in found[1:] if each.is_equal)][
        : 1 + (not found[0].is_equal)
    ]
    clients = default_clients(networks, tuple(kind.cores for kind in found[0].kinds))
    with ExitStack() as stack:
        plain = stack.enter_context(Server(one_by_one.networks, one_by_one.kinds, options))
        servers = [stack.enter_context(Server(networks, e.kinds, options)) for e in tried]
        rounds = [_ratios(servers, plain, clients, demand) for _ in range(_ROUNDS)]
        failures = [sum(i.restarts for i in each.statistics().instances) for each in servers]
    ratios = {
        e.text: median(ratios) for e, ratios in zip(tried, zip(*rounds, strict=True), strict=True)
    }
    whole = [each for each, failed in zip(tried, failures, strict=True) if not failed]
    failed = "".join(
        f" Instances of {each.text} crashed or hung {'once' if n == 1 else f'{n} times'} on trial."
        for each, n in zip(tried, failures, strict=True)
        if n
    )
    if not whole:
        return replace(one_by_one, why=f"{one_by_one.why}{failed}")
    best = max(whole, key=lambda each: (ratios[each.text], each.is_equal))
    others = [each for each in found if each is not best]
    choice = _choice(networks, [best, *others], demand, ratios)
    what = "speed" if demand.burst else "throughput"
    beside = "".join(f", {e.text} {ratios[e.text]:.2f} times" for e in whole if e is not best)
    told = (
        f"{choice.why}{failed} Measured beside one request after the other on all cores it has "
        f"{ratios[best.text]:.2f} times the {what}{beside}"
    )
    if ratios[best.text] > 1:
        return replace(choice, why=f"{told}, and is kept.")
    left = tuple(replace(each, chosen=False) for each in choice.options)
    return replace(one_by_one, why=f"{told}: one after the other is kept.", options=left)


def _ratios(servers: Sequence[Server], plain: Server, clients: int, demand: Demand) -> list[float]:
    """How many times the throughput of one request after the other each has, or, where requests
    come at a time, the speed."""
    if demand.burst:
        burst_s(plain, demand)
        plain_s = burst_s(plain, demand)
        return [plain_s / min(burst_s(each, demand) for _ in range(2)) for each in servers]
    loads = [drive(each, _ROUND_S, clients, demand) for each in (*servers, plain)]
    return [_ratio([load, loads[-1]]) for load in loads[:-1]]


def default_clients(networks: Sequence[ServedNetwork], layout: Layout) -> int:
    """So many that no instance waits for one, batches are full, and each network has as many."""
    wanted = 2 * len(layout) * largest_batch(networks)
    return len(networks) * -(-wanted // len(networks))


def _ratio(loads: Sequence[Load]) -> float:
    """How many times the throughput of the second; where that answers nothing in time, any is
    more."""
    found = speedup(*loads)
    return inf if found is None else found


def driven(
    server: Server, seconds: float, clients: int | None, demand: Demand = EQUALLY_OFTEN
) -> ServeResult:
    """What a load on a server shows, and beside it, in turn, the same load on one instance of all
    cores, one by one, but for a plan, which was compared when it was opened, and where only devices
    elsewhere compute; the server is closed then. With `clients` None there are two for each request
    that is computed at a time."""
    networks = list(server.networks.values())
    count = clients or default_clients(networks, server.layout)
    sequential = (default_threads(),)
    with ExitStack() as stack:
        servers = [stack.enter_context(server)]
        alike = server.layout == sequential and server.largest_batch == 1
        if server.has_instances_here and not alike:
            beside = Server(unbatched(networks), sequential, server.options)
            servers.append(stack.enter_context(beside))
        loads = drive_in_turn(servers, seconds, count, demand, rounds=_ROUNDS)
        statistics = server.statistics()
    other = loads[1] if len(loads) > 1 else None
    return ServeResult(
        choice=server.choice,
        load=loads[0],
        sequential=other,
        speedup=None if other is None else speedup(loads[0], other),
        statistics=statistics,
        options=server.considered,
    )
