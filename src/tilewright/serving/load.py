"""Driving a server with requests of its own, in a closed loop: it is busy and never flooded."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic, sleep

import numpy as np

from tilewright.core.refusals import DeadlineMissed, RequestFailed
from tilewright.core.serving import Load, NetworkLoad
from tilewright.graph.network import Array
from tilewright.serving.demand import EQUALLY_OFTEN, Demand
from tilewright.serving.served import ServedNetwork
from tilewright.serving.server import Server


@dataclass(slots=True)
class _Seen:
    """What one client saw of a network."""

    latencies_s: list[float] = field(default_factory=list[float])
    late: int = 0
    missed: int = 0
    failed: int = 0


def drive(server: Server, seconds: float, clients: int, demand: Demand = EQUALLY_OFTEN) -> Load:
    """Have so many clients send drawn inputs, each to one network after the other, and each the
    next request when it has the answer to the last one; after one that missed its deadline when
    that has passed.

    So all networks have equally many requests, or as many as the rates of the `demand` say, however
    fast they are, and two loads on the same networks can be compared.
    """
    return drive_in_turn([server], seconds, clients, demand, rounds=1)[0]


def burst_s(server: Server, demand: Demand) -> float:
    """Seconds until as many drawn requests for each network are answered as come at a time. Raises
    what one ends in."""
    count = demand.burst or 1
    inputs = {name: named_inputs(each, 0) for name, each in server.networks.items()}
    began_s = monotonic()
    answers = [
        server.submit(name, given, timeout_s=None)
        for _ in range(count)
        for name, given in inputs.items()
    ]
    for answer in answers:
        answer.result()
    return monotonic() - began_s


def drive_in_turn(
    servers: Sequence[Server],
    seconds: float,
    clients: int,
    demand: Demand = EQUALLY_OFTEN,
    *,
    rounds: int,
) -> list[Load]:
    """The same on several servers of the same networks, so long on each, in so many rounds."""
    seen: list[list[dict[str, _Seen]]] = [[] for _ in servers]
    took_s = [0.0 for _ in servers]
    for _ in range(rounds):
        for index, server in enumerate(servers):
            began_s = monotonic()
            seen[index] += _round(server, began_s + seconds / rounds, clients, demand)
            took_s[index] += monotonic() - began_s
    return [
        Load(
            instances=server.instances,
            seconds=took_s[index],
            clients=clients,
            networks=tuple(
                _network_load(name, [client[name] for client in seen[index]], took_s[index])
                for name in server.networks
            ),
        )
        for index, server in enumerate(servers)
    ]


def _round(server: Server, end_s: float, clients: int, demand: Demand) -> list[dict[str, _Seen]]:
    """What each client saw of each network."""
    networks = list(server.networks.values())

    def client(number: int) -> dict[str, _Seen]:
        first = number % len(networks)
        order, begun = networks[first:] + networks[:first], number / clients
        return _sent(server, order, number, end_s, demand, begun)

    with ThreadPoolExecutor(clients) as threads:
        return list(threads.map(client, range(clients)))


def _sent(
    server: Server,
    networks: Sequence[ServedNetwork],
    seed: int,
    end_s: float,
    demand: Demand,
    begun: float,
) -> dict[str, _Seen]:
    inputs = {each.name: named_inputs(each, seed) for each in networks}
    found = {each.name: _Seen() for each in networks}
    for name in demand.turns(found, begun):
        began_s, seen, deadline_s = monotonic(), found[name], demand.deadline_s(name)
        if began_s >= end_s:
            break
        try:
            server.submit(name, inputs[name], deadline_s=deadline_s, timeout_s=None).result()
        except DeadlineMissed:
            seen.missed += 1
            sleep(max(0.0, began_s + (deadline_s or 0.0) - monotonic()))
        except RequestFailed:
            seen.failed += 1
        else:
            took_s = monotonic() - began_s
            seen.latencies_s.append(took_s)
            seen.late += deadline_s is not None and took_s > deadline_s
    return found


def named_inputs(network: ServedNetwork, seed: int) -> dict[str, Array]:
    """Drawn inputs by name."""
    names = [port.name for port in network.inputs]
    return dict(zip(names, network.drawn_inputs(seed), strict=True))


def _network_load(name: str, seen: Sequence[_Seen], seconds: float) -> NetworkLoad:
    latencies_s = [each for client in seen for each in client.latencies_s]
    late = sum(client.late for client in seen)
    points = np.percentile(latencies_s, (50, 90, 99)).tolist() if latencies_s else [None] * 3
    return NetworkLoad(
        network=name,
        throughput_per_s=(len(latencies_s) - late) / seconds,
        answered=len(latencies_s),
        missed=late + sum(client.missed for client in seen),
        failed=sum(client.failed for client in seen),
        latency_p50_s=points[0],
        latency_p90_s=points[1],
        latency_p99_s=points[2],
    )


def speedup(first: Load, second: Load) -> float | None:
    """How many times the throughput of the second load the first one has, in answers in time; None
    where the second has none."""
    rates = [sum(each.throughput_per_s for each in load.networks) for load in (first, second)]
    return rates[0] / rates[1] if rates[1] else None
