"""Single operators by their `op:` text: their numbers, their kernels in default settings, and the
times of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.events import EventSink, Stage
from tilewright.core.records import Measurement, Placement
from tilewright.graph.tasks import Task
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.kernel_facts import Kernel
from tilewright.store.base import Store

_NUMBER = re.compile(r"(\w+)=(\d+)(?=[,\]])")
_STEPS = 17
_FLAGS = frozenset({"bias", "relu", "groups", "dilation", "n"})


def main_task(name: str, options: ModelOptions, placement: Placement) -> Task:
    """The operator's own kernel: the one with the most work, where there are copies around it."""
    tasks = prepare_outline(name, options, placement).tasks.values()
    return max(tasks, key=lambda task: (task.workload.flop, task.workload.bytes))


def default_kernel(name: str, options: ModelOptions, placement: Placement) -> Kernel:
    """The operator's kernel in its default settings."""
    task = main_task(name, options, placement)
    return task.workload, default_candidate(task.workload, task.forms, placement)[0]


@dataclass(frozen=True, kw_only=True)
class KernelTimer:
    """Times kernels one after the other on a device and keeps what it measured. `measurers` opens
    the measurer of a device, with a seed."""

    placement: Placement
    store: Store
    events: EventSink
    seed: int
    measurers: Callable[[Placement, int], Measurer]

    def times(self, kernels: Sequence[Kernel]) -> list[float | None]:
        """Median seconds of each; None where it failed."""
        self.store.add_device(self.placement.device)
        self.store.add_workloads([workload for workload, _ in kernels])
        found: list[float | None] = []
        with self.measurers(self.placement, self.seed) as measurer:
            measurer.start()
            for workload, candidate in kernels:
                self.events(Stage(name="time", detail=workload.key))
                (outcome,) = measurer.measure(
                    workload, [candidate], kernel_protocol(self.placement)
                )
                self.store.add([outcome])
                timed = isinstance(outcome, Measurement)
                found.append(outcome.latency_s if timed else None)
        return found


def numbers_of(name: str, *, batch: bool = False) -> dict[str, int]:
    """`op:conv2d[c=64,h=28,pad=1]` → {"c": 64, "h": 28, "pad": 1}, without what is no size; the
    batch `n` only where it is asked for."""
    found = {key: int(value) for key, value in _NUMBER.findall(name)}
    left_out = _FLAGS - {"n"} if batch else _FLAGS
    return {key: value for key, value in found.items() if key not in left_out}


def with_number(name: str, parameter: str, value: int) -> str:
    """The operator with another value of one of its numbers."""
    return re.sub(rf"(?<=[\[,]){parameter}=\d+", f"{parameter}={value}", name)


def around(value: int) -> list[int]:
    """Up to 17 values from half to twice of one, itself included."""
    steps = np.linspace(value // 2, 2 * value, _STEPS).round().astype(int)
    return sorted({value, *(int(step) for step in steps)})
