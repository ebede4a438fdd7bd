"""`tilewright explain`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import PredictedModelFlags, SharedFlagsOfExplain
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


def explain(
    name: Annotated[
        str, Parameter(help="op:conv2d[...] or a task's key; with --threads a network.")
    ],
    /,
    *,
    versus: Annotated[
        str | None, Parameter(help="Another operator or task, to be compared with the first.")
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
            help="Find the best number of threads, as --threads without a number does; with "
            "`--threads 8` at most 8 are tried.",
        ),
    ] = False,
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlagsOfExplain = SharedFlagsOfExplain(),
) -> None:
    """Say which settings an operator's time depends on, and at which sizes it jumps.

    Times are predicted; only --confirm, and --threads without a number, measure. Factors are
    settings, each with its share of the variance of the predicted times. Turning points
    are sizes from which on vectors or rounds of threads are no longer full, or data no longer fits
    a cache. `explain MODEL --threads` finds the best number of threads for a network. With
    `--target 'cuda -model=H100'` the facts are those of the operator's kernels for that GPU.
    """
    threads = thread_counts or flags.asks_for_threads
    options = model_flags.options(flags.seed)
    if threads and (versus is not None or confirm):
        raise UsageError(
            f"{'--versus' if versus is not None else '--confirm'} is for operators, --threads "
            "without a number for a network.",
            hint="Give the number of threads: --threads 4.",
        )
    with working(flags, model_flags) as work:
        if threads:
            found = work.session.best_threads(name, options=options)
        else:
            found = work.session.explain(
                name,
                versus=versus,
                confirm=confirm,
                implementation=flags.implementation,
                options=options,
            )
        work.tell("explain", found)
