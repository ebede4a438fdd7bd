"""`tilewright fit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import PlacedFlags, TargetFlag
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.report import forecasts


def fit(
    *families: Annotated[str, Parameter(help="Families of operators [default: all known].")],
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, energy, or both with a comma between [default: both].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    target_flag: TargetFlag | None = None,
    flags: PlacedFlags | None = None,
) -> int:
    """Learn predictors of kernels' times and energies from what was measured on this device class.

    They learn from the rows that come with tilewright and from the database; `predict` uses them,
    and fits by itself those that are not there yet.
    """
    flags, target_flag = flags or PlacedFlags(), target_flag or TargetFlag()
    with working(flags, target=target_flag.target, tracker=target_flag.tracker) as work:
        result = work.session.fit(families, metric)
    table = forecasts.fitted_table(result.families)
    emit(Answer(command="fit", data=result, rows=table, warnings=work.warnings), flags)
    return 0
