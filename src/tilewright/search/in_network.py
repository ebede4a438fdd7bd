"""How long kernels take in a network, beside alone: a correction of the costs.

Alone, a kernel is timed with activations that were just written and with its own weights as the
last run left them. In a network other kernels ran meanwhile and took the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.ports import Ports

Kernel = tuple[str, Ports, str]
"""The workload's key, the forms of the ports, and the implementation."""
Timed = tuple[Kernel, float, float]
"""A kernel with its seconds alone and in a network, of all its calls there together."""


def timed_kernels(result: PlanResult) -> Iterator[Timed]:
    """The kernels of a plan that were timed in its network, where their times alone are known."""
    for key, task in result.plan.tasks.items():
        known = result.task(key)
        if known.alone is not None and known.in_place_s is not None:
            kernel = (*key, result.plan.candidates[key].implementation)
            yield kernel, task.count * known.alone.latency_s, task.count * known.in_place_s


def corrected_sum(result: PlanResult, race: Iterable[PlanResult]) -> float | None:
    """The sum of a plan's kernels, each corrected by how long it took in the networks of the others
    of the race; None where a time is missing, or nobody else raced."""
    others = [other for other in race if other is not result]
    if result.predicted_s is None or not others:
        return None
    seen = InNetworkFactors(timed for other in others for timed in timed_kernels(other))
    return sum(alone_s * seen.factor(*kernel) for kernel, alone_s, _ in timed_kernels(result))


class InNetworkFactors:
    """Factors from a kernel's time alone to its time in a network.

    Where a kernel was not seen itself, it counts what was seen of the same implementation and
    workload in other layouts, else of the workload, else of the implementation, else of
    everything. A factor is a ratio of sums, so that the longest calls, where handling and noise
    matter least, count most.
    """

    def __init__(self, seen: Iterable[Timed] = ()) -> None:
        self._sums: dict[tuple[object, ...], tuple[float, float]] = {}
        for kernel, alone_s, in_network_s in seen:
            for kind in _kinds(*kernel):
                alone, in_network = self._sums.get(kind, (0.0, 0.0))
                self._sums[kind] = (alone + alone_s, in_network + in_network_s)

    def factor(self, workload_key: str, ports: Ports, implementation: str) -> float:
        """Time in a network / time alone; 1 where nothing was seen."""
        for kind in _kinds(workload_key, ports, implementation):
            alone_s, in_network_s = self._sums.get(kind, (0.0, 0.0))
            if alone_s > 0.0:
                return in_network_s / alone_s
        return 1.0


def _kinds(workload_key: str, ports: Ports, implementation: str) -> list[tuple[object, ...]]:
    """What a kernel is seen as, the most special first."""
    return [
        (workload_key, ports, implementation),
        (workload_key, implementation),
        ("workload", workload_key),
        ("implementation", implementation),
        (),
    ]
