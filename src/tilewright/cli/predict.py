"""`tilewright predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import ForecastChoiceFlags, ModelFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.output import emit
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


def predict(
    model: Annotated[str | None, Parameter(help=MODEL_HELP)] = None,
    /,
    *,
    table: Annotated[
        Path | None,
        Parameter(help="Instead: operators, a .csv or .parquet with op:… in a column `operator`."),
    ] = None,
    choice: ForecastChoiceFlags | None = None,
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, power, energy, memory, with commas between [default: all].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    model_flags: ModelFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Say how long a network will take, and its power, energy and memory, without compiling it.

    Each kernel's answer says where it comes from: exact (it was measured), interpolated (its
    neighbours in size were), model, or roofline (a lower bound)."""
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    if (model is None) == (table is None):
        raise UsageError(
            "predict takes a model or --table FILE.", hint="tilewright predict zoo:resnet50"
        )
    choice, options = choice or ForecastChoiceFlags(), model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        if model is not None:
            result = work.session.predict(
                model,
                options=options,
                settings=choice.settings,
                max_error=choice.max_error,
                metrics=metric,
            )
        else:
            result = work.session.predict_table(
                str(table),
                options=options,
                settings=choice.settings,
                max_error=choice.max_error,
                metrics=metric,
            )
    emit(answer_of("predict", result, work), flags)
    return 0
