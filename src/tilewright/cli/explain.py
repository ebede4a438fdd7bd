"""`tilewright explain`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import ModelFlags, SharedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.report import forecasts


def explain(
    name: Annotated[
        str, Parameter(help="op:conv2d[...] or a task's key; with --threads a network.")
    ],
    /,
    *,
    versus: Annotated[
        str | None, Parameter(help="Another operator or task: what sets the two apart?")
    ] = None,
    thread_counts: Annotated[
        bool,
        Parameter(
            name="--thread-counts",
            negative="",
            help="Time the network with up to five numbers of threads and name the best.",
        ),
    ] = False,
    model_flags: ModelFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Say what an operator's time depends on, and where it jumps, from the predictors.

    Factors are its settings, by their part of the predicted variance. Turning points are values of
    its parameters where vectors or rounds of threads stop being full or a working set leaves a
    cache. Nothing is measured but with --thread-counts.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    options = model_flags.options(flags.seed)
    if versus is not None and thread_counts:
        raise UsageError("--versus compares operators, --thread-counts is for a network.")
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        if thread_counts:
            threads = work.session.best_threads(name, options=options)
            table = forecasts.threads_table(threads)
            answer = Answer(command="explain", data=threads, rows=table, warnings=work.warnings)
        else:
            found = work.session.explain(name, versus=versus, options=options)
            tables = forecasts.explained_tables(found)
            answer = Answer(
                command="explain",
                data=found,
                rows=tables[0],
                tables=tables,
                warnings=work.warnings,
            )
    emit(answer, flags)
    return 0
