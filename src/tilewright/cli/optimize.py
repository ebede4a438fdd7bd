"""`tilewright optimize`, and `tilewright tune`, which does the same by a tuner of one's choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.flags import (
    Budget,
    CompiledModelFlags,
    MaxError,
    ShapesFlags,
    SharedFlags,
)
from tilewright.cli.work import Work, working
from tilewright.core import errors, results

if TYPE_CHECKING:
    from tilewright.deploy.wishes import Wishes

MODEL_HELP = "An .onnx or .pt2 file, zoo:NAME, hf:NAME, torch:MODULE:NAME, op:conv2d[...]."


def optimize(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    budget: Budget = "10m",
    max_error: MaxError = None,
    model_flags: ShapesFlags = ShapesFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Make a network faster: tune its tasks, compile it, check it, time it.

    Writes the compiled network, a manifest and report.html to --out, by default
    ./tilewright-out/NAME. A repeated command continues where the last one stopped. With several
    sizes of the batch or of a named axis it makes one artifact that takes all of them, with --cache
    a decoder.
    """
    with working(flags, model_flags) as work:
        options, grid = model_flags.options_and_grid(model, flags.seed)
        wishes: Wishes = {
            "budget": budget,
            "out": flags.out,
            "options": options,
            "max_error": max_error,
        }
        if model_flags.cache is not None:
            tokens = model_flags.tokens or 64
            made = work.session.optimize_decoder(
                model, tokens=tokens, cache=model_flags.slots(), **wishes
            )
            work.tell("optimize", made.result, saved=False)
        elif grid is not None:
            shapes = work.session.optimize_shapes(model, grid, **wishes)
            work.tell("optimize", shapes.result, saved=False)
        else:
            _tell(work, "optimize", work.session.optimize(model, **wishes).result)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """What is searched, and how."""

    level: Annotated[
        Literal["op", "subgraph", "graph"],
        Parameter(
            help="op tunes each bare operator and uses its setting in the fused subgraph; subgraph "
            "tunes the fused subgraph; graph does that and then chooses layouts and algorithms "
            "over the whole graph."
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
    beside: Annotated[
        str | None,
        Parameter(
            help="Tune each kernel while this runs on other cores without pause: stream (it "
            "streams memory), compute (it computes on what its caches hold), on two cores "
            "streamx2, an operator, another MODEL, or an artifact; --threads must leave some."
        ),
    ] = None
    beside_threads: Annotated[
        int | None, Parameter(help="With --beside, the threads of that [default: 1].")
    ] = None

    def __post_init__(self) -> None:
        if self.level != "graph" and (self.solver != "auto" or self.save_problem is not None):
            raise errors.UsageError(
                "--solver and --save-problem belong to the graph tuner.", hint="Add --level graph."
            )
        checked_beside(self.beside, self.beside_threads)
        if self.beside is not None and self.level != "subgraph":
            raise errors.UsageError(
                "beside something fused kernels are tuned, in the usual layouts.",
                hint="Leave out --level, or --beside.",
            )


def checked_beside(beside: str | None, threads: int | None) -> None:
    """Raise UsageError for threads of a partner that is not there, or for none."""
    if threads is not None and beside is None:
        raise errors.UsageError(
            "--beside-threads are those of --beside.", hint="Add --beside MODEL."
        )
    if threads is not None and threads < 1:
        raise errors.UsageError(f"--beside-threads must be at least 1, not {threads}.")


def tune(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    search: SearchFlags = SearchFlags(),
    budget: Budget = "10m",
    max_error: MaxError = None,
    model_flags: CompiledModelFlags = CompiledModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Search settings with a tuner of your choice, then compile, check and time as `optimize`.

    Shows the best time, the gain and the failures of each task, and the time left. The report has
    the tuning curves, how much each knob matters, and all trials. With --level graph and
    --budget 0 nothing is built: layouts and algorithms are chosen from stored measurements and
    estimates.

    With --beside no network is compiled: each kernel is tuned while something else runs, and it is
    told which version is fastest alone, on one core, and beside that. `plan` chooses among them.
    """
    with working(flags, model_flags) as work:
        from tilewright.search.levels import GraphLevel

        if search.beside is not None:
            versions = work.session.tune_beside(
                model,
                search.beside,
                threads=search.beside_threads,
                tuner=search.tuner,
                budget=budget,
                options=model_flags.options(flags.seed),
                max_error=max_error,
            )
            work.tell("tune", versions)
            return
        level = GraphLevel(solver=search.solver, save_problem=search.save_problem)
        outcome = work.session.tune(
            model,
            level=level if search.level == "graph" else search.level,
            tuner=search.tuner,
            budget=budget,
            out=flags.out,
            options=model_flags.options(flags.seed),
            max_error=max_error,
        )
        _tell(work, "tune", outcome.result)


def _tell(work: Work, command: str, result: results.OptimizeResult) -> None:
    """Tell what `optimize` or `tune` made; `optimize` leaves what was found for each task to its
    report."""
    shown = replace(result, searches=()) if command == "optimize" else result
    report = [f"Report: {Path(result.artifact) / 'report.html'}"] if result.artifact else []
    work.tell(command, shown, data=result, remarks=report, saved=False)
