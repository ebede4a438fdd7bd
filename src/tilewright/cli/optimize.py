"""`tilewright optimize`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import MaxError, ModelFlags, SharedFlags
from tilewright.cli.output import emit
from tilewright.cli.work import Work, working
from tilewright.core.results import OptimizeResult

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
    """Print what `optimize` or `tune` made; `optimize` leaves what was found for each task to its
    report."""
    shown = replace(result, searches=()) if command == "optimize" else result
    report = [f"Report: {Path(result.artifact) / 'report.html'}"] if result.artifact else []
    emit(answer_of(command, shown, work, data=result, remarks=report), flags, save=False)
    return 0
