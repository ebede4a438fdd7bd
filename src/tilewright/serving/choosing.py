"""Which instances on how many cores each serve networks best, and how many requests at a time:
predicted from the time of each batch of each network alone on 1 … n cores, as in Packrat (Bhardwaj
and others, ICML 2025), and then measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf

from tilewright.core.errors import TilewrightError, first_line
from tilewright.core.events import Stage
from tilewright.core.serving import Load, ServeResult
from tilewright.core.units import format_seconds
from tilewright.hardware.probe import default_threads
from tilewright.serving.layouts import Layout, layout_text
from tilewright.serving.load import drive, drive_in_turn, speedup
from tilewright.serving.served import ServedNetwork, largest_batch, unbatched
from tilewright.serving.server import Server, ServerOptions

MODES = ("auto", "sequential", "shared")
_ROUNDS, _ROUND_S = 3, 0.7
Alone = Mapping[str, Mapping[int, float]]
"""Seconds of each network with nothing beside it, by the number of requests in a batch."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The instances that serve networks, which may have been told to run requests one by one, and
    why these."""

    networks: tuple[ServedNetwork, ...]
    layout: Layout
    why: str


def chosen(
    networks: Sequence[ServedNetwork],
    mode: str,
    options: ServerOptions,
    deadline_s: float | None = None,
) -> Choice:
    """What serves networks.

    `sequential` is one instance of all physical cores, whose requests run one by one, `shared` the
    best of those with several, or with batches, `auto` the better of the two as measured in turn
    under load, which is the first where an instance of the other crashes or hangs meanwhile. Raises
    as a `Server` does.
    """
    cores = default_threads()
    one_by_one = Choice(unbatched(networks), (cores,), "One request after the other on all cores.")
    batched = largest_batch(networks) > 1
    if mode == "sequential" or (cores == 1 and not batched):
        return one_by_one
    options.events(Stage(name="choose instances"))
    try:
        layouts = _layouts(cores, fewest=1 if batched else 2)
        alone = {layout: _alone(networks, layout, options) for layout in layouts}
        best = Choice(tuple(networks), *best_layout(alone, deadline_s))
        return best if mode == "shared" else _guarded(best, one_by_one, options, deadline_s)
    except TilewrightError as error:
        if mode == "shared":
            raise
        failed = f"{one_by_one.why} Others failed when they were tried: {first_line(error)}."
        return replace(one_by_one, why=failed)


def _layouts(cores: int, fewest: int) -> list[Layout]:
    """So many instances and more of equal size, each as large as so many can be."""
    sizes = sorted({cores // count for count in range(fewest, cores + 1)}, reverse=True)
    return [(size,) * (cores // size) for size in sizes]


def _alone(networks: Sequence[ServedNetwork], layout: Layout, options: ServerOptions) -> Alone:
    """Seconds of each network on one instance of a layout with nothing beside it."""
    with Server(networks, layout[:1], options) as server:
        found = server.statistics().instances[0]
    return {name: found.batches_s.get(name, {1: s}) for name, s in found.expected_s.items()}


def best_layout(alone: Mapping[Layout, Alone], deadline_s: float | None) -> tuple[Layout, str]:
    """The layout that answers most requests, as many for each network, if its instances were alone
    and batches full, those that take too long left out; among those whose slowest network is in
    time where any is."""
    limit_s = inf if deadline_s is None else deadline_s
    best_of = {
        layout: {name: _best_batch(times_s, limit_s) for name, times_s in each.items()}
        for layout, each in alone.items()
    }
    in_time = [
        layout for layout, each in alone.items() if max(t[1] for t in each.values()) <= limit_s
    ]
    rates = {
        layout: len(layout) * len(alone[layout]) / sum(s for _, s in best_of[layout].values())
        for layout in in_time or alone
    }
    best = max(rates, key=lambda layout: rates[layout])
    batches = [f"{size} of {name!r}" for name, (size, _) in best_of[best].items() if size > 1]
    together = f", in batches of {', '.join(batches)}" if batches else ""
    why = (
        f"{layout_text(best)} should answer {rates[best]:.3g} requests per second{together}, by "
        f"the times of each network alone on {best[0]} of its cores."
    )
    if deadline_s is not None and not in_time:
        slowest = format_seconds(max(times_s[1] for times_s in alone[best].values()))
        why += f" None has time: the slowest network takes {slowest} there."
    return best, why


def _best_batch(times_s: Mapping[int, float], limit_s: float) -> tuple[int, float]:
    """The size that takes least time for each of its requests, and that; of those within a
    limit, and 1."""
    in_time = [size for size, takes_s in times_s.items() if takes_s <= limit_s or size == 1]
    best = min(in_time, key=lambda size: times_s[size] / size)
    return best, times_s[best] / best


def _guarded(
    best: Choice, one_by_one: Choice, options: ServerOptions, deadline_s: float | None
) -> Choice:
    """The best choice if it is faster than one by one, both measured in turn, and no instance of
    it fails; else that."""
    clients = default_clients(best.networks, best.layout)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(each.networks, each.layout, options))
            for each in (best, one_by_one)
        ]
        ratios = [
            _ratio([drive(server, _ROUND_S, clients, deadline_s) for server in servers])
            for _ in range(_ROUNDS)
        ]
        failures = sum(each.restarts for each in servers[0].statistics().instances)
    if failures:
        often = "once" if failures == 1 else f"{failures} times"
        failed = f"Instances of {layout_text(best.layout)} crashed or hung {often} on trial"
        return replace(one_by_one, why=f"{one_by_one.why} {failed}.")
    ratio = sorted(ratios)[_ROUNDS // 2]
    told = (
        f"{best.why} Measured beside one request after the other on all cores it has "
        f"{ratio:.2f} times the throughput"
    )
    if ratio > 1:
        return replace(best, why=f"{told}, and is kept.")
    return replace(one_by_one, why=f"{told}: one after the other is kept.")


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
    server: Server, seconds: float, clients: int | None, deadline_s: float | None
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
        loads = drive_in_turn(servers, seconds, count, deadline_s, rounds=_ROUNDS)
        statistics = server.statistics()
    other = loads[1] if len(loads) > 1 else None
    return ServeResult(
        choice=server.choice,
        load=loads[0],
        sequential=other,
        speedup=None if other is None else speedup(loads[0], other),
        statistics=statistics,
    )
