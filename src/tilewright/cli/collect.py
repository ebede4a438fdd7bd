"""`tilewright collect`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import MeteredFlags, SharedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.report import forecasts


def collect(
    *models: Annotated[str, Parameter(help="Networks whose own tasks are measured.")],
    op: Annotated[
        tuple[str, ...],
        Parameter(
            help="Family of operators, conv2d say; repeat for several, or `all`.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    samples: Annotated[int, Parameter(help="Candidates to measure per family.")] = 200,
    settings: Annotated[
        int, Parameter(help="Random settings beside the default ones, per configuration.")
    ] = 3,
    budget: Annotated[
        str,
        Parameter(help="Total of this command, earlier runs included: 90s, 10m, or a number."),
    ] = "10m",
    model_flags: MeteredFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Measure operators in many configurations and settings, for predictors to learn from.

    With --power each kernel also runs in a loop for some seconds while a meter is read. Rows go to
    the database. A repeated command goes on where the last one stopped.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or MeteredFlags()
    if not models and not op:
        raise UsageError(
            "collect needs a family of operators or a network.",
            hint="tilewright collect --op conv2d --samples 200, or collect zoo:resnet50",
        )
    options = model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        work.session.meter = model_flags.meter_name
        result = work.session.collect(
            op,
            models,
            samples=samples,
            settings=settings,
            budget=budget,
            options=options,
        )
    table = forecasts.collected(result)
    emit(Answer(command="collect", data=result, rows=table, warnings=work.warnings), flags)
    return 0
