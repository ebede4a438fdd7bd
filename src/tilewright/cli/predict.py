"""`tilewright predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import ForecastChoiceFlags, ModelFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


def predict(
    model: Annotated[str | None, Parameter(help=MODEL_HELP)] = None,
    /,
    *,
    table: Annotated[
        Path | None,
        Parameter(
            help="Predict operators instead: a .csv or .parquet with op:… in a column `operator`."
        ),
    ] = None,
    choice: ForecastChoiceFlags = ForecastChoiceFlags(),
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, power, energy, memory, or several separated by commas [default: all].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    model_flags: ModelFlags = ModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Predict a network's time, power, energy and memory without compiling it.

    Each kernel's time has a source: exact (this kernel was measured), interpolated (kernels of
    similar sizes were measured), model (a fitted model), facts (the kernel's facts and
    a GPU's datasheet), or roofline (a lower bound)."""
    if (model is None) == (table is None):
        raise UsageError(
            "predict takes a model or --table FILE.", hint="tilewright predict zoo:resnet50"
        )
    with working(flags, model_flags) as work:
        forecast = work.session.predict if table is None else work.session.predict_table
        work.tell(
            "predict",
            forecast(
                str(table or model),
                options=model_flags.options(flags.seed),
                settings=choice.settings,
                max_error=choice.max_error,
                metrics=metric,
            ),
        )
