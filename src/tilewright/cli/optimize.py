"""`tilewright optimize`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import Budget, MaxError, ModelFlags, SharedFlags
from tilewright.cli.work import Work, working
from tilewright.core.results import OptimizeResult

MODEL_HELP = "An .onnx or .pt2 file, zoo:NAME, hf:NAME, torch:MODULE:NAME, op:conv2d[...]."


def optimize(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    budget: Budget = "10m",
    max_error: MaxError = 1e-4,
    model_flags: ModelFlags = ModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Make a network faster: tune its tasks, compile it, check it, time it.

    Writes the compiled network, a manifest and report.html to --out, by default
    ./tilewright-out/NAME. The same command again goes on where the last one stopped.
    """
    with working(flags, model_flags) as work:
        outcome = work.session.optimize(
            model,
            budget=budget,
            out=flags.out,
            options=model_flags.options(flags.seed),
            max_error=max_error,
        )
        tell_optimized("optimize", outcome.result, work)


def tell_optimized(command: str, result: OptimizeResult, work: Work) -> None:
    """Tell what `optimize` or `tune` made; `optimize` leaves what was found for each task to its
    report."""
    shown = replace(result, searches=()) if command == "optimize" else result
    report = [f"Report: {Path(result.artifact) / 'report.html'}"] if result.artifact else []
    work.tell(command, shown, data=result, remarks=report, saved=False)
