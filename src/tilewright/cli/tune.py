"""`tilewright tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.flags import MaxError, ModelFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP, tell_optimized
from tilewright.cli.work import working
from tilewright.core.errors import UsageError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """What is searched, and how."""

    level: Annotated[
        Literal["op", "subgraph", "graph"],
        Parameter(
            help="Tune each bare operator and carry its setting over; or the fused subgraph; or "
            "subgraphs, then layouts and algorithms over the whole graph."
        ),
    ] = "subgraph"
    tuner: Annotated[
        str,
        Parameter(
            help="default, grid, random, genetic, droplet, xgb, xgb_rank, metaschedule, …; "
            "AutoTVM's names work too."
        ),
    ] = "default"
    solver: Annotated[
        str,
        Parameter(
            help="For --level graph: auto, exact, milp, pbqp, dp, greedy, uniform, history_best, "
            "or a solver or planner of another package (see doctor)."
        ),
    ] = "auto"
    save_problem: Annotated[
        Path | None,
        Parameter(help="For --level graph: where to write the problem, for `tilewright solve`."),
    ] = None

    def __post_init__(self) -> None:
        if self.level != "graph" and (self.solver != "auto" or self.save_problem is not None):
            raise UsageError(
                "--solver and --save-problem belong to the graph tuner.", hint="Add --level graph."
            )


def tune(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    search: SearchFlags | None = None,
    budget: Annotated[
        str,
        Parameter(
            help="Total for this network, target, threads and database, earlier runs included: "
            "a time (90s, 10m, 1h30m) or a number of measurements. 0 searches nothing: it "
            "compiles from what is known, checks, and races the networks."
        ),
    ] = "10m",
    max_error: MaxError = 1e-4,
    model_flags: ModelFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Search settings with a tuner of your choice, then compile, check and time as `optimize`.

    Shows per task the best, the gain, the failures and the time left; the report has the tuning
    curves, how much each knob matters, and all trials. With --level graph and --budget 0 nothing
    is built: layouts and algorithms are chosen from what is stored and modelled.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    search = search or SearchFlags()
    options = model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        from tilewright.search.levels import GraphLevel

        level = search.level
        outcome = work.session.tune(
            model,
            level=GraphLevel(solver=search.solver, save_problem=search.save_problem)
            if level == "graph"
            else level,
            tuner=search.tuner,
            budget=budget,
            out=flags.out,
            options=options,
            max_error=max_error,
        )
    return tell_optimized("tune", outcome.result, flags, work)
