"""What a device was measured to reach, and how near to that a task may come."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.records import Placement
from tilewright.graph.tasks import Task
from tilewright.measure.base import Measurer
from tilewright.store.base import Store

_OVERHEAD_SHARE = 3.0
_BYTES = ("int8", "uint8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What the machine was measured to reach."""

    flop_per_s: float
    bytes_per_s: float
    cache_bytes_per_s: float

    def memory_s(self, task: Task) -> float:
        """Time to move all bytes once: constants from memory, activations from the cache."""
        constants = sum(a.type.bytes for a in task.workload.arguments if a.role == "constant")
        rest = task.workload.bytes - constants
        return constants / self.bytes_per_s + rest / self.cache_bytes_per_s

    def compute_s(self, task: Task) -> float:
        """Time of the arithmetic alone. Dot products of bytes do four multiply-adds per lane."""
        anchor = task.workload.anchor_index
        bytewise = anchor is not None and task.workload.step_types(anchor)[0][0].dtype in _BYTES
        return task.workload.flop / (self.flop_per_s * (4.0 if bytewise else 1.0))

    def floor_s(self, task: Task) -> float:
        """Roofline time of one call."""
        return max(self.compute_s(task), self.memory_s(task), 1e-7)

    def bound(self, task: Task, latency_s: float) -> str:
        """`compute` or `memory`, whichever roof is nearer; `overhead` far below both."""
        compute_s, memory_s = self.compute_s(task), self.memory_s(task)
        if latency_s > _OVERHEAD_SHARE * max(compute_s, memory_s) and latency_s < 2e-5:
            return "overhead"
        return "compute" if compute_s >= memory_s else "memory"


def measured_peaks(store: Store, placement: Placement, measurer: Measurer) -> Peaks:
    """The best this device has ever reached: what the store knows, and one more look.

    A disturbed look finds too little, never too much, so the largest value is kept.
    """
    best: dict[str, float] = {}
    for name, value in measurer.peaks().items():
        known = store.peak(placement.key, name) or 0.0
        if value > known:
            store.add_peak(placement.key, name, value)
        best[name] = max(value, known)
    return Peaks(**best)
