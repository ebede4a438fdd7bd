"""`tilewright solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import AnswerFlags
from tilewright.cli.output import emit
from tilewright.cli.work import working


def solve(
    file: Annotated[Path, Parameter(help="A saved problem of the graph tuner (.json).")],
    /,
    *,
    solver: Annotated[
        str,
        Parameter(
            help="auto, exact, milp, pbqp, dp, greedy, uniform, history_best, or another "
            "package's (see doctor)."
        ),
    ] = "auto",
    flags: AnswerFlags | None = None,
) -> int:
    """Solve a saved layout and implementation problem; measures nothing and needs no compiler."""
    flags = flags or AnswerFlags()
    with working(flags) as work:
        from tilewright.plan.assignment.solving import solve_file

        result = solve_file(file, solver)
    emit(answer_of("solve", result, work), flags)
    return 0
