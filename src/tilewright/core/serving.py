"""What a server counts, and what a load on it showed: fields of the JSON contract.

    server.statistics().networks[0].latency_p99_s

Numbers are seconds and requests per second. Latencies are from a request's submission to its
answer, of the newest few thousand answers; None without any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.core.display import Displayed

InstanceState = Literal["starting", "ready", "slow", "restarting", "lost", "closed"]
"""`slow`: it takes three times as long as at its start. `lost`: it fails to start again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkService:
    """What became of the requests for a network.

    Each that was taken is answered, failed, missed (its deadline; not computed) or cancelled once.
    `refused` were not taken, for the queue was full. `retried` counts the times that one ran again
    after its instance had crashed or hung, or its batch was refused, `late` the answers after their
    deadline. `batches` counts runs by the number of requests that they answered; empty where a plan
    is served.
    """

    network: str
    answered: int
    failed: int
    missed: int
    cancelled: int
    refused: int
    retried: int
    late: int
    latency_p50_s: float | None
    latency_p90_s: float | None
    latency_p99_s: float | None
    batches: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceService:
    """A worker process: its core ids, its process id, how often it was started again, its answers,
    the part of the time that it computed, the seconds that each network takes on it, and, where
    requests are put together, those of each batch size that is worth it. `device` is what computes,
    by the name that people gave it, empty where they named none. Where a plan is served, it answers
    parts of networks, by their names. It computes at most `batch` requests at a time (None: as many
    as pay), and those for `networks` before others (none: for all alike)."""

    instance: int
    cores: tuple[int, ...]
    state: InstanceState
    pid: int | None
    restarts: int
    answered: int
    busy: float
    expected_s: dict[str, float]
    batches_s: dict[str, dict[int, float]] = field(default_factory=dict[str, dict[int, float]])
    device: str = ""
    batch: int | None = None
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerStatistics(Displayed):
    """Everything since a server began, `seconds` ago; `waiting` requests are in its queue."""

    seconds: float
    waiting: int
    networks: tuple[NetworkService, ...]
    instances: tuple[InstanceService, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLoad:
    """What clients saw of a network: answers in time, per second and in all, requests that missed
    their deadline or failed, and latencies of the answers."""

    network: str
    throughput_per_s: float
    answered: int
    missed: int
    failed: int
    latency_p50_s: float | None
    latency_p90_s: float | None
    latency_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What instances (as `2x1`) answered in so many seconds, while so many clients had a request
    under way at any time, each for one network after the other."""

    instances: str
    seconds: float
    clients: int
    networks: tuple[NetworkLoad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceKind:
    """`count` instances of so many cores, which compute at most `batch` requests at a time (None:
    as many as pay), those for `networks` before others (none: for all alike)."""

    count: int
    cores: int
    batch: int | None
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOption:
    """Instances that could serve, as people write them and by kind, and what is expected of them by
    the times of each network alone: requests per second of all networks together, or for requests
    that come at a time the seconds until all are answered; whether every network is in time on
    instances that compute it before others. `measured` is what a trial gave, as times the
    throughput or the speed of one request after the other on all cores, None where it was not
    tried."""

    instances: str
    kinds: tuple[InstanceKind, ...]
    requests_per_s: float | None
    seconds: float | None
    in_time: bool
    measured: float | None
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServeResult(Displayed):
    """A load on a server, and the same load on one instance of all cores, which computes one
    request after the other; None where that is what serves. `speedup` is the ratio of their
    throughputs. `choice` says why there are these instances, `options` are those that were weighed
    for it, the best first: none is `chosen` where one after the other is kept. There are none
    where instances were given.
    """

    choice: str
    load: Load
    sequential: Load | None
    speedup: float | None
    statistics: ServerStatistics
    options: tuple[InstanceOption, ...] = ()
