"""Single operators by their `op:` text: their numbers, their kernels in default settings with
the times of these, and `study padding`, which measures and predicts one along a number; and turning
points, values of a number from which on the structure is another one, and whether a few measured
times change there, too.

The logarithm of the measured cost is fitted by a line and one step: level + slope × log(value) +
step for every value from some split on. The split with the least squared residuals is the change
point (Quandt, "The estimation of the parameters of a linear regression system obeying two separate
regimes", 1958, with one slope in common, since half a dozen values cannot tell two).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import SweepResult, SweepRow, TurningPoint
from tilewright.core.records import Failure, Measurement, Placement
from tilewright.graph.tasks import Task
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.targeting import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.single_operator import with_default
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.base import Features, Floats
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import Kernel, kernel_table
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
    placement = predictors.placement
    steps = sweep_steps(operator, parameter, values)
    kernels = [default_kernel(text, options, placement) for text in steps.values()]
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


def sweep_steps(operator: str, parameter: str, values: tuple[int, ...]) -> dict[int, str]:
    """The operator's text with each value of the parameter, the usual ones where none are given.

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
    steps = values or _steps(parameter, known[parameter])
    return {step: with_number(written, parameter, step) for step in steps}


def _steps(parameter: str, value: int) -> tuple[int, ...]:
    """What to try where nothing was asked for; only paddings may be nothing."""
    if parameter.startswith("pad"):
        return _PADDINGS
    return tuple(step for step in around(value) if step or not value)


_CACHES = ("_of_l1", "_of_l2", "_of_l3")
_WHOLE = ("balance", "_whole", "threads_over_rows")
_LEAST_DROP = 0.02

_MOST_PLACES = 6
"""So many places, those with the largest predicted steps, are measured."""

_MEASURED = 3
"""Values measured before a place and from it on."""

LEAST_VALUES = 5
"""Fewer than this leave nothing to judge a line and a step by."""

EACH_SIDE = 2
"""Values on either side of a split: a single one would be fitted whatever it is."""

_LEAST_STEP = 0.03
"""Steps below this, in the logarithm, are what repeated measurements differ by."""

_CLEAR = 3.0
"""A step counts from so many of its standard errors on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """An operator's kernels along one of its numbers, rising."""

    values: Sequence[int]
    kernels: Sequence[Kernel]

    @property
    def work(self) -> list[float]:
        """FLOP of each kernel, bytes where there is no arithmetic."""
        return [float(workload.flop or workload.bytes) for workload, _ in self.kernels]


def turning_points(
    parameter: str, sweep: Sweep, features: Features, times_s: Floats
) -> list[TurningPoint]:
    """Where structure changes along a sweep, the largest steps of the predicted time per FLOP
    first: vectors or rounds of threads that are not full any more, a working set that leaves a
    cache."""
    cost = times_s / np.maximum(1.0, np.array(sweep.work))
    found: list[TurningPoint] = []
    for name, column in zip(features.names, features.values.T, strict=True):
        leaves = name.endswith(_CACHES) & (column[:-1] <= 0) & (column[1:] > 0)
        drops = name.endswith(_WHOLE) & (column[1:] < column[:-1] - _LEAST_DROP)
        found += [
            TurningPoint(
                parameter=parameter,
                value=sweep.values[row + 1],
                fact=name,
                before=float(column[row]),
                after=float(column[row + 1]),
                ratio=float(cost[row + 1] / cost[row]),
            )
            for row in np.flatnonzero(leaves | drops).tolist()
        ]
    return sorted(found, key=lambda point: (-abs(np.log(point.ratio)), point.value))


