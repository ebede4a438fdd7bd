"""`tilewright tune`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.flags import ModelFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP, tell_optimized
from tilewright.cli.work import working


def tune(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    level: Annotated[
        Literal["op", "subgraph"],
        Parameter(
            help="Tune each bare operator and carry its setting over, or the fused subgraph."
        ),
    ] = "subgraph",
    tuner: Annotated[
        str,
        Parameter(
            help="default, grid, random, genetic, droplet, xgb, xgb_rank, metaschedule, …; "
            "AutoTVM's names work too."
        ),
    ] = "default",
    budget: Annotated[
        str,
        Parameter(
            help="Total for this network, target, threads and database, earlier runs included: "
            "a time (90s, 10m, 1.5h) or a number of measurements. 0 measures nothing."
        ),
    ] = "10m",
    model_flags: ModelFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Search settings with a tuner of your choice, then compile, check and time as `optimize`.

    Shows per task the best, the gain, the failures and the time left; the report has the tuning
    curves, how much each knob matters, and all trials.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    options = model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        outcome = work.session.tune(
            model, level=level, tuner=tuner, budget=budget, out=flags.out, options=options
        )
    return tell_optimized("tune", outcome.result, flags, work)
