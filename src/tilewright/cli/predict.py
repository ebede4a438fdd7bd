"""`tilewright predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import ForecastChoiceFlags, PredictedModelFlags, SharedFlags, TargetFlag
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFlags:
    """What is predicted of what, and where."""

    table: Annotated[
        Path | None,
        Parameter(
            help="Predict operators instead: a .csv or .parquet with op:… in a column `operator`."
        ),
    ] = None
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, power, energy, memory, or several separated by commas [default: all].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()
    devices: Annotated[
        tuple[str, ...],
        Parameter(
            help="Targets to compare, instead of --target (repeat the flag): what each call takes "
            "on each of them, and transfers between them, as planners need it.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()


def predict(
    model: Annotated[str | None, Parameter(help=MODEL_HELP)] = None,
    /,
    *,
    asked: AskedFlags = AskedFlags(),
    choice: ForecastChoiceFlags = ForecastChoiceFlags(),
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Predict a network's time, power, energy and memory without compiling it.

    Each kernel's time has a source: exact (this kernel was measured), interpolated (kernels of
    similar sizes were measured), model (a fitted model), facts (the kernel's facts and
    a GPU's datasheet), or roofline (a lower bound)."""
    if (model is None) == (asked.table is None):
        raise UsageError(
            "predict takes a model or --table FILE.", hint="tilewright predict zoo:resnet50"
        )
    if asked.devices and (asked.table or asked.metric or model_flags.target != TargetFlag().target):
        raise UsageError(
            "--devices goes with a model, without --target, --table and --metric.",
            hint="tilewright predict zoo:resnet50 --devices llvm --devices 'cuda -model=H100'",
        )
    with working(flags, model_flags) as work:
        options = model_flags.options(flags.seed)
        settings, allowed = choice.settings, choice.max_error
        if asked.devices:
            found = work.session.planning_data(
                str(model), asked.devices, options=options, settings=settings, max_error=allowed
            )
            work.tell("predict", found)
            return
        forecast = work.session.predict if asked.table is None else work.session.predict_table
        work.tell(
            "predict",
            forecast(
                str(asked.table or model),
                options=options,
                settings=settings,
                max_error=allowed,
                metrics=asked.metric,
            ),
        )
