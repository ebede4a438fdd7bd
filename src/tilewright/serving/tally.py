"""What a server counts of its requests."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Literal

import numpy as np

from tilewright.core.serving import NetworkService

Fate = Literal["answered", "failed", "missed", "cancelled", "refused", "retried", "late"]
_KEPT = 4096


class Tally:
    """Counts by network, and the latencies of the newest answers; any thread may count."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._counts = {name: Counter[Fate]() for name in networks}
        self._batches = {name: Counter[int]() for name in self._counts}
        self._latencies_s = {name: deque[float](maxlen=_KEPT) for name in self._counts}
        self._lock = threading.Lock()

    def count(self, network: str, fate: Fate, latency_s: float | None = None) -> None:
        """One more; of an answer also its latency."""
        with self._lock:
            self._counts[network][fate] += 1
            if latency_s is not None:
                self._latencies_s[network].append(latency_s)

    def count_batch(self, network: str, requests: int) -> None:
        """So many requests were computed at a time."""
        with self._lock:
            self._batches[network][requests] += 1

    def services(self) -> tuple[NetworkService, ...]:
        """Every network's, until now."""
        with self._lock:
            return tuple(
                _service(name, counts, self._batches[name], list(self._latencies_s[name]))
                for name, counts in self._counts.items()
            )


def _service(
    name: str, counts: Counter[Fate], batches: Counter[int], latencies_s: list[float]
) -> NetworkService:
    found = np.percentile(latencies_s, (50, 90, 99)).tolist() if latencies_s else [None] * 3
    return NetworkService(
        network=name,
        answered=counts["answered"],
        failed=counts["failed"],
        missed=counts["missed"],
        cancelled=counts["cancelled"],
        refused=counts["refused"],
        retried=counts["retried"],
        late=counts["late"],
        batches=dict(sorted(batches.items())),
        latency_p50_s=found[0],
        latency_p90_s=found[1],
        latency_p99_s=found[2],
    )
