"""How long kernels take in their places in a network, beside alone: a correction of the costs.

Alone, a kernel is timed with activations that were just written and with its own weights as the
last run left them. In a network other kernels ran meanwhile and took the caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.graph.plan_result import PlanResult
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


def places_of(result: PlanResult) -> list[Place]:
    """A plan's kernels in their places, where their times alone are known."""
    found: list[Place] = []
    for key, task in result.plan.tasks.items():
        known = result.task(key)
        if known.alone is not None and known.in_place_s is not None:
            found.append(
                Place(
                    workload_key=key[0],
                    ports=key[1],
                    implementation=result.plan.candidates[key].implementation,
                    calls=task.count,
                    alone_s=known.alone.latency_s,
                    in_place_s=known.in_place_s,
                )
            )
    return found


def corrected_sum(result: PlanResult, race: Iterable[PlanResult]) -> float | None:
    """The sum of a plan's kernels, each corrected by its place as the others of the race had it;
    None where a time is missing, or nobody else raced."""
    others = [other for other in race if other is not result]
    if result.predicted_s is None or not others:
        return None
    seen = Places(place for other in others for place in places_of(other))
    return sum(
        place.calls
        * place.alone_s
        * seen.factor(place.workload_key, place.ports, place.implementation)
        for place in places_of(result)
    )


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
