"""`study padding`: one operator measured and predicted along one of its numbers."""

from __future__ import annotations

import numpy as np

from tilewright.core.errors import UsageError
from tilewright.core.predictions import SweepResult, SweepRow
from tilewright.insight.single_operators import (
    Measurers,
    around,
    default_kernel,
    kernel_times,
    numbers_of,
    with_number,
)
from tilewright.measure.targeting import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.single_operator import with_default
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import kernel_table
from tilewright.predict.modelling import Predictors

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


def require_cpu_kernels(implementation: str, layout: str) -> None:
    """Raise UsageError for an implementation or a layout of images that only GPUs have."""
    if implementation:
        raise UsageError("--implementation is for GPUs.")
    if layout != "NCHW":
        raise UsageError(
            f"no kernel for CPUs takes images in {layout}",
            hint="Kernels for GPUs do: --target 'cuda -model=H100' --layout NHWC",
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
