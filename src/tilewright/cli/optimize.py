"""`tilewright optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import MaxError, ModelFlags, SharedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.warn import merged
from tilewright.cli.work import Work, working
from tilewright.core.results import GraphTuneResult, OptimizeResult
from tilewright.report import graph, noise, views
from tilewright.report.tables import Table
from tilewright.report.tasks import tasks_table

MODEL_HELP = "An .onnx or .pt2 file, zoo:NAME, hf:NAME, torch:MODULE:NAME, op:conv2d[...]."


def optimize(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
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
    """Make a network faster: tune its tasks, compile it, check it, time it.

    Writes the compiled network, a manifest and report.html to --out, by default
    ./tilewright-out/NAME. The same command again goes on where the last one stopped.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    options = model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        outcome = work.session.optimize(
            model, budget=budget, out=flags.out, options=options, max_error=max_error
        )
    return tell_optimized("optimize", outcome.result, flags, work)


def tell_optimized(command: str, result: OptimizeResult, flags: SharedFlags, work: Work) -> int:
    """Print what `optimize` or `tune` made."""
    tasks = tasks_table(result)
    explained = noise.explain_difference(
        result.tasks_latency_s, result.latency_s, result.explanation
    )
    answer = Answer(
        command=command,
        data=result,
        rows=tasks,
        tables=(
            tasks,
            *_searched(command, result),
            *_graph(result),
            views.optimize_summary(result),
        ),
        remarks=[remark for remark in (explained, _report(result.artifact)) if remark],
        warnings=merged(work.warnings, noise.noise_warnings(result)),
    )
    emit(answer, flags, save=False)
    return 0


def _searched(command: str, result: OptimizeResult) -> tuple[Table, ...]:
    """What `tune` found for each task; `optimize` leaves that to its report."""
    found = views.searches_table(result.searches)
    return (found,) if command == "tune" and found.records else ()


def _graph(result: OptimizeResult) -> tuple[Table, ...]:
    """What the graph tuner found; every choice is in the report."""
    if not isinstance(result, GraphTuneResult):
        return ()
    return (graph.assignments_table(result), graph.solution_table(result))


def _report(artifact: str) -> str:
    return f"Report: {Path(artifact) / 'report.html'}" if artifact else ""
