"""`tilewright solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import AnswerFlags
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
    flags: AnswerFlags = AnswerFlags(),
) -> None:
    """Choose the cheapest layouts and implementations of a saved problem; nothing is measured."""
    with working(flags) as work:
        work.tell("solve", work.session.solve(file, solver))