def confirmed(
    points: Sequence[TurningPoint],
    sweeps: Mapping[str, Sweep],
    time: Callable[[Sequence[Kernel]], Sequence[float | None]],
) -> tuple[TurningPoint, ...]:
    """The same points with what was measured around the first few places; `sweeps` are by
    parameter, `time` gives seconds of kernels. Points of one place, of several facts, share its
    measurements; those at the edge of a sweep have too few values beside them."""
    named = dict.fromkeys((point.parameter, point.value) for point in points)
    inside = [(name, value) for name, value in named if _is_inside(sweeps[name], value)]
    places = inside[:_MOST_PLACES]
    kernels = {
        _identity(sweeps[name].kernels[number]): sweeps[name].kernels[number]
        for name, value in places
        for number in _around(sweeps[name], value)
    }
    times_s = dict(zip(kernels, time(list(kernels.values())), strict=True))
    found = {(name, value): _change(sweeps[name], value, times_s) for name, value in places}
    return tuple(_judged(point, found.get((point.parameter, point.value))) for point in points)


def _is_inside(sweep: Sweep, value: int) -> bool:
    place = sweep.values.index(value)
    return len(sweep.values) >= LEAST_VALUES and EACH_SIDE <= place <= len(sweep.values) - EACH_SIDE


def _identity(kernel: Kernel) -> tuple[str, object]:
    return kernel[0].key, kernel[1]


def _around(sweep: Sweep, value: int) -> range:
    """The numbers of the values around one of them."""
    place = sweep.values.index(value)
    return range(max(0, place - _MEASURED), min(len(sweep.values), place + _MEASURED))


def _change(
    sweep: Sweep, value: int, times_s: Mapping[tuple[str, object], float | None]
) -> Change | None:
    """None where too few of the values could be timed."""
    known = {n: times_s[_identity(sweep.kernels[n])] for n in _around(sweep, value)}
    timed = {sweep.values[n]: s / sweep.work[n] for n, s in known.items() if s is not None}
    if value not in timed:
        return None
    return change_at(list(timed), list(timed.values()), list(timed).index(value))


def _judged(point: TurningPoint, change: Change | None) -> TurningPoint:
    if change is None:
        return point
    same_way = (change.ratio > 1) == (point.ratio > 1)
    return replace(
        point,
        measured_ratio=change.ratio,
        confirmed=change.clear and same_way and change.value == point.value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A series along a parameter. `value` is the first value after the split that fits best;
    `ratio` is the step at the split that was asked about, as a factor; `clear` says that this step
    stands out of what the line leaves unexplained."""

    value: float
    ratio: float
    clear: bool


def change_at(values: Sequence[float], costs: Sequence[float], place: int) -> Change | None:
    """The step between `values[place - 1]` and `values[place]`, and where the best one is.

    `values` rise and are above zero, as `costs` are. None for fewer than `LEAST_VALUES` values, or
    a place with fewer than two of them on a side.
    """
    count = len(values)
    splits = range(EACH_SIDE, count - EACH_SIDE + 1)
    if count < LEAST_VALUES or place not in splits:
        return None
    fits = {split: _fit(values, costs, split) for split in splits}
    best = min(fits, key=lambda split: (fits[split][1], abs(split - place)))
    step, squares, per_variance = fits[place]
    spread = float(np.sqrt(squares / (count - 3) * per_variance))
    return Change(
        value=float(values[best]),
        ratio=float(np.exp(step)),
        clear=abs(step) >= max(_LEAST_STEP, _CLEAR * spread),
    )


def _fit(values: Sequence[float], costs: Sequence[float], split: int) -> tuple[float, float, float]:
    """The step at a split, the sum of squared residuals, and the step's variance over theirs."""
    places = np.log(np.asarray(values, dtype=np.float64))
    after = (np.arange(len(values)) >= split).astype(np.float64)
    design = np.column_stack([np.ones(len(values)), places - places.mean(), after])
    logs = np.log(np.asarray(costs, dtype=np.float64))
    inverse = np.linalg.pinv(design.T @ design)
    found = inverse @ design.T @ logs
    residuals = logs - design @ found
    return float(found[2]), float(residuals @ residuals), float(inverse[2, 2])
