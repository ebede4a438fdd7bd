"""`tilewright explain`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import ModelFlags, SharedFlagsOfExplain
from tilewright.cli.output import emit
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


def explain(
    name: Annotated[
        str, Parameter(help="op:conv2d[...] or a task's key; with --threads a network.")
    ],
    /,
    *,
    versus: Annotated[
        str | None, Parameter(help="Another operator or task: what sets the two apart?")
    ] = None,
    confirm: Annotated[
        bool,
        Parameter(
            negative="", help="Measure a few values around the largest turning points of op:…."
        ),
    ] = False,
    thread_counts: Annotated[
        bool,
        Parameter(
            name="--thread-counts",
            negative="",
            help="As --threads without a number; `--thread-counts --threads 8` asks for up to 8.",
        ),
    ] = False,
    model_flags: ModelFlags | None = None,
    flags: SharedFlagsOfExplain | None = None,
) -> int:
    """Say what an operator's time depends on, and where it jumps, from the predictors.

    Factors are its settings, by their part of the predicted variance. Turning points are values of
    its parameters where vectors or rounds of threads stop being full or a working set leaves a
    cache. `explain MODEL --threads` names the best number of threads of a network. With
    `--target 'cuda -model=H100'` facts are those of the CUDA kernels that TVM's default schedules
    make. Nothing is measured but with --confirm and --threads without a number.
    """
    given, model_flags = flags or SharedFlagsOfExplain(), model_flags or ModelFlags()
    shared, threads = given.shared(), thread_counts or given.asks_for_threads
    options = model_flags.options(shared.seed)
    if threads and (versus is not None or confirm):
        raise UsageError(
            f"{'--versus' if versus is not None else '--confirm'} is for operators, --threads "
            "without a number for a network.",
            hint="Give the number of threads: --threads 4.",
        )
    with working(shared, target=model_flags.target, tracker=model_flags.tracker) as work:
        if threads:
            found = work.session.best_threads(name, options=options)
        else:
            found = work.session.explain(name, versus=versus, confirm=confirm, options=options)
    emit(answer_of("explain", found, work), shared)
    return 0
