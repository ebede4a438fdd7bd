"""Single operators by their `op:` text: their numbers, and their kernels in default settings with
the times of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import EventSink, Stage
from tilewright.core.records import Failure, Measurement, Placement
from tilewright.graph.tasks import Task
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors
from tilewright.store.base import Store

_NUMBER = re.compile(r"(\w+)=(\d+)(?=[,\]])")
_STEPS = 17
_FLAGS = frozenset({"bias", "relu", "groups", "dilation", "n"})

Made = TypeVar("Made")
Measurers = Callable[[Placement, int], Measurer]
"""Opens the measurer of a device, with a seed."""


def main_task(name: str, options: ModelOptions, placement: Placement) -> Task:
    """The operator's own kernel: the one with the most work, where there are copies around it."""
    tasks = prepare_outline(name, options, placement).tasks.values()
    return max(tasks, key=lambda task: (task.workload.flop, task.workload.bytes))


def default_kernel(name: str, options: ModelOptions, placement: Placement) -> Kernel:
    """The operator's kernel in its default settings."""
    task = main_task(name, options, placement)
    return task.workload, default_candidate(task.workload, task.forms, placement)[0]


def kernel_times(
    kernels: Sequence[Kernel], predictors: Predictors, seed: int, measurers: Measurers
) -> list[float | None]:
    """Time kernels on the predictors' device and keep what was measured: median seconds of each;
    None where it failed."""
    placement = predictors.placement
    with measurers(placement, seed) as measurer:
        outcomes = measured(kernels, placement, measurer, predictors.store, predictors.events)
    return [it.latency_s if isinstance(it, Measurement) else None for it in outcomes]


def measured(
    kernels: Sequence[Kernel],
    placement: Placement,
    measurer: Measurer,
    store: Store,
    events: EventSink,
) -> list[Measurement | Failure]:
    """Time kernels one after the other, and keep what was measured."""
    store.add_device(placement.device)
    store.add_workloads([workload for workload, _ in kernels])
    measurer.start()
    found: list[Measurement | Failure] = []
    for workload, candidate in kernels:
        events(Stage(name="time", detail=workload.key))
        (outcome,) = measurer.measure(workload, [candidate], kernel_protocol(placement))
        store.add([outcome])
        found.append(outcome)
    return found


def numbers_of(name: str, *, batch: bool = False) -> dict[str, int]:
    """`op:conv2d[c=64,h=28,pad=1]` → {"c": 64, "h": 28, "pad": 1}, without what is no size; the
    batch `n` only where it is asked for."""
    left_out = _FLAGS - {"n"} if batch else _FLAGS
    return {key: int(value) for key, value in _NUMBER.findall(name) if key not in left_out}


def with_number(name: str, parameter: str, value: int) -> str:
    """The operator with another value of one of its numbers."""
    return re.sub(rf"(?<=[\[,]){parameter}=\d+", f"{parameter}={value}", name)


def along(name: str, parameter: str, value: int, make: Callable[[str], Made]) -> dict[int, Made]:
    """What is made of the operator with values of a number around its own; values of which nothing
    can be made are left out."""
    found: dict[int, Made] = {}
    for step in around(value):
        with suppress(UsageError, ModelError):
            found[step] = make(with_number(name, parameter, step))
    return found


def around(value: int) -> list[int]:
    """Up to 17 values from half to twice of one, itself included."""
    steps = np.linspace(value // 2, 2 * value, _STEPS).round().astype(int)
    return sorted({value, *(int(step) for step in steps)})
