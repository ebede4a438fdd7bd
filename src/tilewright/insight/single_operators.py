"""Single operators by their `op:` text: their numbers, their kernels in default settings with
the times of these, and `study padding`, which measures and predicts one along a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Stage
from tilewright.core.predictions import SweepResult, SweepRow
from tilewright.core.records import Measurement, Placement
from tilewright.graph.tasks import Task
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.targeting import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.single_operator import with_default
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import Kernel, kernel_table
from tilewright.predict.modelling import Predictors

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
    """Time kernels one after the other on the predictors' device and keep what was measured: median
    seconds of each; None where it failed."""
    placement, store = predictors.placement, predictors.store
    store.add_device(placement.device)
    store.add_workloads([workload for workload, _ in kernels])
    found: list[float | None] = []
    with measurers(placement, seed) as measurer:
        measurer.start()
        for workload, candidate in kernels:
            predictors.events(Stage(name="time", detail=workload.key))
            (outcome,) = measurer.measure(workload, [candidate], kernel_protocol(placement))
            store.add([outcome])
            found.append(outcome.latency_s if isinstance(outcome, Measurement) else None)
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


_PADDINGS = (0, 1, 2, 3)
_MOST_FACTS = 6
_SHOWN = (
    "op.flop",
    "op.out_pixels",
    "op.border_share",
    "schedule.balance",
    "schedule.waste",
    "op.innermost_whole",
    "op.data_of_l2",
)


def swept(
    operator: str,
    parameter: str,
    values: tuple[int, ...],
    *,
    predictors: Predictors,
    options: ModelOptions,
    measurers: Measurers = open_measurer,
) -> SweepResult:
    """Measure and predict the operator at each value, in its default settings.

    Raises UsageError for what is no single operator or has no such number.
    """
    if not operator.startswith("op:"):
        raise UsageError(
            f"{operator!r} is no single operator",
            hint="tilewright study padding 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]'",
        )
    written = with_default(operator, parameter)
    known = numbers_of(written)
    if parameter not in known:
        raise UsageError(
            f"{operator} has no number {parameter!r}", hint="It has " + ", ".join(known)
        )
    placement = predictors.placement
    steps = values or _steps(parameter, known[parameter])
    kernels = [
        default_kernel(with_number(written, parameter, step), options, placement) for step in steps
    ]
    times_s = kernel_times(kernels, predictors, options.seed, measurers)
    estimates = Forecaster(predictors=predictors).modelled(kernels)
    features = kernel_table(kernels, placement, predictors.peaks)
    changing = {
        name: column
        for name, column in zip(features.names, features.values.T, strict=True)
        if name in _SHOWN and len(np.unique(column)) > 1
    }
    shown = list(changing.items())[:_MOST_FACTS]
    return SweepResult(
        operator=operator,
        parameter=parameter,
        rows=tuple(
            SweepRow(
                value=step,
                latency_s=times_s[number],
                predicted_s=estimates[number].latency_s,
                roof_s=float(features.scale[number]),
                implementation=kernels[number][1].implementation,
                facts={name: float(column[number]) for name, column in shown},
            )
            for number, step in enumerate(steps)
        ),
    )


def _steps(parameter: str, value: int) -> tuple[int, ...]:
    """What to try where nothing was asked for; only paddings may be nothing."""
    if parameter.startswith("pad"):
        return _PADDINGS
    return tuple(step for step in around(value) if step or not value)
