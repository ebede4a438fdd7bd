"""`study padding`: an operator along one of its parameters, measured and predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink
from tilewright.core.predictions import SweepResult, SweepRow
from tilewright.core.records import Placement
from tilewright.insight.single_operators import (
    KernelTimer,
    around,
    default_kernel,
    numbers_of,
    with_number,
)
from tilewright.measure.base import Measurer
from tilewright.measure.measurers import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.single_operator import with_default
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_facts import kernel_table
from tilewright.predict.modelling import Predictors
from tilewright.predict.operator_facts import roofline_s

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


@dataclass(frozen=True, kw_only=True)
class Sweeping:
    """One `study padding` command."""

    placement: Placement
    predictors: Predictors
    events: EventSink
    options: ModelOptions
    measurers: Callable[[Placement, int], Measurer] = open_measurer

    def run(self, operator: str, parameter: str, values: tuple[int, ...]) -> SweepResult:
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
        steps = values or _steps(parameter, known[parameter])
        kernels = [
            default_kernel(with_number(written, parameter, step), self.options, self.placement)
            for step in steps
        ]
        timer = KernelTimer(
            placement=self.placement,
            store=self.predictors.store,
            events=self.events,
            seed=self.options.seed,
            measurers=self.measurers,
        )
        times_s = timer.times(kernels)
        forecaster = Forecaster(
            placement=self.placement, predictors=self.predictors, events=self.events
        )
        estimates = forecaster.modelled(kernels)
        peaks = self.predictors.peaks
        table = kernel_table(kernels, self.placement, peaks)
        changing = [
            name
            for column, name in enumerate(table.names)
            if name in _SHOWN and len(np.unique(table.values[:, column])) > 1
        ]
        shown = table.aligned(changing[:_MOST_FACTS])
        return SweepResult(
            operator=operator,
            parameter=parameter,
            rows=tuple(
                SweepRow(
                    value=step,
                    latency_s=times_s[number],
                    predicted_s=estimates[number].latency_s,
                    roof_s=roofline_s(kernels[number][0], peaks),
                    implementation=kernels[number][1].implementation,
                    facts={
                        name: float(value)
                        for name, value in zip(changing, shown[number], strict=False)
                    },
                )
                for number, step in enumerate(steps)
            ),
        )


def _steps(parameter: str, value: int) -> tuple[int, ...]:
    """What to try where nothing was asked for; only paddings may be nothing."""
    if parameter.startswith("pad"):
        return _PADDINGS
    return tuple(step for step in around(value) if step or not value)
