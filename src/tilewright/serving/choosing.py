"""Which instances on how many cores each serve networks best: predicted from each network's time
alone on 1 … n cores, as in Packrat (Bhardwaj and others, ICML 2025), and then measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf

from tilewright.core.events import Stage
from tilewright.core.serving import Load, ServeResult
from tilewright.core.units import format_seconds
from tilewright.hardware.probe import default_threads
from tilewright.serving.layouts import Layout, layout_text
from tilewright.serving.load import drive, drive_in_turn, speedup
from tilewright.serving.networks import ServedNetwork
from tilewright.serving.server import Server, ServerOptions

MODES = ("auto", "sequential", "shared")
_ROUNDS, _ROUND_S = 3, 0.7


def chosen_layout(
    networks: Sequence[ServedNetwork],
    mode: str,
    options: ServerOptions,
    deadline_s: float | None = None,
) -> tuple[Layout, str]:
    """The instances for networks, and why these.

    `sequential` is one instance of all physical cores, `shared` the best of those with several,
    `auto` the better of the two as measured in turn under load. Raises as a `Server` does.
    """
    cores = default_threads()
    if mode == "sequential" or cores == 1:
        return (cores,), "One request after the other on all cores."
    options.events(Stage(name="choose instances"))
    alone = {layout: _alone(networks, layout, options) for layout in _layouts(cores)}
    best, why = best_layout(alone, deadline_s)
    if mode == "shared":
        return best, why
    return _guarded(networks, best, options, deadline_s, why)


def _layouts(cores: int) -> list[Layout]:
    """Two instances and more of equal size, each as large as so many can be."""
    sizes = sorted({cores // count for count in range(2, cores + 1)}, reverse=True)
    return [(size,) * (cores // size) for size in sizes]


def _alone(
    networks: Sequence[ServedNetwork], layout: Layout, options: ServerOptions
) -> Mapping[str, float]:
    """Seconds of each network on one instance of a layout with nothing beside it."""
    with Server(networks, layout[:1], options) as server:
        return server.statistics().instances[0].expected_s


def best_layout(
    alone: Mapping[Layout, Mapping[str, float]], deadline_s: float | None
) -> tuple[Layout, str]:
    """The layout that answers most requests, as many for each network, if its instances were alone;
    among those whose slowest network is in time where any is."""
    in_time = {
        layout: times_s
        for layout, times_s in alone.items()
        if max(times_s.values()) <= (inf if deadline_s is None else deadline_s)
    }
    rates = {
        layout: len(layout) * len(times_s) / sum(times_s.values())
        for layout, times_s in (in_time or alone).items()
    }
    best = max(rates, key=lambda layout: rates[layout])
    why = (
        f"{layout_text(best)} should answer {rates[best]:.3g} requests per second, by the times of "
        f"each network alone on {best[0]} of its cores."
    )
    if deadline_s is not None and not in_time:
        slowest = format_seconds(max(alone[best].values()))
        why += f" None has time: the slowest network takes {slowest} there."
    return best, why


def _guarded(
    networks: Sequence[ServedNetwork],
    layout: Layout,
    options: ServerOptions,
    deadline_s: float | None,
    why: str,
) -> tuple[Layout, str]:
    """A layout if it is faster than one instance of all cores, both measured in turn; else that."""
    sequential = (default_threads(),)
    clients = default_clients(networks, layout)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(networks, each, options)) for each in (layout, sequential)
        ]
        ratios = [
            _ratio([drive(server, _ROUND_S, clients, deadline_s) for server in servers])
            for _ in range(_ROUNDS)
        ]
    ratio = sorted(ratios)[_ROUNDS // 2]
    told = (
        f"{why} Measured beside one request after the other on all cores it has {ratio:.2f} times "
        "the throughput"
    )
    if ratio > 1:
        return layout, f"{told}, and is kept."
    return sequential, f"{told}: one after the other is kept."


def default_clients(networks: Sequence[ServedNetwork], layout: Layout) -> int:
    """So many that no instance waits for one, and each network has as many."""
    return len(networks) * -(-2 * len(layout) // len(networks))


def _ratio(loads: Sequence[Load]) -> float:
    """How many times the throughput of the second; where that answers nothing in time, any is
    more."""
    found = speedup(*loads)
    return inf if found is None else found


def driven(
    server: Server, seconds: float, clients: int | None, deadline_s: float | None
) -> ServeResult:
    """What a load on a server shows, and beside it, in turn, the same load on one instance of all
    cores, but for a plan, which was compared when it was opened; the server is closed then. With
    `clients` None there are two for each instance."""
    networks = list(server.networks.values())
    count = clients or default_clients(networks, server.layout)
    sequential = (default_threads(),)
    with ExitStack() as stack:
        servers = [stack.enter_context(server)]
        if server.layout != sequential and not server.is_planned:
            beside = Server(networks, sequential, server.options)
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
