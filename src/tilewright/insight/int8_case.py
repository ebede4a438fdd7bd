"""The built-in integer convolutions of the subgraph study, as tasks."""

from __future__ import annotations

from tilewright.core.records import Placement
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.int8_case import int8_case, int8_forms

_KERNELS = (1, 3)


def int8_tasks(placement: Placement) -> dict[TaskKey, Task]:
    """The requantized 1×1 and 3×3 convolutions of the case, as if a network called each once."""
    found: dict[TaskKey, Task] = {}
    for kernel in _KERNELS:
        _, fused = int8_case(kernel)
        forms = int8_forms(fused, placement.target)
        key = (fused.key, forms)
        found[key] = Task(
            key=key,
            name=f"int8 case {kernel}x{kernel}",
            workload=fused,
            forms=forms,
            count=1,
            nodes=(),
        )
    return found
