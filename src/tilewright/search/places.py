"""How long kernels take in their places in a network, beside alone: a correction of the costs.

Alone, a kernel is timed with activations that were just written and with its own weights as the
last run left them. In a network other kernels ran meanwhile and took the caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.kernels.ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A kernel in a network: seconds of one of its `calls` there (their mean), and alone."""

    workload_key: str
    ports: Ports
    implementation: str
    calls: int
    alone_s: float
    in_place_s: float


class Places:
    """Factors from a kernel's time alone to its time in place.

    Where a kernel was not seen itself, it counts what was seen of the same implementation and
    workload in other layouts, else of the workload, else of the implementation, else of
    everything. A factor is a ratio of sums, so that the longest calls, where handling and noise
    matter least, count most.
    """

    def __init__(self, seen: Iterable[Place] = ()) -> None:
        self._sums: dict[tuple[object, ...], tuple[float, float]] = {}
        for place in seen:
            for key in _keys(place.workload_key, place.ports, place.implementation):
                alone_s, in_place_s = self._sums.get(key, (0.0, 0.0))
                self._sums[key] = (
                    alone_s + place.calls * place.alone_s,
                    in_place_s + place.calls * place.in_place_s,
                )

    def factor(self, workload_key: str, ports: Ports, implementation: str) -> float:
        """Time in place / time alone; 1 where nothing was seen."""
        for key in _keys(workload_key, ports, implementation):
            alone_s, in_place_s = self._sums.get(key, (0.0, 0.0))
            if alone_s > 0.0:
                return in_place_s / alone_s
        return 1.0


def _keys(workload_key: str, ports: Ports, implementation: str) -> list[tuple[object, ...]]:
    """What a kernel is seen as, the most special first."""
    return [
        (workload_key, ports, implementation),
        (workload_key, implementation),
        ("workload", workload_key),
        ("implementation", implementation),
        (),
    ]
